//! How streams end, and what a class knows of a connection that has some.

use crate::exchange::Exchange;
use crate::failure::Failure;

/// What a class knows of one of its connections.
#[derive(Debug, Clone, Copy, Default)]
pub struct Known {
    /// It is among those with room.
    pub has_room: bool,
    /// The server takes no more on it: another is opened in its place.
    pub is_leaving: bool,
}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// With its response.
    Whole,
    /// Otherwise.
    Failed(Failure),
    /// The server refused it unseen: it may be sent again.
    Refused,
    /// The server looks at no more on this connection: it is to be sent again on another.
    Unseen,
}

/// A stream that ended.
#[derive(Debug)]
pub struct Ended {
    /// What it carried.
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
