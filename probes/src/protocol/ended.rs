//! The ends of exchanges.

use crate::exchange::Exchange;
use crate::failure::Failure;

/// The end of an exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A complete response.
    Whole,
    /// A failure.
    Failed(Failure),
    /// No response, since the server had closed the idle connection; the request is sent again on a
    /// new one.
    Stale,
    /// Refused before processing; the request may be sent again.
    Refused,
    /// Not processed, since the server accepts no more on this connection; the request is sent
    /// again on another.
    Unseen,
}

/// An exchange that has ended.
#[derive(Debug)]
pub struct Ended {
    /// Request and response.
    pub exchange: Exchange,
    /// Its end.
    pub end: End,
}

/// The failure of a request whose connection or stream ended early: `Truncated` if its response had
/// begun, else `otherwise`.
pub fn cut_short(exchange: &Exchange, otherwise: Failure) -> Failure {
    if exchange.response.has_started() {
        Failure::Truncated
    } else {
        otherwise
    }
}
