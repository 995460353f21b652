//! How exchanges end.

use crate::exchange::Exchange;
use crate::failure::Failure;

/// How an exchange ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With its response.
    Whole,
    /// Otherwise.
    Failed(Failure),
    /// Not at all: its server had closed the idle connection. It is sent again on a new one.
    Stale,
    /// The server refused it unseen: it may be sent again.
    Refused,
    /// The server looks at no more on this connection: it is to be sent again on another.
    Unseen,
}

/// An exchange that ended.
#[derive(Debug)]
pub struct Ended {
    /// Request and response.
    pub exchange: Exchange,
    /// How it ended.
    pub end: End,
}

/// What an end before its time is for a request: of a response that had begun, a body cut short.
pub fn cut_short(exchange: &Exchange, otherwise: Failure) -> Failure {
    if exchange.response.has_started() {
        Failure::Truncated
    } else {
        otherwise
    }
}
