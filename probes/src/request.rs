//! What is sent: the bytes of a request and its place in time.

use std::io::Write as _;

use crate::clock::Nanos;
use crate::plan::{ByteRange, Class, Target};

/// One request, from its arrival to its end.
#[derive(Debug, Clone, Copy)]
pub struct Request {
    /// Which of the class's paths it asks for.
    pub path: usize,
    /// Its number among the class's requests of all load hosts.
    pub index: u64,
    /// When it was due; in a closed loop when its user was ready to send.
    pub intended: Nanos,
    /// When its first byte was sent.
    pub sent: Nanos,
    /// How often it was sent again.
    pub retries: u8,
    /// The user who sends it (closed loop).
    pub user: u32,
    /// Failures in a row of this user.
    pub failures_in_a_row: u32,
}

impl Request {
    /// A request that is due.
    pub fn new(path: usize, index: u64, intended: Nanos) -> Self {
        Self {
            path,
            index,
            intended,
            sent: intended,
            retries: 0,
            user: 0,
            failures_in_a_row: 0,
        }
    }
}

/// What one request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Object<'a> {
    /// Its path.
    pub path: &'a str,
    /// Length of the whole object, where it is known.
    pub bytes: Option<u64>,
    /// The part that is asked for; none for all of it.
    pub range: Option<ByteRange>,
}

/// How far a request came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reached {
    /// Whether it was sent.
    pub sent: bool,
    /// When its response began, 0 when it did not.
    pub first_byte: Nanos,
}

impl Reached {
    /// It never got a connection that could carry it.
    pub const NOT_SENT: Self = Self {
        sent: false,
        first_byte: 0,
    };
}

/// The bytes that all requests of a class share.
#[derive(Debug)]
pub struct Template {
    before_path: String,
    after_path: String,
}

impl Template {
    /// The template of a class. Headers of the plan replace the probe's own.
    pub fn new(class: &Class, target: &Target) -> Self {
        let mut after_path = String::from(" HTTP/1.1\r\n");
        let mut header = |name: &str, value: &str| {
            for part in [name, ": ", value, "\r\n"] {
                after_path.push_str(part);
            }
        };
        let agent = concat!("nginx-tune-probe/", env!("CARGO_PKG_VERSION"));
        for (name, value) in [
            ("Host", target.host.as_str()),
            ("User-Agent", agent),
            ("Accept", "*/*"),
        ] {
            if !class
                .headers
                .keys()
                .any(|own| own.eq_ignore_ascii_case(name))
            {
                header(name, value);
            }
        }
        for (name, value) in &class.headers {
            header(name, value);
        }
        Self {
            before_path: format!("{} ", class.method.text()),
            after_path,
        }
    }

    /// Writes the request for an object over `buffer`; the last one of a connection says so.
    pub fn render(&self, object: &Object<'_>, last: bool, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.extend_from_slice(self.before_path.as_bytes());
        buffer.extend_from_slice(object.path.as_bytes());
        buffer.extend_from_slice(self.after_path.as_bytes());
        if let Some(ByteRange { first, last }) = object.range {
            // Into a vector: cannot fail.
            let _ = write!(buffer, "Range: bytes={first}-{last}\r\n");
        }
        if last {
            buffer.extend_from_slice(b"Connection: close\r\n");
        }
        buffer.extend_from_slice(b"\r\n");
    }
}
