//! What a plan says of protocols.

use serde_json::Value;

use super::{Class, ConnectionUse, Keepalive, PaceOf, Target, TlsVersion};
use crate::error::Error;
use crate::fields::{Fields, Read};

/// More streams than any server takes at once.
const MOST_STREAMS: usize = 10_000;

/// What a client has to let through before it may say more (RFC 9113 §6.5.2), and the most.
const WINDOW_BYTES: std::ops::RangeInclusive<u32> = 65_535..=0x7fff_ffff;

/// What a class speaks.
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
    /// What the fields of a class say.
    ///
    /// # Errors
    /// `Error::Plan` where they say two.
    pub(super) fn read(fields: &mut Fields) -> Result<Self, Error> {
        match (fields.optional("http2")?, fields.optional("http3")?) {
            (None, None) => Ok(Self::Http1),
            (Some(streams), None) => Ok(Self::Http2(streams)),
            (None, Some(streams)) => Ok(Self::Http3(streams)),
            (Some(_), Some(_)) => {
                Err(fields.wrong("http3", "does not go with http2: one can be spoken"))
            }
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

    /// How its connections carry many requests at once; none carries one at a time.
    pub fn streams(self) -> Option<Streams> {
        match self {
            Self::Http1 => None,
            Self::Http2(streams) | Self::Http3(streams) => Some(streams),
        }
    }

    /// Whether a server can be told how urgent a stream is, and classes share connections.
    pub fn has_tree(self) -> bool {
        matches!(self, Self::Http2(_))
    }

    /// What is wrong with a class that speaks so to a target.
    pub(super) fn check(self, class: &Class, target: &Target) -> Result<(), String> {
        let is_slow = class.read_bytes_per_second.is_some();
        let (streams, has_slow_clients) = match self {
            Self::Http1 if class.read_pace_of == PaceOf::Connection => {
                return Err("has read_pace_of connection, which is of http2".into());
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
            Some((_, name)) => Err(format!("has {name}, which {protocol} has not")),
        }
    }
}

/// Whether QUIC can be spoken with a target: over UDP, and always with TLS 1.3.
fn takes_quic(target: &Target) -> bool {
    let tls = target.tls.as_ref();
    !target.endpoint.is_unix()
        && target.proxy_protocol.is_none()
        && tls.is_some_and(|tls| tls.newest >= TlsVersion::V1_3)
}

/// How connections carry many requests at once.
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
