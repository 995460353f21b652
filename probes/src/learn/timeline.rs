//! Requests and time in flight by second.
//!
//! The seconds of a log come in any order: workers write lines late, files are read in the order of
//! their names, and logs of several hosts overlap in time. So every second has a row of sums, and
//! stretches and peaks are computed at the end. If there are too many rows, pairs of neighbours are
//! merged.

use std::collections::{BTreeMap, VecDeque};

use serde::{Deserialize, Serialize};

use super::sample::{gaps_of, keys_of};

/// The longest pause within a stretch.
const LONGEST_PAUSE_SECONDS: i64 = 1 << 17;
/// The fewest requests of a stretch. The lines of a stretch with fewer requests, or with less than a
/// thousandth of the largest stretch's, count as stray.
const FEWEST_REQUESTS: i64 = 8;
/// The number of rows in a block of memory.
const ROWS: usize = 64;
/// The last second that a line may have (`clock.rs`).
const LAST_SECOND: i64 = 7_258_118_400;
/// Lengths of the peaks, in seconds.
const PEAKS: [i64; 3] = [1, 10, 60];

/// The counts of a row's seconds.
#[derive(Debug, Default, Clone, Copy)]
struct Row {
    requests: u32,
    /// The change, at the row's start, in the number of requests that last through whole seconds.
    change: i32,
    /// Milliseconds in flight of other requests.
    partial: i64,
}

impl Row {
    /// Wrapping sums, which are the same in any order even if they overflow.
    fn add(&mut self, other: Self) {
        self.requests = self.requests.wrapping_add(other.requests);
        self.change = self.change.wrapping_add(other.change);
        self.partial = self.partial.wrapping_add(other.partial);
    }
}

#[derive(Debug)]
struct Block {
    /// A bit for each row in use.
    touched: u64,
    rows: [Row; ROWS],
}

/// Counts requests by second.
#[derive(Debug)]
pub(crate) struct Timeline {
    most_blocks: usize,
    /// A row has `1 << level` seconds.
    level: u32,
    blocks: BTreeMap<i64, Box<Block>>,
}

/// The stored form of a timeline.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Seconds {
    level: u32,
    gaps: Vec<u64>,
    requests: Vec<u32>,
    changes: Vec<i32>,
    partials: Vec<i64>,
}

/// The results of a timeline.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Summary {
    /// First and last second of each stretch.
    stretches: Vec<(i64, i64)>,
    requests: i64,
    stray_lines: i64,
    peak_1s: Option<i64>,
    peak_10s: Option<i64>,
    peak_60s: Option<i64>,
    busy_peak_milliseconds: i64,
}

impl Timeline {
    /// An empty timeline of about `most_rows` rows at most.
    pub(crate) fn new(most_rows: usize) -> Self {
        Self {
            most_blocks: most_rows.div_ceil(ROWS),
            level: 0,
            blocks: BTreeMap::new(),
        }
    }

    /// Counts a request by the end and duration in its line, in milliseconds.
    pub(crate) fn add(&mut self, end: i64, duration: Option<i64>) {
        let second = end / 1000;
        let mut last = Row {
            requests: 1,
            ..Row::default()
        };
        let start = (end - duration.unwrap_or_default()).max(0);
        let first = start / 1000;
        if first == second {
            last.partial = end - start;
            return self.put(second, last);
        }
        last.partial = end - second * 1000;
        if first + 1 < second {
            let begins = Row {
                change: 1,
                ..Row::default()
            };
            self.put(first + 1, begins);
            last.change = -1;
        }
        let begun = Row {
            partial: (first + 1) * 1000 - start,
            ..Row::default()
        };
        self.put(first, begun);
        self.put(second, last);
    }

    /// Adds to the row of a second.
    fn put(&mut self, second: i64, mut row: Row) {
        let key = second >> self.level;
        let into = second - (key << self.level);
        row.partial = row
            .partial
            .wrapping_sub(into.wrapping_mul(1000).wrapping_mul(row.change.into()));
        let block = self.blocks.entry(key >> ROWS.ilog2()).or_insert_with(|| {
            Box::new(Block {
                touched: 0,
                rows: [Row::default(); ROWS],
            })
        });
        let at = key as usize % ROWS;
        block.touched |= 1 << at;
        block.rows[at].add(row);
        while self.blocks.len() > self.most_blocks {
            self.coarsen(self.level + 1);
        }
    }

    fn coarsen(&mut self, level: u32) {
        let rows: Vec<_> = self.rows().collect();
        self.level = level;
        self.blocks.clear();
        for (second, row) in rows {
            self.put(second, row);
        }
    }

    /// The rows with their first seconds, in order.
    fn rows(&self) -> impl Iterator<Item = (i64, Row)> {
        self.blocks.iter().flat_map(move |(&number, block)| {
            (0..ROWS)
                .filter(|at| (block.touched >> at) & 1 == 1)
                .map(move |at| {
                    let key = (number << ROWS.ilog2()) + at as i64;
                    (key << self.level, block.rows[at])
                })
        })
    }

