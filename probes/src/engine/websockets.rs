//! Messages over WebSockets: what their connections need besides what streams do.

use super::Engine;
use crate::carrier::Carrier;
use crate::clock::Nanos;
use crate::failure::Failure;
use crate::websocket::Channel;

impl Engine<'_> {
    fn channel(&mut self, slot: u32) -> Option<(usize, &mut Channel)> {
        let connection = self.slots[slot as usize].connection.as_mut()?;
        match &mut connection.carried {
            Some(Carrier::WebSocket(channel)) => Some((connection.class, channel)),
            _ => None,
        }
    }

    /// A message was given to a connection: it counts as bytes that are sent.
    pub(super) fn count_message(&mut self, index: usize) {
        if let Some(plan) = self.classes[index].plan.websocket {
            let now = self.clock.now();
            self.count_sent(index, plan.message_bytes, now);
        }
    }

    /// The socket has taken of what was to be sent: there may be room for messages that wait.
    pub(super) fn go_on_with_messages(&mut self, slot: u32) {
        let Some((index, channel)) = self.channel(slot) else {
            return;
        };
        if channel.known.has_room || !channel.has_room() {
            return;
        }
        channel.known.has_room = true;
        if let Some(carriers) = &mut self.classes[index].carriers {
            carriers.put(slot);
        }
        self.proceed(index);
    }

    /// Takes note of the messages that have come on a connection.
    pub(super) fn note_messages(&mut self, slot: u32, now: Nanos) {
        let Some(connection) = &mut self.slots[slot as usize].connection else {
            return;
        };
        if let Some(Carrier::WebSocket(channel)) = &mut connection.carried {
            let recorder = &mut self.classes[connection.class].recorder;
            recorder.note_messages(channel, now);
        }
    }

    /// The server refused the opening.
    pub(super) fn refuse(&mut self, slot: u32, status: u16) {
        if let Some((index, _)) = self.channel(slot) {
            if let Some(tally) = &mut self.classes[index].recorder.websockets {
                tally.refused(status);
            }
        }
        self.lose_carrier(slot, Failure::Upgrade);
    }

    /// A WebSocket has ended that stood; what that is for the messages that were on their way. Of other
    /// connections the failure stays what it is.
    pub(super) fn end_websocket(&mut self, slot: u32, failure: Failure) -> Failure {
        let now = self.clock.now();
        let Some((index, channel)) = self.channel(slot) else {
            return failure;
        };
        let end = channel.end(failure);
        self.classes[index].recorder.websocket_ended(end, now);
        match failure {
            Failure::Empty | Failure::Reset => Failure::Closed,
            other => other,
        }
    }

    /// A WebSocket on which nothing is answered is about to be left.
    pub(super) fn note_silent(&mut self, slot: u32) {
        let now = self.clock.now();
        let Some((index, channel)) = self.channel(slot) else {
            return;
        };
        if let Some(end) = channel.is_silent() {
            self.classes[index].recorder.websocket_ended(end, now);
        }
    }
}
