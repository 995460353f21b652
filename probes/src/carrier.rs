//! What makes a connection carry many requests at once: HTTP/2 or HTTP/3.

use crate::clock::{NEVER, Nanos};
use crate::exchange::Exchange;
use crate::http2::Manner;
use crate::multiplexed::{Known, Tally};
use crate::{http2, http3};

/// The streams of a connection.
#[derive(Debug)]
pub enum Carrier {
    /// Over TCP.
    Http2(Box<http2::Multiplex>),
    /// Over QUIC.
    Http3(Box<http3::Multiplex>),
}

/// The same of all.
macro_rules! all {
    ($own:expr, $streams:ident => $what:expr) => {
        match $own {
            Carrier::Http2($streams) => $what,
            Carrier::Http3($streams) => $what,
        }
    };
}

impl Carrier {
    /// Whether the server has said how it wants to speak, so that requests can be sent.
    pub fn is_settled(&self) -> bool {
        all!(self, streams => streams.is_settled())
    }

    /// Whether one more request can be sent.
    pub fn has_room(&self) -> bool {
        all!(self, streams => streams.has_room())
    }

    /// Whether the server takes no more on it.
    pub fn is_leaving(&self) -> bool {
        all!(self, streams => streams.is_leaving())
    }

    /// Whether it will carry nothing any more.
    pub fn is_done(&self) -> bool {
        all!(self, streams => streams.is_done())
    }

    /// Whether something may be to be sent.
    pub fn has_unsent(&self) -> bool {
        all!(self, streams => streams.has_unsent())
    }

    /// What was counted of its streams.
    pub fn tally(&self) -> Tally {
        all!(self, streams => streams.tally())
    }

    /// What was counted beneath them, of QUIC.
    pub fn traffic(&self) -> Option<http3::Traffic> {
        match self {
            Self::Http2(_) => None,
            Self::Http3(streams) => Some(streams.traffic()),
        }
    }

    /// What its class knows of it.
    pub fn known(&self) -> Known {
        all!(self, streams => streams.known)
    }

    /// The same, to be changed.
    pub fn known_mut(&mut self) -> &mut Known {
        all!(self, streams => &mut streams.known)
    }

    /// Sends a request whose header block this is; only of HTTP/2 it is said how to answer it.
    pub fn open(&mut self, exchange: Exchange, block: &[u8], manner: Option<&Manner>) {
        match (self, manner) {
            (Self::Http2(streams), Some(manner)) => streams.open(exchange, block, manner),
            (Self::Http3(streams), _) => streams.open(exchange, block),
            (Self::Http2(_), None) => debug_assert!(false, "a class of HTTP/2 has one"),
        }
    }

    /// Gives back of the windows of slow clients what their pace gives now; when that gives more.
    pub fn pace_windows(&mut self, now: Nanos) -> Nanos {
        match self {
            Self::Http2(streams) => streams.pace_windows(now),
            Self::Http3(_) => NEVER,
        }
    }

    /// Gives up the exchanges of which `is_due` says so, and tells the server.
    pub fn give_up(&mut self, is_due: impl Fn(&Exchange) -> bool) -> Vec<Exchange> {
        all!(self, streams => streams.give_up(is_due))
    }

    /// Takes all that was under way: the connection is gone.
    pub fn take_all(&mut self) -> Vec<Exchange> {
        all!(self, streams => streams.take_all())
    }

    /// What is under way.
    pub fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        let (two, three) = match self {
            Self::Http2(streams) => (Some(streams.exchanges()), None),
            Self::Http3(streams) => (None, Some(streams.exchanges())),
        };
        two.into_iter().flatten().chain(three.into_iter().flatten())
    }

    /// The same, to take note of what has come.
    pub fn exchanges_mut(&mut self) -> impl Iterator<Item = &mut Exchange> {
        let (two, three) = match self {
            Self::Http2(streams) => (Some(streams.exchanges_mut()), None),
            Self::Http3(streams) => (None, Some(streams.exchanges_mut())),
        };
        two.into_iter().flatten().chain(three.into_iter().flatten())
    }
}
