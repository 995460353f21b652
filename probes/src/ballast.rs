//! Idle connections, which stay open without requests so that the server has to hold them. If the
//! server closes one, it is counted and opened again.

use std::io::Read as _;
use std::net::TcpStream;

use crate::clock::{MILLISECOND, NEVER, Nanos};
use crate::plan::Target;
use crate::socket::introduce;
use crate::sys::{Event, PEER_CLOSED, Poller, READABLE, WRITABLE};

/// The bit that marks tokens of idle connections; tokens of other connections never reach it.
pub const TOKEN: u64 = 1 << 31;

/// The most concurrent handshakes: more would overflow the server's accept queue.
pub const MOST_HANDSHAKES: usize = 32;

/// The pause after a connection was refused or closed; it doubles with each failure in a row.
pub const FIRST_PAUSE: Nanos = 10 * MILLISECOND;

/// The most doublings of the pause.
pub const MOST_DOUBLINGS: u32 = 6;

/// The idle connections of a run.
#[derive(Debug)]
pub struct Ballast {
    places: Vec<Place>,
    /// Indices of places without a connection.
    vacant: Vec<u32>,
    handshakes: usize,
    failures_in_a_row: u32,
    /// The earliest time to open another connection.
    next_try: Nanos,
    /// The counts so far.
    pub tally: Tally,
}

#[derive(Debug)]
enum Place {
    Vacant,
    Connecting(TcpStream),
    Idle(TcpStream),
}

/// Counts of the idle connections.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requested connections.
    pub wanted: u64,
    /// Connections open at the end.
    pub open: u64,
    /// Connections closed by the server.
    pub lost: u64,
    /// Failed attempts to open a connection.
    pub failed: u64,
}

impl Tally {
    /// Adds the counts of another thread.
    pub fn add(&mut self, other: Self) {
        self.wanted += other.wanted;
        self.open += other.open;
        self.lost += other.lost;
        self.failed += other.failed;
    }
}

impl Ballast {
    /// A set of `count` connections, none of them open yet.
    pub fn new(count: usize) -> Self {
        Self {
            places: (0..count).map(|_| Place::Vacant).collect(),
            vacant: (0..count as u32).rev().collect(),
            handshakes: 0,
            failures_in_a_row: 0,
            next_try: 0,
            tally: Tally {
                wanted: count as u64,
                ..Tally::default()
            },
        }
    }

    /// The earliest time to open another connection.
    pub fn next_moment(&self) -> Nanos {
        if self.vacant.is_empty() || self.handshakes >= MOST_HANDSHAKES {
            NEVER
        } else {
            self.next_try
        }
    }

    /// Opens the missing connections with `connect`.
    pub fn fill(
        &mut self,
        now: Nanos,
        poller: &Poller,
        mut connect: impl FnMut() -> std::io::Result<TcpStream>,
    ) {
        while now >= self.next_moment() {
            let Some(place) = self.vacant.pop() else {
                return;
            };
            let token = TOKEN | u64::from(place);
            let opened = connect().and_then(|stream| {
                poller.add(&stream, token, WRITABLE | READABLE | PEER_CLOSED)?;
                Ok(stream)
            });
            match opened {
                Ok(stream) => {
                    self.places[place as usize] = Place::Connecting(stream);
                    self.handshakes += 1;
                }
                Err(_) => self.fail(place, now),
            }
        }
    }

    /// Handles an event of an idle connection.
    pub fn handle(&mut self, event: Event, now: Nanos, poller: &Poller, target: &Target) {
        let place = (event.token & !TOKEN) as u32;
        match std::mem::replace(&mut self.places[place as usize], Place::Vacant) {
            Place::Vacant => {}
            Place::Connecting(mut stream) => {
                self.handshakes -= 1;
                let settled = matches!(stream.take_error(), Ok(None))
                    && target
                        .proxy_protocol
                        .is_none_or(|it| introduce(&mut stream, it, &target.endpoint).is_ok())
                    && poller
                        .modify(&stream, event.token, READABLE | PEER_CLOSED)
                        .is_ok();
                if settled {
                    self.tally.open += 1;
                    self.failures_in_a_row = 0;
                    self.places[place as usize] = Place::Idle(stream);
                } else {
                    self.fail(place, now);
                }
            }
            Place::Idle(mut stream) => {
                // Even if the server sent bytes, the connection is of no further use.
                let _ = stream.read(&mut [0; 64]);
                self.tally.open -= 1;
                self.tally.lost += 1;
                self.pause(place, now);
            }
        }
    }

    fn fail(&mut self, place: u32, now: Nanos) {
        self.tally.failed += 1;
        self.pause(place, now);
    }

    fn pause(&mut self, place: u32, now: Nanos) {
        self.vacant.push(place);
        self.next_try = now + (FIRST_PAUSE << self.failures_in_a_row.min(MOST_DOUBLINGS));
        self.failures_in_a_row += 1;
    }
}
