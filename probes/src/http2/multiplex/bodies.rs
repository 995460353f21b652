//! Parts of bodies, and the windows that they use up (RFC 9113 §5.2, §6.9).

use super::Multiplex;
use crate::clock::{NEVER, Nanos};
use crate::http2::fault::Fault;
use crate::http2::frame::LONGEST_BYTES;
use crate::http2::windows::Window;
use crate::protocol::Ended;

impl Multiplex {
    /// Processes a part of a body.
    pub(super) fn body(
        &mut self,
        number: u32,
        bytes: &[u8],
        counted: usize,
        end: bool,
        now: Nanos,
        ended: &mut Vec<Ended>,
    ) -> Result<(), Fault> {
        if !self.is_settled || self.block.is_some() || !self.was_opened(number) {
            return Err(Fault::Protocol);
        }
        if bytes.is_empty() && !end {
            self.count_idle()?;
        } else {
            self.idle_frames = 0;
        }
        let counted = counted as u32;
        self.window.take(counted, now)?;
        let is_short = |window: &Window| counted > 0 && window.is_short(LONGEST_BYTES as u32);
        self.tally.window_stalls += u64::from(is_short(&self.window));
        if let Some(taken) = self.window.give_back() {
            self.tell_window(0, taken);
        }
        let Some(place) = self.place(number) else {
            // It was in flight when the request was given up.
            return Ok(());
        };
        let stream = &mut self.streams[place];
        stream.window.take(counted, now)?;
        stream.exchange.came(now);
        if stream.exchange.response.take_body(bytes).is_err() {
            return Err(Fault::Protocol);
        }
        if end {
            self.end(place, ended);
            return Ok(());
        }
        self.tally.window_stalls += u64::from(is_short(&stream.window));
        if let Some(taken) = stream.window.give_back() {
            self.tell_window(number, taken);
        }
        Ok(())
    }

    /// Enlarges the windows of slow clients by what their pace allows now; returns the time of the
    /// next enlargement.
    pub(super) fn pace_windows(&mut self, now: Nanos) -> Nanos {
        if !self.are_paced {
            return NEVER;
        }
        let (more, mut next) = self.window.pace(now);
        if more > 0 {
            self.tell_window(0, more);
        }
        for place in 0..self.streams.len() {
            let stream = &mut self.streams[place];
            let (more, moment) = stream.window.pace(now);
            next = next.min(moment);
            if more > 0 {
                let number = stream.number;
                self.tell_window(number, more);
            }
        }
        next
    }
}
