//! The connections of an engine, the events to watch for on each, and the times to check them.

use std::io;

use super::acknowledge::Unacknowledged;
use crate::alarms::Alarms;
use crate::clock::{NEVER, Nanos};
use crate::connection::{Connection, Phase};
use crate::protocol::Protocol as _;
use crate::sys::{EDGE, Event, PEER_CLOSED, Poller, READABLE, WRITABLE};

/// The events of a connection, each change reported once. `WRITABLE` is watched only in the rare
/// case that the socket does not take a request at once.
const ANSWERS: u32 = READABLE | PEER_CLOSED | EDGE;

/// The connections.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) poller: Poller,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Connections on which more may have arrived than was read.
    pub(super) unread: Vec<Event>,
    /// Connections with something to send.
    pub(super) unflushed: Vec<u32>,
    /// Wake-up times of connections.
    pub(super) alarms: Alarms,
    pub(super) unacknowledged: Unacknowledged,
}

/// A slot for a connection. The generation distinguishes events of an earlier connection in it.
#[derive(Debug, Default)]
struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

impl Sockets {
    pub(super) fn new(poller: Poller) -> Self {
        Self {
            poller,
            slots: Vec::new(),
            free: Vec::new(),
            unread: Vec::new(),
            unflushed: Vec::new(),
            alarms: Alarms::default(),
            unacknowledged: Unacknowledged::default(),
        }
    }

    /// Puts a connection into a slot.
    pub(super) fn insert(&mut self, connection: Connection) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize].connection = Some(connection);
        slot
    }

    /// Takes a connection out of its slot, which is then free.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Connection> {
        let place = &mut self.slots[slot as usize];
        let connection = place.connection.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(slot);
        Some(connection)
    }

    /// The token of a connection for the poller: its slot and the slot's generation.
    pub(super) fn token(&self, slot: u32) -> u64 {
        (u64::from(self.slots[slot as usize].generation) << 32) | u64::from(slot)
    }

    /// All slots, including empty ones.
    pub(super) fn places(&self) -> std::ops::Range<u32> {
        0..self.slots.len() as u32
    }

    pub(super) fn get(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slots[slot as usize].connection.as_mut()
    }

    /// The connection of a token, if it still exists.
    pub(super) fn find(&mut self, token: u64) -> Option<&mut Connection> {
        self.slots
            .get_mut(token as u32 as usize)
            .filter(|place| place.generation == (token >> 32) as u32)?
            .connection
            .as_mut()
    }

    /// Has the poller report the events that a connection waits for.
    ///
    /// # Errors
    /// Those of epoll.
    pub(super) fn arm(&mut self, slot: u32) -> io::Result<()> {
        let token = self.token(slot);
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
            return Ok(());
        };
        let mut interest = if connection.spoken.reads() {
            ANSWERS
        } else {
            EDGE
        };
        if connection.socket.has_rest || connection.phase == Phase::Connecting {
            interest |= WRITABLE;
        }
        let before = std::mem::replace(&mut connection.interest, interest);
        let stream = &connection.socket.stream;
        match before {
            0 => self.poller.add(stream, token, interest),
            _ if before == interest => Ok(()),
            _ => self.poller.modify(stream, token, interest),
        }
    }

    /// Schedules the next wake-up of a connection.
    pub(super) fn set_alarm(&mut self, slot: u32) {
        let token = self.token(slot);
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
            return;
        };
        // A wake-up that comes too early is scheduled again then: most are postponed with every
        // packet.
        let moment = connection.spoken.moment();
        if moment < connection.alarm {
            connection.alarm = moment;
            self.alarms.push(moment, token);
        }
    }

    /// Takes the next connection to wake by `now`.
    pub(super) fn take_alarm(&mut self, now: Nanos) -> Option<u64> {
        while let Some(token) = self.alarms.take_due(now) {
            let Some(connection) = self.find(token) else {
                continue;
            };
            connection.alarm = NEVER;
            if connection.spoken.moment() <= now {
                return Some(token);
            }
            self.set_alarm(token as u32);
        }
        None
    }

    /// Sends acknowledgements for bodies that have made no progress.
    pub(super) fn acknowledge(&mut self, now: Nanos) {
        while let Some((token, since)) = self.unacknowledged.take_due(now) {
            let connection = self.find(token).filter(|it| it.still_waits(since));
            if let Some(connection) = connection {
                connection.socket.acknowledge();
            }
        }
    }

    /// The next time at which to check a connection without an event.
    pub(super) fn next_moment(&mut self) -> Nanos {
        let slots = &self.slots;
        let waits = |token: u64, since: Nanos| {
            let place = slots.get(token as u32 as usize);
            let place = place.filter(|place| place.generation == (token >> 32) as u32);
            let connection = place.and_then(|place| place.connection.as_ref());
            connection.is_some_and(|it| it.still_waits(since))
        };
        self.unacknowledged
            .next(waits)
            .min(self.alarms.next_moment())
    }
}
