//! The WebSockets of a class, if it has any: which of what becomes of them is measured.

use super::Recorder;
use crate::clock::Nanos;
use crate::websocket::{Channel, End};

impl Recorder {
    /// Takes note of the messages that have come on a WebSocket.
    pub fn note_messages(&mut self, channel: &mut Channel, now: Nanos) {
        let (news, gap) = channel.take_news(now);
        let counts = self.window.contains(&now);
        if let Some(tally) = self.websockets.as_mut().filter(|_| counts) {
            tally.note(&news, gap);
            self.stray += news.unasked;
        }
    }

    /// A WebSocket that stood has ended, and not by the run's end.
    pub fn websocket_ended(&mut self, end: End, now: Nanos) {
        if !self.window.contains(&now) {
            return;
        }
        if let Some(tally) = &mut self.websockets {
            tally.ended(end);
        }
    }

    /// The run is over for a WebSocket.
    pub fn cut_websocket(&mut self, channel: &Channel) {
        if let (Some(tally), Some(silence)) =
            (&mut self.websockets, channel.silence(self.window.end))
        {
            tally.was_cut(silence);
        }
    }
}
