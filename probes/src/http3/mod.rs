//! HTTP/3 on the client side: takes datagrams and returns ended exchanges, without sockets (RFC
//! 9114, 9204).
//!
//! QUIC is quinn-proto, which has neither sockets nor threads. The layer above it is here, with
//! only what a load client needs: it sends nothing compressed, offers no dynamic table and accepts
//! no pushes.

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

/// The ALPN name of the protocol (RFC 9114 §3.1).
const ALPN: &[u8] = b"h3";
