//! Requests and time in flight over a log's time, in a window that slides along with it.
//!
//! nginx logs a request when it ends, and workers that buffer their lines write them late, so a
//! line may be older than those before it. The window is a day and a half: lines within it find
//! their second; what leaves it is final.

use std::collections::BTreeMap;

use serde_json::{Value, json};

const WINDOW_SECONDS: i64 = 1 << 17;
/// So many lines on end from another time begin a new stretch; fewer are strays.
const FEWEST_ELSEWHERE: u32 = 8;
const MOST_STRETCHES: usize = 256;

/// What happened in one second.
#[derive(Debug, Default, Clone, Copy)]
struct Second {
    requests: i64,
    /// Milliseconds in flight of requests that began or ended within it.
    partial: i64,
    /// Change, at its start, of the milliseconds that go on through whole seconds.
    change: i64,
}

/// Counts what happened in each second.
#[derive(Debug, Default)]
pub(crate) struct Timeline {
    seconds: BTreeMap<i64, Second>,
    stretches: Vec<(i64, i64)>,
    first: i64,
    newest: i64,
    is_open: bool,
    elsewhere: i64,
    elsewhere_count: u32,
    counted: u64,
    timed: u64,
    busy: i64,
    backward: u64,
    stray: u64,
    peaks: Peaks,
}

impl Timeline {
    /// Number of the stretch that is being read, from 0.
    pub(crate) fn stretch(&self) -> usize {
        self.stretches.len()
    }

    /// Counts a request; false when its time is far from its neighbours'.
    pub(crate) fn add(&mut self, end: i64, duration: Option<i64>) -> bool {
        let second = end.div_euclid(1000);
        let step = second - self.newest;
        if !self.is_open {
            self.open(second);
        } else if step <= -WINDOW_SECONDS || step > WINDOW_SECONDS {
            if !self.moves_to(second) {
                self.stray += 1;
                return false;
            }
        } else if step > 0 {
            self.advance(second);
        }
        self.elsewhere_count = 0;
        if second < self.newest {
            self.backward += 1;
            self.first = self.first.min(second);
        }
        self.counted += 1;
        self.at(second).requests += 1;
        if let Some(duration) = duration {
            self.timed += 1;
            self.busy += duration;
            self.fill(end, second, duration);
        }
        true
    }

    /// What was counted.
    pub(crate) fn finish(mut self) -> Value {
        if self.is_open {
            self.close();
        }
        json!({
            "stretches": self.stretches,
            "requests": self.counted,
            "peak_1s": self.peaks.of_1,
            "peak_10s": self.peaks.of_10,
            "peak_60s": self.peaks.of_60,
            "busy_milliseconds": self.busy,
            "busy_peak_milliseconds": self.peaks.busy,
            "timed_requests": self.timed,
            "backward_lines": self.backward,
            "stray_lines": self.stray,
        })
    }

    fn moves_to(&mut self, second: i64) -> bool {
        if self.elsewhere_count > 0 && (second - self.elsewhere).abs() < WINDOW_SECONDS {
            self.elsewhere_count += 1;
        } else {
            (self.elsewhere, self.elsewhere_count) = (second, 1);
        }
        if self.elsewhere_count < FEWEST_ELSEWHERE || self.stretches.len() + 1 >= MOST_STRETCHES {
            return false;
        }
        self.close();
        self.open(second);
        true
    }

    fn open(&mut self, second: i64) {
        self.is_open = true;
        self.first = second;
        self.newest = second;
    }

    fn close(&mut self) {
        self.stretches.push((self.first, self.newest));
        for (second, counts) in std::mem::take(&mut self.seconds) {
            self.peaks.take(second, counts);
        }
        self.peaks.begin_again();
        self.is_open = false;
    }

    /// Moves the window on, and what leaves it to the peaks.
    fn advance(&mut self, second: i64) {
        let oldest = second + 1 - WINDOW_SECONDS;
        while let Some(entry) = self.seconds.first_entry() {
            if *entry.key() >= oldest {
                break;
            }
            let (left, counts) = entry.remove_entry();
            self.peaks.take(left, counts);
        }
        self.newest = second;
    }

    fn at(&mut self, second: i64) -> &mut Second {
        self.seconds.entry(second).or_default()
    }

    /// Spreads the time in flight over the seconds that it touches.
    fn fill(&mut self, end: i64, second: i64, duration: i64) {
        let oldest = (self.newest + 1 - WINDOW_SECONDS) * 1000;
        let start = (end - duration).max(oldest);
        let start_second = start.div_euclid(1000);
        if start_second == second {
            self.at(second).partial += end - start;
            return;
        }
        self.at(start_second).partial += (start_second + 1) * 1000 - start;
        self.at(second).partial += end - second * 1000;
        if start_second + 1 < second {
            self.at(start_second + 1).change += 1000;
            self.at(second).change -= 1000;
        }
    }
}

/// The busiest second, ten seconds, minute, from seconds in order.
#[derive(Debug)]
struct Peaks {
    of_1: i64,
    of_10: i64,
    of_60: i64,
    busy: i64,
    ring: [i64; 60],
    at: usize,
    in_10: i64,
    in_60: i64,
    through: i64,
    last: Option<i64>,
}

impl Default for Peaks {
    fn default() -> Self {
        Self {
            of_1: 0,
            of_10: 0,
            of_60: 0,
            busy: 0,
            ring: [0; 60],
            at: 0,
            in_10: 0,
            in_60: 0,
            through: 0,
            last: None,
        }
    }
}

impl Peaks {
    /// Forgets the last seconds, not the peaks.
    fn begin_again(&mut self) {
        *self = Self {
            of_1: self.of_1,
            of_10: self.of_10,
            of_60: self.of_60,
            busy: self.busy,
            ..Self::default()
        };
    }

    /// Takes the next second that holds anything.
    fn take(&mut self, second: i64, counts: Second) {
        let between = self.last.map_or(0, |last| second - last - 1);
        for _ in 0..between.min(60) {
            self.slide(0);
        }
        self.last = Some(second);
        self.slide(counts.requests);
        self.busy = self.busy.max(self.through); // of the seconds between
        self.through += counts.change;
        self.busy = self.busy.max(counts.partial + self.through);
        self.of_1 = self.of_1.max(counts.requests);
        self.of_10 = self.of_10.max(self.in_10);
        self.of_60 = self.of_60.max(self.in_60);
    }

    fn slide(&mut self, requests: i64) {
        self.in_60 += requests - self.ring[self.at];
        self.in_10 += requests - self.ring[(self.at + 50) % 60];
        self.ring[self.at] = requests;
        self.at = (self.at + 1) % 60;
    }
}
