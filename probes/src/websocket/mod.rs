//! WebSockets over HTTP/1.1 (RFC 6455): messages are sent, and each awaits its echo.
//!
//! Framed by hand and not by a crate: those that are well kept gather a message whole before they hand
//! it out, while here each piece is compared as it comes and dropped, so that neither a long message
//! nor a hostile server costs memory; and which byte of an echo came first, and when, is what is
//! measured.

mod channel;
mod fault;
mod frame;
mod handshake;
mod message;
mod news;
mod tally;

use std::hash::{BuildHasher as _, RandomState};

pub use self::channel::Channel;
pub use self::fault::Fault;
pub use self::handshake::Opening;
pub use self::news::{News, Over};
pub use self::tally::{End, Tally};

/// A number that nobody foresees: the keys of the standard's maps are drawn from the kernel, and each
/// hasher has its own.
pub(crate) fn entropy() -> u64 {
    RandomState::new().hash_one(0)
}
