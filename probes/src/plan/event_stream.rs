//! What a plan says of a class whose answers are long streams of events.

use serde_json::Value;

use super::{Class, Method};
use crate::error::Error;
use crate::fields::{Fields, Read};

/// Bytes of the longest text that is looked for in a body.
const LONGEST_TEXT_BYTES: usize = 256;

/// How the answers of a class are watched while they come.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EventStream {
    /// The text before a number that says when an event was sent, in nanoseconds of this host's
    /// `CLOCK_MONOTONIC`; none where events say nothing.
    pub stamp: Option<String>,
    /// A text that every whole stream has near its end; one that ends without it ended early.
    pub end: Option<String>,
}

impl EventStream {
    /// Whether it goes with the rest of its class.
    pub(super) fn check(&self, class: &Class) -> Result<(), String> {
        for (name, text) in [("stamp", &self.stamp), ("end", &self.end)] {
            let length = text.as_ref().map(String::len);
            if length.is_some_and(|length| !(1..=LONGEST_TEXT_BYTES).contains(&length)) {
                return Err(format!(
                    "needs event_stream.{name} from 1 to {LONGEST_TEXT_BYTES} bytes"
                ));
            }
        }
        if self.stamp.as_ref().is_some_and(|text| ends_in_digit(text)) {
            return Err("needs an event_stream.stamp whose last character is no digit".into());
        }
        let other = [
            (class.method == Method::Head, "method HEAD"),
            (
                class.read_bytes_per_second.is_some(),
                "read_bytes_per_second",
            ),
            (class.ranges.is_some(), "range"),
        ];
        match other.iter().find(|(is_set, _)| *is_set) {
            None => Ok(()),
            Some((_, name)) => Err(format!("has {name}, which event_stream has not")),
        }
    }
}

fn ends_in_digit(text: &str) -> bool {
    text.ends_with(|last: char| last.is_ascii_digit())
}

impl Read for EventStream {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let stream = Self {
            stamp: fields.optional("stamp")?,
            end: fields.optional("end")?,
        };
        fields.end()?;
        Ok(stream)
    }
}
