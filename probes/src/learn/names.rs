//! The names by which requests are counted; all other names count as one.

use std::borrow::Cow;
use std::collections::BTreeMap;

pub(crate) const METHODS: [&str; 10] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "CONNECT", "TRACE", "PROPFIND",
];
pub(crate) const PROTOCOLS: [(&str, &str); 5] = [
    ("HTTP/0.9", "0.9"),
    ("HTTP/1.0", "1.0"),
    ("HTTP/1.1", "1.1"),
    ("HTTP/2.0", "2"),
    ("HTTP/3.0", "3"),
];
pub(crate) const TLS: [&str; 6] = ["SSLv2", "SSLv3", "TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];
pub(crate) const CACHE: [&str; 8] = [
    "MISS",
    "BYPASS",
    "EXPIRED",
    "STALE",
    "UPDATING",
    "REVALIDATED",
    "HIT",
    "SCARCE",
];
/// The value of `$server_protocol` for a request over HTTP/3.
pub(crate) const HTTP_3: &[u8] = b"HTTP/3.0";

pub(crate) const OTHER: &str = "other";
pub(crate) const NONE: &str = "none";

/// The number of occurrences by name.
pub(crate) type Names = BTreeMap<Cow<'static, str>, u64>;

/// Counts an occurrence of a name.
pub(crate) fn count(names: &mut Names, name: &'static str) {
    *names.entry(Cow::Borrowed(name)).or_default() += 1;
}

/// Whether nginx wrote that there is no value.
pub(crate) fn is_none(text: &[u8]) -> bool {
    matches!(text, b"" | b"-")
}

/// The known name that equals a text, or `OTHER`.
pub(crate) fn name_of(text: &[u8], known: &[&'static str]) -> &'static str {
    known
        .iter()
        .find(|name| name.as_bytes() == text)
        .unwrap_or(&OTHER)
}
