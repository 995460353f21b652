//! What a plan says of a class whose requests are messages over WebSockets.

use serde_json::Value;

use super::{Class, Keepalive, Method, PathKind, Streams};
use crate::error::Error;
use crate::fields::{Fields, Read};

/// Bytes of the longest message.
const MOST_MESSAGE_BYTES: u64 = 1 << 20;

/// Messages that one connection can have on their way.
const MOST_MESSAGES: usize = 10_000;

/// Header fields that the opening handshake sets itself (RFC 6455 §4.1).
const OWN_FIELDS: [&str; 4] = [
    "upgrade",
    "sec-websocket-key",
    "sec-websocket-version",
    "sec-websocket-extensions",
];

/// How a class sends messages and awaits their echoes (RFC 6455, over HTTP/1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WebSocket {
    /// Bytes of each message.
    pub message_bytes: u64,
    /// Whether messages are text; else they are binary.
    pub text: bool,
    /// Messages of one connection that may be on their way at once; more wait with their intended
    /// time.
    pub messages: usize,
}

impl WebSocket {
    /// What its connections carry at once; the windows are those of TCP.
    pub(super) fn streams(self) -> Streams {
        Streams {
            streams: self.messages,
            ..Streams::default()
        }
    }

    /// Whether it goes with the rest of its class.
    pub(super) fn check(self, class: &Class) -> Result<(), String> {
        if !(1..=MOST_MESSAGE_BYTES).contains(&self.message_bytes) {
            return Err(format!(
                "needs websocket.message_bytes from 1 to {MOST_MESSAGE_BYTES}"
            ));
        }
        if !(1..=MOST_MESSAGES).contains(&self.messages) {
            return Err(format!(
                "needs websocket.messages from 1 to {MOST_MESSAGES}"
            ));
        }
        let own = class.headers.keys().find(|name| {
            let mut own = OWN_FIELDS.iter();
            own.any(|own| name.eq_ignore_ascii_case(own))
        });
        if let Some(name) = own {
            return Err(format!("has a header {name}, which websocket sets itself"));
        }
        let other = [
            (class.http2.is_some(), "http2"),
            (class.http3.is_some(), "http3"),
            (class.method != Method::Get, "a method other than GET"),
            (class.status != [200], "status"),
            (class.keepalive != Keepalive::Forever, "keepalive"),
            (class.event_stream.is_some(), "event_stream"),
            (class.upload.is_some(), "upload"),
            (class.ranges.is_some(), "range"),
            (
                class.read_bytes_per_second.is_some(),
                "read_bytes_per_second",
            ),
            (
                class.paths.kind != PathKind::Fixed,
                "paths of another kind than fixed",
            ),
        ];
        match other.iter().find(|(is_set, _)| *is_set) {
            None => Ok(()),
            Some((_, name)) => Err(format!("has {name}, which websocket has not")),
        }
    }
}

impl Read for WebSocket {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let websocket = Self {
            message_bytes: fields.or("message_bytes", 128)?,
            text: fields.or("text", false)?,
            messages: fields.or("messages", 100)?,
        };
        fields.end()?;
        Ok(websocket)
    }
}
