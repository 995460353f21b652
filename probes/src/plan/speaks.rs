//! The protocols in a plan.

use serde_json::Value;

use super::{Class, ConnectionUse, Keepalive, PaceOf, Target, TlsVersion};
use crate::error::Error;
use crate::fields::{Fields, Read};

/// The most streams; no server allows more at once.
const MOST_STREAMS: usize = 10_000;

/// The valid initial windows: the least that a client can announce (RFC 9113 §6.5.2), and the most.
const WINDOW_BYTES: std::ops::RangeInclusive<u32> = 65_535..=0x7fff_ffff;

/// The protocol of a class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Speaks {
    /// HTTP/1.1.
    #[default]
    Http1,
    /// HTTP/2.
    Http2(Streams),
    /// HTTP/3.
    Http3(Streams),
}

impl Speaks {
    /// Reads the protocol from the fields of a class.
    ///
    /// # Errors
    /// `Error::Plan` if they name two protocols.
    pub(super) fn read(fields: &mut Fields) -> Result<Self, Error> {
        match (fields.optional("http2")?, fields.optional("http3")?) {
            (None, None) => Ok(Self::Http1),
            (Some(streams), None) => Ok(Self::Http2(streams)),
            (None, Some(streams)) => Ok(Self::Http3(streams)),
            (Some(_), Some(_)) => Err(fields.wrong(
                "http3",
                "cannot be combined with http2: a class has one protocol",
            )),
        }
    }

    /// The name in plans and results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Http1 => "http1",
            Self::Http2(_) => "http2",
            Self::Http3(_) => "http3",
        }
    }

    /// The streams of its connections; `None` if a connection carries one request at a time.
    pub fn streams(self) -> Option<Streams> {
        match self {
            Self::Http1 => None,
            Self::Http2(streams) | Self::Http3(streams) => Some(streams),
        }
    }

    /// Whether streams have a priority tree and classes can share connections.
    pub fn has_tree(self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// Checks a class with this protocol and its target; returns the fault.
    pub(super) fn check(self, class: &Class, target: &Target) -> Result<(), String> {
        let is_slow = class.read_bytes_per_second.is_some();
        let (streams, has_slow_clients) = match self {
            Self::Http1 if class.read_pace_of == PaceOf::Connection => {
                return Err("has read_pace_of connection, which needs http2".into());
            }
            Self::Http1 => return Ok(()),
            Self::Http2(streams) => (streams, true),
            Self::Http3(_) if !takes_quic(target) => {
                return Err(
                    "speaks http3, which needs an address and TLS 1.3, and no PROXY protocol"
                        .into(),
                );
            }
            Self::Http3(streams) => (streams, false),
        };
        let protocol = self.name();
        streams.check(protocol)?;
        let takes_turns = class.connection_use == ConnectionUse::Turns;
        let other = [
            (takes_turns, "connection_use"),
            (class.keepalive != Keepalive::Forever, "keepalive"),
            (is_slow && !has_slow_clients, "read_bytes_per_second"),
        ];
        match other.iter().find(|(is_set, _)| *is_set) {
            None => Ok(()),
            Some((_, name)) => Err(format!("has {name}, which {protocol} does not support")),
        }
    }
}

/// Whether a target can use QUIC: over UDP, and always with TLS 1.3.
fn takes_quic(target: &Target) -> bool {
    let tls = target.tls.as_ref();
    !target.endpoint.is_unix()
        && target.proxy_protocol.is_none()
        && tls.is_some_and(|tls| tls.newest >= TlsVersion::V1_3)
}

/// The parameters of connections that carry many requests at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    /// Concurrent requests on a connection; fewer if the server allows fewer.
    pub streams: usize,
    /// The initial window of a stream: bytes of a response that the server may send before they are
    /// read.
    pub stream_window_bytes: u32,
    /// The initial window of a connection, for all responses on it.
    pub connection_window_bytes: u32,
}

impl Default for Streams {
    /// The windows are those of Chromium (`kSpdyStreamMaxRecvWindowSize` and its session's;
    /// `kQuicStreamMaxRecvWindowSize` and its session's are equal).
    fn default() -> Self {
        Self {
            streams: 100,
            stream_window_bytes: 6 << 20,
            connection_window_bytes: 15 << 20,
        }
    }
}

impl Streams {
    /// Checks the parameters; `protocol` is the name of the field.
    fn check(self, protocol: &str) -> Result<(), String> {
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
