//! The watched bodies of a class, if it has any: which of what they do is measured.

use super::Recorder;
use crate::clock::Nanos;
use crate::event_stream::BodyEnd;
use crate::exchange::Exchange;
use crate::failure::Failure;

impl Recorder {
    /// Takes what has come of a watched body by now.
    pub fn note_piece(&mut self, exchange: &mut Exchange, now: Nanos) {
        let Some(watch) = exchange.response.watch() else {
            return;
        };
        let intended = exchange.request.intended;
        let intended = self.measures(intended).then_some(intended);
        let counts = self.window.contains(&now);
        if let Some(tally) = &mut self.event_streams {
            tally.note(watch, now, intended, counts);
        }
    }

    /// A request is over; `failure` is what is wrong with it.
    pub fn close_body(&mut self, exchange: &Exchange, failure: Option<Failure>, now: Nanos) {
        self.close_upload(exchange, failure);
        if !exchange.has_begun() {
            return;
        }
        let counts = self.window.contains(&now);
        let end = match failure {
            None => BodyEnd::Whole,
            Some(Failure::Truncated | Failure::Reset | Failure::Empty) => BodyEnd::Early,
            Some(_) => BodyEnd::Other,
        };
        if let Some(tally) = &mut self.event_streams {
            tally.ended(end, counts);
        }
    }

    /// The probe cut a body off that had begun: it is over, and no failure.
    pub fn cut_body(&mut self, exchange: &mut Exchange, now: Nanos) {
        let request = exchange.request;
        let end = self.window.end;
        let Some(watch) = exchange.response.watch() else {
            return;
        };
        let silence = watch.silence(end);
        // A body that began only after the measured time is none of it.
        let counts = watch.began() < end;
        if let Some(tally) = &mut self.event_streams {
            tally.was_cut(silence, counts);
        }
        if self.measures(request.intended) {
            let took = exchange.first_byte.saturating_sub(request.intended);
            self.latencies.ttfb.record(took);
        }
        self.series.roll(now);
    }

    /// A request that is measured is given up at this age before its body began.
    pub(super) fn body_not_begun(&mut self, age: Nanos) {
        if let Some(tally) = &mut self.event_streams {
            tally.not_begun(age);
        }
    }
}
