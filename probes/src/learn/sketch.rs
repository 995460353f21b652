//! What stays small however long a log is: samples by hash, and counts of the most popular.
//!
//! Sources: Waldspurger et al., Efficient MRC Construction with SHARDS, FAST 2015; Misra, Gries,
//! Finding Repeated Elements, 1982; Agarwal et al., Mergeable Summaries, PODS 2012.

use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasherDefault, Hasher};

use crate::chance;

/// Connection numbers that are held.
const MOST_CONNECTIONS: usize = 1 << 13;

/// The hasher of keys that are hashes already.
#[derive(Debug, Default)]
pub(crate) struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("keys are numbers");
    }

    fn write_u64(&mut self, key: u64) {
        // The low bits choose the bucket; those of a sample are all random, its high ones are 0.
        self.0 = key.rotate_left(32);
    }
}

type Table<V> = HashMap<u64, V, BuildHasherDefault<AsItIs>>;

/// A 64-bit hash of a number: `SplitMix64`.
pub(crate) fn mix(number: u64) -> u64 {
    chance::mix(number.wrapping_add(0x9e37_79b9_7f4a_7c15))
}

/// Whether a hash begins with so many zero bits.
pub(crate) fn is_sampled(key: u64, level: u32) -> bool {
    key.leading_zeros() >= level
}

/// Requests and size of an object.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    requests: u64,
    size: i64,
}

impl Counts {
    fn add(&mut self, size: i64) -> bool {
        self.requests += 1;
        self.size = if self.requests == 1 {
            size
        } else {
            self.size.max(size)
        };
        self.requests == 1
    }
}

/// An object as it is printed: hash, requests, size.
pub(crate) type Row = (u64, u64, i64);

/// Requests and sizes of objects: of all while they fit, then of a sample and of the heaviest.
#[derive(Debug)]
pub(crate) struct ObjectTable {
    most_objects: usize,
    most_heavy: usize,
    pub(crate) level: u32,
    sampled: Table<Counts>,
    heavy: Table<Counts>,
    pub(crate) heavy_error: u64,
}

impl ObjectTable {
    pub(crate) fn new(most_objects: usize, most_heavy: usize) -> Self {
        Self {
            most_objects,
            most_heavy,
            level: 0,
            sampled: Table::default(),
            heavy: Table::default(),
            heavy_error: 0,
        }
    }

    /// Counts a request for an object that is at least so large.
    pub(crate) fn add(&mut self, key: u64, size: i64) {
        if self.level > 0 {
            let is_new = self.heavy.entry(key).or_default().add(size);
            if is_new && self.heavy.len() >= 2 * self.most_heavy {
                self.thin_heavy();
            }
            if !is_sampled(key, self.level) {
                return;
            }
        }
        let is_new = self.sampled.entry(key).or_default().add(size);
        if is_new && self.sampled.len() > self.most_objects {
            self.thin();
        }
    }

    /// The objects in the order of their hashes: the sample, the heaviest.
    pub(crate) fn rows(&self) -> [Vec<Row>; 2] {
        [&self.sampled, &self.heavy].map(|table| {
            let mut rows: Vec<Row> = table
                .iter()
                .map(|(&key, counts)| (key, counts.requests, counts.size))
                .collect();
            rows.sort_unstable();
            rows
        })
    }

    fn thin(&mut self) {
        if self.level == 0 {
            self.heavy = self.sampled.clone();
            if self.heavy.len() >= 2 * self.most_heavy {
                self.thin_heavy();
            }
        }
        while self.sampled.len() > self.most_objects {
            self.level += 1;
            let level = self.level;
            self.sampled.retain(|&key, _| is_sampled(key, level));
        }
    }

    fn thin_heavy(&mut self) {
        let mut counts: Vec<u64> = self.heavy.values().map(|counts| counts.requests).collect();
        let (_, &mut taken, _) =
            counts.select_nth_unstable_by(self.most_heavy, |one, other| other.cmp(one));
        self.heavy.retain(|_, counts| {
            counts.requests = counts.requests.saturating_sub(taken);
            counts.requests > 0
        });
        // The copy of a full table is far larger than what is left of it.
        self.heavy.shrink_to(3 * self.most_heavy);
        self.heavy_error += taken;
    }
}

/// How many different numbers were seen: exact to a bound, then from a sample by hash.
#[derive(Debug, Default)]
pub(crate) struct DistinctNumbers {
    hashes: HashSet<u64, BuildHasherDefault<AsItIs>>,
    pub(crate) level: u32,
}

impl DistinctNumbers {
    /// Sees a number.
    pub(crate) fn add(&mut self, number: u64) {
        let key = mix(number);
        if !is_sampled(key, self.level) {
            return;
        }
        self.hashes.insert(key);
        while self.hashes.len() > MOST_CONNECTIONS {
            self.level += 1;
            let level = self.level;
            self.hashes.retain(|&key| is_sampled(key, level));
        }
    }

    /// Those of the sample.
    pub(crate) fn len(&self) -> usize {
        self.hashes.len()
    }
}
