//! The header fields that say how long a response is, and whether the connection goes on.

use super::NotHttp;
use super::content_range::ContentRange;

/// What `Transfer-Encoding` says.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) enum Coding {
    #[default]
    None,
    /// The last coding is chunked: the end is in the bytes.
    Chunked,
    /// Another: the end is the end of the connection.
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
    /// Whether the body is compressed: `Content-Encoding` names another coding than `identity`.
    pub(super) encoded: bool,
}

impl Fields {
    /// The fields among some headers.
    pub(super) fn read(headers: &[httparse::Header<'_>]) -> Result<Self, NotHttp> {
        let mut fields = Self::default();
        for header in headers {
            // By length first: most headers are none of these.
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

/// Digits only: no sign, no list, no overflow.
fn parse_length(value: &[u8]) -> Result<u64, NotHttp> {
    let text = std::str::from_utf8(value)
        .map_err(|_| NotHttp::Length)?
        .trim();
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(NotHttp::Length);
    }
    text.parse().map_err(|_| NotHttp::Length)
}
