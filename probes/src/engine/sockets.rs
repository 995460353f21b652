//! The connections of an engine, what the poller tells of each, and when each is to be looked at again.

use std::io;

use super::acknowledge::Unacknowledged;
use crate::alarms::Alarms;
use crate::clock::{NEVER, Nanos};
use crate::connection::{Connection, Phase};
use crate::protocol::Protocol as _;
use crate::sys::{EDGE, Event, PEER_CLOSED, Poller, READABLE, WRITABLE};

/// What a connection is watched for, each change reported once. A request that the socket does
/// not take at once is rare and waits for `WRITABLE`.
const ANSWERS: u32 = READABLE | PEER_CLOSED | EDGE;

/// The connections.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) poller: Poller,
    slots: Vec<Slot>,
    free: Vec<u32>,
    /// Connections on which more may have come than was read.
    pub(super) unread: Vec<Event>,
    /// Connections that have something to send.
    pub(super) unflushed: Vec<u32>,
    /// When connections are to be woken.
    pub(super) alarms: Alarms,
    pub(super) unacknowledged: Unacknowledged,
}

/// A place for a connection. The generation tells events of an earlier tenant.
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

    /// Gives a connection a place.
    pub(super) fn insert(&mut self, connection: Connection) -> u32 {
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize].connection = Some(connection);
        slot
    }

    /// Takes a connection out of its place, which is free for another.
    pub(super) fn remove(&mut self, slot: u32) -> Option<Connection> {
        let place = &mut self.slots[slot as usize];
        let connection = place.connection.take()?;
        place.generation = place.generation.wrapping_add(1);
        self.free.push(slot);
        Some(connection)
    }

    /// What the poller tells of a connection: its place, and which tenant of the place it is.
    pub(super) fn token(&self, slot: u32) -> u64 {
        u64::from(self.slots[slot as usize].generation) << 32 | u64::from(slot)
    }

    /// The places, empty ones too.
    pub(super) fn places(&self) -> std::ops::Range<u32> {
        0..self.slots.len() as u32
    }

    pub(super) fn get(&mut self, slot: u32) -> Option<&mut Connection> {
        self.slots[slot as usize].connection.as_mut()
    }

    /// The connection of a token, if it is still there.
    pub(super) fn find(&mut self, token: u64) -> Option<&mut Connection> {
        self.slots
            .get_mut(token as u32 as usize)
            .filter(|place| place.generation == (token >> 32) as u32)?
            .connection
            .as_mut()
    }

    /// Has the poller tell what a connection waits for.
    ///
    /// # Errors
    /// Of epoll.
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

    /// Takes note when a connection is to be woken, whatever comes.
    pub(super) fn set_alarm(&mut self, slot: u32) {
        let token = self.token(slot);
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
            return;
        };
        // An alarm that rings too early is set again then: most are put off with every packet.
        let moment = connection.spoken.moment();
        if moment < connection.alarm {
            connection.alarm = moment;
            self.alarms.push(moment, token);
        }
    }

    /// The next connection that is to be woken by now.
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

    /// Acknowledges what bodies that stand still may wait for.
    pub(super) fn acknowledge(&mut self, now: Nanos) {
        while let Some((token, since)) = self.unacknowledged.take_due(now) {
            let connection = self.find(token).filter(|it| it.still_waits(since));
            if let Some(connection) = connection {
                connection.socket.acknowledge();
            }
        }
    }

    /// The next moment at which one is to be looked at without an event.
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
