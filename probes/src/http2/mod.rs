//! HTTP/2 on the client side: takes bytes and returns ended exchanges, without sockets or clocks
//! (RFC 9113, 7541).
//!
//! Written by hand: `h2` needs an async runtime, which does not fit a schedule, and no maintained
//! crate has only the header compression, with bounds. The module has only what a load client
//! needs; it sends nothing compressed.

mod client;
mod fault;
mod frame;
mod hpack;
mod manner;
mod multiplex;
mod windows;

pub use self::client::Client;
pub use self::multiplex::Multiplex;

/// The ALPN name of the protocol (RFC 9113 §3.2).
const ALPN: &[u8] = b"h2";
