//! What a plan says of a class whose requests have bodies.

use serde_json::Value;

use super::{Class, Method};
use crate::error::Error;
use crate::fields::{Fields, Read};

/// Sizes that a class can have.
const MOST_SIZES: usize = 100_000;

/// The bodies of a class's requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upload {
    /// Lengths; each request draws one of them.
    pub bytes: Vec<u64>,
    /// Most bytes that a client sends in a second; 0 for as fast as the socket takes them.
    pub bytes_per_second: u64,
    /// Whether the request does not say how long its body is: chunks of HTTP/1.1.
    pub chunked: bool,
    /// Whether the body waits until the server wants it.
    pub expect_continue: bool,
}

impl Upload {
    /// Whether it goes with the rest of its class.
    pub(super) fn check(&self, class: &Class) -> Result<(), String> {
        if !(1..=MOST_SIZES).contains(&self.bytes.len()) {
            return Err(format!("needs upload.bytes: from 1 to {MOST_SIZES} sizes"));
        }
        let other = [
            (
                class.read_bytes_per_second.is_some(),
                "read_bytes_per_second",
            ),
            (class.ranges.is_some(), "range"),
            (class.event_stream.is_some(), "event_stream"),
            (
                class
                    .headers
                    .keys()
                    .any(|n| n.eq_ignore_ascii_case("expect")),
                "a header Expect",
            ),
        ];
        if let Some((_, name)) = other.iter().find(|(is_set, _)| *is_set) {
            return Err(format!("has {name}, which upload has not"));
        }
        if self.expect_continue && class.streams().is_some() {
            return Err("has upload.expect_continue, which is of HTTP/1.1".into());
        }
        Ok(())
    }
}

/// Whether a class has bodies where its method has, and only there.
pub(super) fn check_method(class: &Class) -> Result<(), String> {
    match (&class.upload, class.method.has_body()) {
        (Some(upload), true) => upload.check(class),
        (None, false) => Ok(()),
        (Some(_), false) => Err("has upload, and needs method POST or PUT".into()),
        (None, true) => Err(format!(
            "has method {}, and needs upload",
            class.method.text()
        )),
    }
}

impl Read for Upload {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let upload = Self {
            bytes: fields.required("bytes")?,
            bytes_per_second: fields.or("bytes_per_second", 0)?,
            chunked: fields.or("chunked", false)?,
            expect_continue: fields.or("expect_continue", false)?,
        };
        fields.end()?;
        Ok(upload)
    }
}

impl Method {
    /// Whether a request of it has a body.
    pub fn has_body(self) -> bool {
        matches!(self, Self::Post | Self::Put)
    }

    /// Whether a request of it may be sent again that a server may have seen (RFC 9110 §9.2.2).
    pub fn may_repeat(self) -> bool {
        self != Self::Post
    }
}
