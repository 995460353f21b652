//! Connections of QUIC that change the port they come from: another socket in the place of theirs.

use std::io;

use super::traffic::ANSWERS;
use super::{Engine, find, token};
use crate::carrier::Carrier;
use crate::clock::{NEVER, Nanos};
use crate::connection::Connection;
use crate::failure::Failure;
use crate::http3::Multiplex;
use crate::sys;

impl Engine<'_> {
    /// A connection stands: says when it changes its port first, each at a moment of its own.
    pub(super) fn begin_moving(&mut self, slot: u32) {
        let place = &mut self.slots[slot as usize];
        let token = token(slot, place.generation);
        let Some(connection) = &mut place.connection else {
            return;
        };
        let class = &self.classes[connection.class];
        let fraction = class.moving.fraction(class.recorder.connections_opened);
        if let Some(streams) = streams(connection) {
            let moment = streams.begin_moving(fraction, self.clock.now());
            if moment != NEVER {
                self.moves.push(moment, token);
            }
        }
    }

    /// Changes the ports of connections for which it is time, and gives up those that a server did not
    /// follow: where it knows nothing of a connection at its new port it may be silent for ever.
    pub(super) fn migrate(&mut self, now: Nanos) {
        while let Some(token) = self.moves.take_due(now) {
            if find(&self.slots, token).is_none() {
                continue;
            }
            let slot = token as u32;
            let Some(connection) = &mut self.slots[slot as usize].connection else {
                continue;
            };
            let timeout = self.classes[connection.class].timeout;
            let Some(streams) = streams(connection) else {
                continue;
            };
            let since = streams.unfollowed_since();
            if since.is_some_and(|since| since.saturating_add(timeout) <= now) {
                streams.give_up_moving();
                let why = "after a change of port: no answer any more";
                self.quic_fault.get_or_insert_with(|| why.into());
                self.lose_carrier(slot, Failure::Empty);
                continue;
            }
            if !streams.moves_by(now) || now >= self.stop_at {
                continue;
            }
            let can_move = streams.can_move();
            let next = streams.put_off_moving(now);
            if next != NEVER {
                self.moves.push(next, token);
            }
            // Where there is no port for it the connection stays as it is.
            if can_move && self.change_port(slot, now).is_ok() {
                self.moves.push(now.saturating_add(timeout), token);
            }
        }
    }

    /// Gives a connection another socket, and so another port.
    fn change_port(&mut self, slot: u32, now: Nanos) -> io::Result<()> {
        let place = &self.slots[slot as usize];
        let token = token(slot, place.generation);
        let Some(class) = place.connection.as_ref().map(|it| it.class) else {
            return Ok(());
        };
        let (stream, _) = self.connect(class)?;
        self.poller.add(&stream, token, ANSWERS)?;
        let Some(connection) = &mut self.slots[slot as usize].connection else {
            return Ok(());
        };
        let dropped = sys::dropped_datagrams(&connection.stream).unwrap_or(0);
        let is_let = streams(connection).is_none_or(|it| it.change_port(dropped, now));
        if !is_let {
            let why = "the server lets no connection migrate (disable_active_migration)";
            self.quic_fault.get_or_insert_with(|| why.into());
            return Ok(());
        }
        // The old socket is closed by that, and with it what was on its way there.
        connection.stream = stream;
        connection.has_rest = false;
        self.unflushed.push(slot);
        Ok(())
    }
}

fn streams(connection: &mut Connection) -> Option<&mut Multiplex> {
    match &mut connection.carried {
        Some(Carrier::Http3(streams)) => Some(streams),
        _ => None,
    }
}
