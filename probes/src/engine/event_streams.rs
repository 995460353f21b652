//! Bodies that are watched while they come: what each look finds of them, and their end with the
//! measured time.

use super::Engine;
use crate::clock::Nanos;
use crate::connection::Phase;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::sys;

impl Engine<'_> {
    /// Tells the classes with watched bodies what the clock of their events shows.
    pub(super) fn tell_clock(&mut self) {
        let origin = sys::monotonic().saturating_sub(self.clock.now());
        for class in &mut self.classes {
            if let Some(tally) = &mut class.recorder.event_streams {
                tally.clock_origin = origin;
            }
        }
    }

    /// Ends the watched bodies that are under way once the measured time is over. Those that have
    /// not begun get the time of all that is unfinished, and end as they begin.
    pub(super) fn cut_event_streams(&mut self, now: Nanos) {
        if now < self.stop_at {
            return;
        }
        for slot in 0..self.slots.len() as u32 {
            let Some(connection) = &mut self.slots[slot as usize].connection else {
                continue;
            };
            let index = connection.class;
            if self.classes[index].plan.event_stream.is_none() {
                continue;
            }
            if let Some(carried) = &mut connection.carried {
                let given_up = carried.give_up(Exchange::has_begun);
                if !given_up.is_empty() {
                    self.unflushed.push(slot);
                }
                for mut exchange in given_up {
                    self.classes[index].in_flight -= 1;
                    self.cut(index, &mut exchange, now);
                }
            } else if connection.phase == Phase::Busy && connection.exchange.has_begun() {
                let begun = &mut connection.exchange;
                let mut exchange = std::mem::replace(begun, Exchange::new(begun.request));
                self.classes[index].in_flight -= 1;
                self.close(slot);
                self.cut(index, &mut exchange, now);
            }
        }
    }

    /// A watched body was cut off; it was good as far as it went, unless its head was not.
    fn cut(&mut self, index: usize, exchange: &mut Exchange, now: Nanos) {
        let class = &mut self.classes[index];
        let request = exchange.request;
        let status = exchange.response.status();
        class.recorder.answered(&request, status);
        if class.plan.status.contains(&status) {
            class.recorder.cut_body(exchange, now);
            class.release(&request);
        } else {
            class
                .recorder
                .close_body(exchange, Some(Failure::Status), now);
            class.failed(&request, exchange.reached(), Failure::Status, now);
        }
    }
}
