//! What a plan says of HTTP/2 and HTTP/3.

use serde_json::Value;

use crate::error::Error;
use crate::fields::{Fields, Read};

/// More streams than any server takes at once.
const MOST_STREAMS: usize = 10_000;

/// What a client of HTTP/2 has to let through before it may say more (RFC 9113 §6.5.2), and the most.
const WINDOW_BYTES: std::ops::RangeInclusive<u32> = 65_535..=0x7fff_ffff;

/// How a class speaks HTTP/2 or HTTP/3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    /// Requests at once on a connection; fewer where the server wants fewer.
    pub streams: usize,
    /// What a server may send of a response before the probe has read it.
    pub stream_window_bytes: u32,
    /// The same of all responses on a connection together.
    pub connection_window_bytes: u32,
}

impl Default for Streams {
    /// The windows are those of Chromium (`kSpdyStreamMaxRecvWindowSize` and its session's, which
    /// `kQuicStreamMaxRecvWindowSize` and its session's equal).
    fn default() -> Self {
        Self {
            streams: 100,
            stream_window_bytes: 6 << 20,
            connection_window_bytes: 15 << 20,
        }
    }
}

impl Streams {
    /// `protocol` is the name of the field.
    pub(super) fn check(self, protocol: &str) -> Result<(), String> {
        if !(1..=MOST_STREAMS).contains(&self.streams) {
            return Err(format!("needs {protocol}.streams from 1 to {MOST_STREAMS}"));
        }
        for (name, window) in [
            ("stream_window_bytes", self.stream_window_bytes),
            ("connection_window_bytes", self.connection_window_bytes),
        ] {
            if !WINDOW_BYTES.contains(&window) {
                let (least, most) = (WINDOW_BYTES.start(), WINDOW_BYTES.end());
                return Err(format!("needs {protocol}.{name} from {least} to {most}"));
            }
        }
        Ok(())
    }
}

impl Read for Streams {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let default = Self::default();
        let mut fields = Fields::of(value, place)?;
        let streams = Self {
            streams: fields.or("streams", default.streams)?,
            stream_window_bytes: window(&mut fields, "stream", default.stream_window_bytes)?,
            connection_window_bytes: window(
                &mut fields,
                "connection",
                default.connection_window_bytes,
            )?,
        };
        fields.end()?;
        Ok(streams)
    }
}

fn window(fields: &mut Fields, of: &str, default: u32) -> Result<u32, Error> {
    let name = format!("{of}_window_bytes");
    let bytes: u64 = fields.or(&name, u64::from(default))?;
    u32::try_from(bytes).map_err(|_| fields.wrong(&name, "is more than any window"))
}
