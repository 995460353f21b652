//! HTTP/2 as a client speaks it: bytes in, ended exchanges out; no socket, no clock (RFC 9113, 7541).
//!
//! By hand: what needs a runtime of its own (`h2`) does not fit under a schedule, and no crate has the
//! header compression alone, bounded and kept up. Only what a
//! client needs that has no pages to draw is here: it sends nothing compressed.

mod client;
mod fault;
mod frame;
mod hpack;
mod manner;
mod multiplex;
mod windows;

pub use self::client::Client;
pub use self::multiplex::Multiplex;

/// The name of the protocol over TLS (RFC 9113 §3.2).
const ALPN: &[u8] = b"h2";
