//! The writing of requests, and the reading pace of a client.

use std::io::Write as _;

use super::trickle::Trickle;
use crate::error::Error;
use crate::plan::{ByteRange, Plan};
use crate::request::{Object, USER_AGENT};
use crate::tls;

/// The ALPN name of the protocol (RFC 7301 §6).
const ALPN: &[u8] = b"http/1.1";

/// The state that the connections of a class share.
#[derive(Debug)]
pub struct Client {
    pub(crate) tls: Option<tls::Client>,
    pub(super) trickle: Option<Trickle>,
    before_path: String,
    after_path: String,
}

impl Client {
    /// The client of a class. Headers of the plan replace the probe's own.
    ///
    /// # Errors
    /// `Error::Plan` if its certificates cannot be read.
    pub fn new(plan: &Plan, index: usize) -> Result<Self, Error> {
        let class = &plan.classes[index];
        let target = plan.target_of(class);
        let mut after_path = String::from(" HTTP/1.1\r\n");
        let mut header = |name: &str, value: &str| {
            for part in [name, ": ", value, "\r\n"] {
                after_path.push_str(part);
            }
        };
        for (name, value) in [
            ("Host", target.host.as_str()),
            ("User-Agent", USER_AGENT),
            ("Accept", "*/*"),
        ] {
            let mut own = class.headers.keys();
            if !own.any(|own| own.eq_ignore_ascii_case(name)) {
                header(name, value);
            }
        }
        for (name, value) in &class.headers {
            header(name, value);
        }
        Ok(Self {
            tls: tls::Client::of(target, ALPN)?,
            trickle: class.read_bytes_per_second.map(Trickle::new),
            before_path: format!("{} ", class.method.text()),
            after_path,
        })
    }

    /// Writes the request for an object into `buffer`; the last one of a connection says
    /// `Connection: close`.
    pub fn render(&self, object: &Object<'_>, is_last: bool, buffer: &mut Vec<u8>) {
        buffer.clear();
        buffer.extend_from_slice(self.before_path.as_bytes());
        buffer.extend_from_slice(object.path.as_bytes());
        buffer.extend_from_slice(self.after_path.as_bytes());
        if let Some(ByteRange { first, last }) = object.range {
            // Writing to a vector cannot fail.
            let _ = write!(buffer, "Range: bytes={first}-{last}\r\n");
        }
        if is_last {
            buffer.extend_from_slice(b"Connection: close\r\n");
        }
        buffer.extend_from_slice(b"\r\n");
    }
}
