//! The header fields that determine the length of a response and the end of the connection.

use super::NotHttp;
use super::content_range::ContentRange;

/// The meaning of `Transfer-Encoding`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Coding {
    #[default]
    None,
    /// The last coding is chunked, so the body marks its own end.
    Chunked,
    /// Another coding: the body ends with the connection.
    Other,
}

/// The header fields that frame a response.
#[derive(Debug, Default)]
pub(super) struct Fields {
    pub(super) length: Option<u64>,
    pub(super) coding: Coding,
    pub(super) range: Option<ContentRange>,
    pub(super) close: bool,
    pub(super) keepalive: bool,
    pub(super) worker: Option<u64>,
    /// True if the body is compressed: `Content-Encoding` has a coding other than `identity`.
    pub(super) encoded: bool,
}

impl Fields {
    /// Reads the fields from some headers.
    pub(super) fn read(headers: &[httparse::Header<'_>]) -> Result<Self, NotHttp> {
        let mut fields = Self::default();
        for header in headers {
            // By length first, since most headers are none of these.
            match header.name.len() {
                14 if header.name.eq_ignore_ascii_case("content-length") => {
                    let length = parse_length(header.value)?;
                    if fields.length.is_some_and(|other| other != length) {
                        return Err(NotHttp::Lengths);
                    }
                    fields.length = Some(length);
                }
                14 if header.name.eq_ignore_ascii_case("x-probe-worker") => {
                    fields.worker = parse_length(header.value).ok();
                }
                16 if header.name.eq_ignore_ascii_case("content-encoding") => {
                    fields.encoded |= tokens(header.value)
                        .any(|t| !t.is_empty() && !t.eq_ignore_ascii_case(b"identity"));
                }
                17 if header.name.eq_ignore_ascii_case("transfer-encoding") => {
                    let last = tokens(header.value).last();
                    let chunked = last.is_some_and(|t| t.eq_ignore_ascii_case(b"chunked"));
                    fields.coding = if chunked {
                        Coding::Chunked
                    } else {
                        Coding::Other
                    };
                }
                13 if header.name.eq_ignore_ascii_case("content-range") => {
                    fields.range = ContentRange::parse(header.value);
                }
                10 if header.name.eq_ignore_ascii_case("connection") => {
                    for token in tokens(header.value) {
                        fields.close |= token.eq_ignore_ascii_case(b"close");
                        fields.keepalive |= token.eq_ignore_ascii_case(b"keep-alive");
                    }
                }
                _ => {}
            }
        }
        Ok(fields)
    }
}

fn tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|&byte| byte == b',').map(<[u8]>::trim_ascii)
}

/// Only digits: no sign, no list, no overflow.
fn parse_length(value: &[u8]) -> Result<u64, NotHttp> {
    let text = std::str::from_utf8(value)
        .map_err(|_| NotHttp::Length)?
        .trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotHttp::Length);
    }
    text.parse().map_err(|_| NotHttp::Length)
}
