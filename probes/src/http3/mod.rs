//! HTTP/3 as a client speaks it: datagrams in, ended exchanges out; no socket (RFC 9114, 9204).
//!
//! QUIC is quinn-proto's, which has neither sockets nor threads. What is above it is here, and only what
//! a client needs that draws no pages: it sends nothing compressed, gives no table and takes no pushes.

mod answer;
mod client;
mod fault;
mod frame;
mod incoming;
mod multiplex;
mod qpack;
mod quic;

pub use self::client::Client;
pub use self::multiplex::Multiplex;

/// The name of the protocol (RFC 9114 §3.1).
const ALPN: &[u8] = b"h3";
