//! The plan: the format of lines, and the limits of what is kept of them.

use serde_json::Value;

use crate::error::Error;

/// The name of a plan's schema.
const SCHEMA: &str = "nginx-tune/learnplan/1";

/// The meaning of a field of a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Slot {
    TimeLocal,
    TimeIso8601,
    Msec,
    Time,
    Request,
    Method,
    RequestUri,
    Uri,
    Protocol,
    Http3,
    Status,
    Bytes,
    RequestTime,
    Host,
    Connection,
    ConnectionRequests,
    SslProtocol,
    Scheme,
    CacheStatus,
    Range,
    ContentRange,
    GzipRatio,
    Server,
    Upstream,
    RoundTrip,
    UserAgent,
}

/// The number of slots.
pub(crate) const SLOTS: usize = Slot::UserAgent as usize + 1;

impl Slot {
    fn named(name: &str) -> Option<Self> {
        Some(match name {
            "time_local" => Self::TimeLocal,
            "time_iso8601" => Self::TimeIso8601,
            "msec" => Self::Msec,
            "time" => Self::Time,
            "request" => Self::Request,
            "method" => Self::Method,
            "request_uri" => Self::RequestUri,
            "uri" => Self::Uri,
            "protocol" => Self::Protocol,
            "http3" => Self::Http3,
            "status" => Self::Status,
            "bytes" => Self::Bytes,
            "request_time" => Self::RequestTime,
            "host" => Self::Host,
            "connection" => Self::Connection,
            "connection_requests" => Self::ConnectionRequests,
            "ssl_protocol" => Self::SslProtocol,
            "scheme" => Self::Scheme,
            "cache_status" => Self::CacheStatus,
            "range" => Self::Range,
            "content_range" => Self::ContentRange,
            "gzip_ratio" => Self::GzipRatio,
            "server" => Self::Server,
            "upstream" => Self::Upstream,
            "round_trip" => Self::RoundTrip,
            "user_agent" => Self::UserAgent,
            _ => return None,
        })
    }
}

/// The way in which nginx escaped values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Escape {
    Default,
    Json,
    None,
}

/// The text before a variable, and the meaning of the variable.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) before: Vec<u8>,
    pub(crate) slot: Option<Slot>,
    pub(crate) is_list: bool,
}

/// The format of lines, and the limits of what is kept of them.
#[derive(Debug)]
pub struct Plan {
    pub(crate) escape: Escape,
    pub(crate) segments: Vec<Segment>,
    pub(crate) after: Vec<u8>,
    /// The keys of lines that are JSON objects, the preferred ones first.
    pub(crate) keys: Vec<(String, Slot)>,
    pub(crate) with_query: bool,
    pub(crate) most_objects: usize,
    pub(crate) most_lines: usize,
    pub(crate) most_seconds: usize,
    pub(crate) most_requests: usize,
    pub(crate) most_places: usize,
    pub(crate) keeps_paths: bool,
    /// The key of all hashes.
    pub(crate) key: [u8; 16],
}

impl Plan {
    /// Reads a plan.
    ///
    /// # Errors
    /// `Error::Plan` that names the wrong part.
    pub fn parse(text: &[u8]) -> Result<Self, Error> {
        let plan: Value =
            serde_json::from_slice(text).map_err(|error| fault(&format!("not JSON: {error}")))?;
        if plan["schema"] != SCHEMA {
            return Err(fault(&format!("not of schema {SCHEMA}")));
        }
        let format = &plan["format"];
        let parsed = Self {
            escape: match format["escape"].as_str() {
                Some("default") => Escape::Default,
                Some("json") => Escape::Json,
                Some("none") => Escape::None,
                _ => return Err(fault("format.escape")),
            },
            segments: list(&format["segments"], "format.segments")?
                .iter()
                .map(segment)
                .collect::<Result<_, _>>()?,
            after: text_of(&format["after"], "format.after")?.into(),
            keys: list(&format["keys"], "format.keys")?
                .iter()
                .map(key)
                .collect::<Result<_, _>>()?,
            with_query: flag(&plan, "with_query")?,
            most_objects: count(&plan, "most_objects")?,
            most_lines: count(&plan, "most_lines")?,
            most_seconds: count(&plan, "most_seconds")?,
            most_requests: count(&plan, "most_requests")?,
            most_places: count(&plan, "most_places")?,
            keeps_paths: flag(&plan, "keeps_paths")?,
            key: key_of(&plan["key"])?,
        };
        if parsed.segments.is_empty() && parsed.keys.is_empty() {
            return Err(fault("format has neither segments nor keys"));
        }
        if parsed.most_objects == 0 || parsed.most_lines == 0 || parsed.most_seconds == 0 {
            return Err(fault(
                "most_objects, most_lines and most_seconds are at least 1",
            ));
        }
        Ok(parsed)
    }

    /// Whether the format has a field for this slot.
    pub(crate) fn tells(&self, slot: Slot) -> bool {
        self.segments
            .iter()
            .any(|segment| segment.slot == Some(slot))
            || self.keys.iter().any(|(_, found)| *found == slot)
    }
}

fn segment(value: &Value) -> Result<Segment, Error> {
    let slot = match &value["slot"] {
        Value::Null => None,
        named => Some(slot_of(named)?),
    };
    Ok(Segment {
        before: text_of(&value["before"], "segment.before")?.into(),
        slot,
        is_list: flag(value, "is_list")?,
    })
}

fn key(value: &Value) -> Result<(String, Slot), Error> {
    Ok((
        text_of(&value["key"], "key.key")?.into(),
        slot_of(&value["slot"])?,
    ))
}

/// Sixteen bytes from their hexadecimal form.
fn key_of(value: &Value) -> Result<[u8; 16], Error> {
    let text = text_of(value, "key")?;
    let number = u128::from_str_radix(text, 16).map_err(|_| fault("key"))?;
    Ok(number.to_be_bytes())
}

fn slot_of(value: &Value) -> Result<Slot, Error> {
    let name = text_of(value, "slot")?;
    Slot::named(name).ok_or_else(|| fault(&format!("unknown slot {name:?}")))
}

fn list<'a>(value: &'a Value, name: &str) -> Result<&'a Vec<Value>, Error> {
    value.as_array().ok_or_else(|| fault(name))
}

fn text_of<'a>(value: &'a Value, name: &str) -> Result<&'a str, Error> {
    value.as_str().ok_or_else(|| fault(name))
}

fn flag(value: &Value, name: &str) -> Result<bool, Error> {
    value[name].as_bool().ok_or_else(|| fault(name))
}

fn count(value: &Value, name: &str) -> Result<usize, Error> {
    let number = value[name].as_u64().ok_or_else(|| fault(name))?;
    usize::try_from(number).map_err(|_| fault(name))
}

fn fault(what: &str) -> Error {
    Error::Plan(format!("log plan: {what}"))
}
