//! What the watched bodies of a class came to.

use super::{Piece, Watch};
use crate::clock::Nanos;
use crate::distribution::Distribution;

/// How a body that had begun ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    /// By itself, whole.
    Whole,
    /// Before its end: the connection was closed or reset inside, or its last text never came.
    Early,
    /// By the probe, with the measured time.
    Cut,
    /// Otherwise: another status, another length.
    Other,
}

/// Counts and distributions. What happens counts in the measured time in which it is seen, whenever
/// the body began; the time to a body's beginning counts as the request does.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Bodies that began.
    pub begun: u64,
    /// That ended whole.
    pub whole: u64,
    /// That ended early.
    pub early_ends: u64,
    /// That were under way when the measured time was over, and were cut off by the probe.
    pub cut: u64,
    /// Under way now.
    open: u64,
    /// Most that were under way at once, the warm-up included.
    pub most_open: u64,
    /// Pieces of bodies.
    pub pieces: u64,
    /// Events that said when they were sent.
    pub events: u64,
    /// Of these, those that said a time that was still to come: another host's clock.
    pub events_ahead: u64,
    /// From the intended start to the first byte of the body.
    pub first_body: Distribution,
    /// Between pieces of one body.
    pub gap: Distribution,
    /// From the time that an event says it was sent until it was read.
    pub event_delay: Distribution,
    /// The longest gap that has ended.
    longest: Nanos,
    /// What `CLOCK_MONOTONIC` showed when the run's clock began.
    pub clock_origin: Nanos,
}

impl Tally {
    /// Takes what has come of a body by now. `intended`: the start of a request that is measured;
    /// `counts`: the measured time is on.
    pub fn note(&mut self, watch: &mut Watch, now: Nanos, intended: Option<Nanos>, counts: bool) {
        let Some(Piece { gap, stamps }) = watch.take_piece(now) else {
            return;
        };
        if gap.is_none() {
            self.open += 1;
            self.most_open = self.most_open.max(self.open);
            self.begun += u64::from(counts);
            if let Some(intended) = intended {
                self.first_body.record(now.saturating_sub(intended));
            }
        }
        if !counts {
            return;
        }
        self.pieces += 1;
        if let Some(gap) = gap {
            self.gap.record(gap);
            self.longest = self.longest.max(gap);
        }
        for sent in stamps {
            self.events += 1;
            match (self.clock_origin + now).checked_sub(sent) {
                Some(delay) => self.event_delay.record(delay),
                None => self.events_ahead += 1,
            }
        }
    }

    /// A body ended that had begun.
    pub fn ended(&mut self, end: BodyEnd, counts: bool) {
        self.open -= self.open.min(1);
        if counts {
            self.early_ends += u64::from(end == BodyEnd::Early);
            self.whole += u64::from(end == BodyEnd::Whole);
        }
    }

    /// A body was cut off that had stood still for so long. That it would have gone on a moment
    /// later is no less likely than in any gap; a silence that is longer than all of these is told.
    pub fn was_cut(&mut self, silence: Nanos, counts: bool) {
        self.ended(BodyEnd::Cut, false);
        self.cut += u64::from(counts);
        if counts && silence > self.longest {
            self.gap.record_at_least(silence);
        }
    }

    /// A request that is measured has been due for so long, and no body has begun.
    pub fn not_begun(&mut self, age: Nanos) {
        self.first_body.record_at_least(age);
    }

    /// Adds what another thread saw.
    pub fn add(&mut self, other: &Self) {
        self.begun += other.begun;
        self.whole += other.whole;
        self.early_ends += other.early_ends;
        self.cut += other.cut;
        self.most_open += other.most_open;
        self.pieces += other.pieces;
        self.events += other.events;
        self.events_ahead += other.events_ahead;
        self.first_body.add(&other.first_body);
        self.gap.add(&other.gap);
        self.event_delay.add(&other.event_delay);
    }
}

#[cfg(test)]
mod tests {
    use super::{BodyEnd, Tally};
    use crate::event_stream::Watch;
    use crate::plan::EventStream;

    fn watch() -> Watch {
        Watch::new(&EventStream {
            stamp: Some("t=".into()),
            end: None,
        })
    }

    #[test]
    fn what_is_seen_counts_when_it_is_seen() {
        let mut tally = Tally {
            clock_origin: 1_000,
            ..Tally::default()
        };
        let mut watch = watch();
        watch.take(b"t=1 ", false);
        tally.note(&mut watch, 10, None, false);
        assert_eq!((tally.begun, tally.pieces, tally.events), (0, 0, 0));
        for (number, now) in [(2, 5_000_u64), (3, 9_000), (99_999, 9_500)] {
            watch.take(format!("t={number} ").as_bytes(), false);
            tally.note(&mut watch, now, None, true);
        }
        assert_eq!((tally.pieces, tally.events, tally.events_ahead), (3, 3, 1));
        assert_eq!(tally.gap.count(), 3);
        assert_eq!(tally.event_delay.max(), Some(9_997));
        tally.ended(BodyEnd::Whole, true);
        assert_eq!((tally.whole, tally.most_open, tally.early_ends), (1, 1, 0));
    }

    #[test]
    fn only_a_silence_longer_than_every_gap_is_told_of_a_cut_body() {
        let mut tally = Tally::default();
        let mut watch = watch();
        for now in [1_000_000, 3_000_000] {
            watch.take(b"x", false);
            tally.note(&mut watch, now, Some(0), true);
        }
        tally.was_cut(watch.silence(4_000_000), true);
        assert_eq!((tally.cut, tally.gap.censored()), (1, 0));
        tally.was_cut(watch.silence(9_000_000), true);
        assert_eq!((tally.cut, tally.gap.censored()), (2, 1));
        assert_eq!(tally.gap.censored_from(), Some(6_000_000));
        tally.not_begun(5);
        assert_eq!(tally.first_body.censored(), 1);
    }
}