    /// The timeline in its stored form.
    pub(crate) fn seconds(&self) -> Seconds {
        Seconds {
            level: self.level,
            gaps: gaps_of(self.rows().map(|(second, _)| (second >> self.level) as u64)),
            requests: self.rows().map(|(_, row)| row.requests).collect(),
            changes: self.rows().map(|(_, row)| row.change).collect(),
            partials: self.rows().map(|(_, row)| row.partial).collect(),
        }
    }

    /// Adds a stored timeline.
    ///
    /// # Errors
    /// The fault of the stored timeline.
    pub(crate) fn merge(&mut self, other: &Seconds) -> Result<(), &'static str> {
        let count = other.gaps.len();
        let lengths = [
            other.requests.len(),
            other.changes.len(),
            other.partials.len(),
        ];
        if lengths != [count; 3] || other.level > LAST_SECOND.ilog2() {
            return Err("seconds with columns of different lengths");
        }
        if other.level > self.level {
            self.coarsen(other.level);
        }
        let keys = keys_of(&other.gaps)?;
        for (at, key) in keys.into_iter().enumerate() {
            if key > (LAST_SECOND >> other.level) as u64 {
                return Err("a second outside the range of any log");
            }
            let row = Row {
                requests: other.requests[at],
                change: other.changes[at],
                partial: other.partials[at],
            };
            self.put((key as i64) << other.level, row);
        }
        Ok(())
    }

    /// The stretches and peaks.
    pub(crate) fn summary(&self) -> Summary {
        let width = 1 << self.level;
        let mut all: Vec<(i64, i64, i64)> = Vec::new();
        for (second, row) in self.rows().filter(|(_, row)| row.requests > 0) {
            let (last, requests) = (second + width - 1, i64::from(row.requests));
            match all.last_mut() {
                Some(stretch) if second - stretch.1 <= LONGEST_PAUSE_SECONDS => {
                    stretch.1 = last;
                    stretch.2 += requests;
                }
                _ => all.push((second, last, requests)),
            }
        }
        let most = all.iter().map(|stretch| stretch.2).max().unwrap_or(0);
        let fewest = most.min(FEWEST_REQUESTS.max(most / 1000));
        let (kept, strays): (Vec<_>, Vec<_>) =
            all.into_iter().partition(|stretch| stretch.2 >= fewest);
        let mut found = Summary {
            stretches: kept.iter().map(|stretch| (stretch.0, stretch.1)).collect(),
            requests: kept.iter().map(|stretch| stretch.2).sum(),
            stray_lines: strays.iter().map(|stretch| stretch.2).sum(),
            ..Summary::default()
        };
        self.find_peaks(&mut found, width);
        found
    }

    fn find_peaks(&self, found: &mut Summary, width: i64) {
        let mut windows = PEAKS.map(|length| Window::new(length, width));
        let (mut through, mut next, mut busiest) = (0_i64, 0, 0);
        let mut stretches = found.stretches.iter();
        let mut stretch = stretches.next();
        for (second, row) in self.rows() {
            while stretch.is_some_and(|stretch| stretch.1 < second) {
                stretch = stretches.next();
            }
            let before = through;
            through = through.wrapping_add(row.change.into());
            let Some(stretch) = stretch.filter(|stretch| stretch.0 <= second) else {
                next = second + width;
                continue;
            };
            if next.max(stretch.0) < second {
                busiest = busiest.max(before.wrapping_mul(1000)); // of the seconds in between
            }
            let busy = through.wrapping_mul(1000 * width).wrapping_add(row.partial);
            busiest = busiest.max(busy.div_euclid(width));
            for window in &mut windows {
                window.slide(second, row.requests.into());
            }
            next = second + width;
        }
        found.busy_peak_milliseconds = busiest;
        [found.peak_1s, found.peak_10s, found.peak_60s] = windows.map(|window| window.peak());
    }
}

/// The most requests in a number of consecutive seconds.
#[derive(Debug)]
struct Window {
    seconds: i64,
    /// True if rows are short enough to know it.
    is_known: bool,
    /// The rows of the latest seconds, the oldest first.
    rows: VecDeque<(i64, i64)>,
    sum: i64,
    most: i64,
}

impl Window {
    fn new(seconds: i64, width: i64) -> Self {
        Self {
            seconds,
            is_known: seconds % width == 0,
            rows: VecDeque::new(),
            sum: 0,
            most: 0,
        }
    }

    fn slide(&mut self, second: i64, requests: i64) {
        while let Some(&(_, gone)) = self
            .rows
            .front()
            .filter(|row| row.0 + self.seconds <= second)
        {
            self.rows.pop_front();
            self.sum -= gone;
        }
        self.rows.push_back((second, requests));
        self.sum += requests;
        self.most = self.most.max(self.sum);
    }

    fn peak(&self) -> Option<i64> {
        self.is_known.then_some(self.most)
    }
}
