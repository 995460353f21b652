//! The counts of one thread of a step.

use std::ops::Range;

use crate::clock::Nanos;
use crate::distribution::Distribution;

/// The counts of one thread, or of all threads together.
#[derive(Debug, Clone)]
pub struct Tally {
    window: Range<Nanos>,
    /// The number of reads that ended in each part of the measured time.
    pub parts: Vec<u64>,
    /// Bytes of the reads that ended inside the measured time.
    pub bytes: u64,
    /// Bytes of all reads.
    pub all_bytes: u64,
    /// The latency of the reads that started inside the measured time.
    pub latency: Distribution,
    /// Failed reads, at any time.
    pub errors: u64,
    /// The start of the read in progress.
    pub under_way: Option<Nanos>,
}

impl Tally {
    /// An empty tally for a measured time of `parts` parts.
    pub fn new(window: Range<Nanos>, parts: usize) -> Self {
        Self {
            window,
            parts: vec![0; parts],
            bytes: 0,
            all_bytes: 0,
            latency: Distribution::new(),
            errors: 0,
            under_way: None,
        }
    }

    /// Records a completed read.
    pub fn read(&mut self, started: Nanos, ended: Nanos, bytes: u64) {
        self.under_way = None;
        self.all_bytes += bytes;
        if self.window.contains(&started) {
            self.latency.record(ended - started);
        }
        if self.window.contains(&ended) {
            let length = self.window.end - self.window.start;
            let part = (ended - self.window.start) * self.parts.len() as u64 / length;
            self.parts[part as usize] += 1;
            self.bytes += bytes;
        }
    }

    /// Records a failed read.
    pub fn failed(&mut self) {
        self.under_way = None;
        self.errors += 1;
    }

    /// Counts the read in progress with its age; returns false if there is none.
    pub fn give_up(&mut self, now: Nanos) -> bool {
        let Some(started) = self.under_way.take() else {
            return false;
        };
        if self.window.contains(&started) {
            self.latency.record(now - started);
        }
        true
    }

    /// Reads that ended inside the measured time.
    pub fn reads(&self) -> u64 {
        self.parts.iter().sum()
    }

    /// Adds the counts of another thread.
    pub fn add(&mut self, other: &Self) {
        for (sum, count) in self.parts.iter_mut().zip(&other.parts) {
            *sum += count;
        }
        self.bytes += other.bytes;
        self.all_bytes += other.all_bytes;
        self.latency.add(&other.latency);
        self.errors += other.errors;
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn rates_go_by_the_end_of_a_read_and_latencies_by_its_start() {
        let mut tally = Tally::new(100..200, 2);
        tally.read(50, 99, 1);
        tally.read(50, 100, 10);
        tally.read(110, 149, 100);
        tally.read(120, 150, 1000);
        tally.read(130, 200, 10_000);
        tally.read(200, 210, 100_000);
        assert_eq!(tally.parts, [2, 1]);
        assert_eq!((tally.bytes, tally.all_bytes), (1110, 111_111));
        assert_eq!((tally.latency.count(), tally.latency.max()), (3, Some(70)));
    }

    #[test]
    fn what_never_came_back_stands_at_its_age() {
        let mut tally = Tally::new(100..200, 2);
        assert!(!tally.give_up(500));
        tally.under_way = Some(150);
        assert!(tally.give_up(500));
        assert_eq!(tally.latency.max(), Some(350));
        tally.under_way = Some(50);
        assert!(tally.give_up(500));
        assert_eq!(tally.latency.count(), 1);
    }
}
