//! Parts of bodies, and the windows that they fill (RFC 9113 §5.2, §6.9).

use std::mem;

use super::Multiplex;
use crate::clock::Nanos;
use crate::http2::fault::Fault;
use crate::http2::frame::LONGEST_BYTES;
use crate::multiplexed::Ended;

impl Multiplex {
    /// A part of a body.
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
        self.taken_bytes += counted;
        let connection_window = self.plan.connection_window_bytes;
        if self.taken_bytes > connection_window {
            return Err(Fault::FlowControl);
        }
        let left = connection_window - self.taken_bytes;
        self.tally.window_stalls += u64::from(counted > 0 && (left as usize) < LONGEST_BYTES);
        if self.taken_bytes >= connection_window / 2 {
            let taken = mem::take(&mut self.taken_bytes);
            self.tell_window(0, taken);
        }
        let Some(place) = self.place(number) else {
            // What was on its way when the request was given up.
            return Ok(());
        };
        let stream = &mut self.streams[place];
        stream.taken_bytes += counted;
        let stream_window = self.plan.stream_window_bytes;
        if stream.taken_bytes > stream_window {
            return Err(Fault::FlowControl);
        }
        stream.exchange.came(now);
        if stream.exchange.response.take_body(bytes).is_err() {
            return Err(Fault::Protocol);
        }
        if end {
            self.end(place, ended);
            return Ok(());
        }
        let left = stream_window - stream.taken_bytes;
        self.tally.window_stalls += u64::from(counted > 0 && (left as usize) < LONGEST_BYTES);
        if stream.taken_bytes >= stream_window / 2 {
            let taken = mem::take(&mut stream.taken_bytes);
            self.tell_window(number, taken);
        }
        Ok(())
    }
}
