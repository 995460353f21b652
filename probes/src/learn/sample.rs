//! Samples by hash: everything as long as it fits, then only values whose hash begins with enough
//! zero bits.
//!
//! The sample depends only on the hashes. So samples of parts add up to the sample of the whole, in
//! any order. Source: Waldspurger et al., Efficient MRC Construction with SHARDS, FAST 2015.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};

use serde::{Deserialize, Serialize};

/// The reason why a tally from a file cannot be added.
pub(crate) type Fault = &'static str;

/// The most bytes of text in a sample.
const MOST_TEXT_BYTES: usize = 32 << 20;

/// A hasher for keys that are already hashes.
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
        // The low bits choose the bucket. In a sample they are random, while the high bits are 0.
        self.0 = key.rotate_left(32);
    }
}

/// Values by hash.
pub(crate) type ByHash<V> = HashMap<u64, V, BuildHasherDefault<AsItIs>>;

/// The value that a sample keeps for a hash.
pub(crate) trait Kept {
    /// Adds another value of the same hash.
    fn absorb(&mut self, other: Self);

    /// The bytes of its text; equal for all values of the same hash.
    fn text_bytes(&self) -> usize {
        0
    }
}

/// A sample by hash.
#[derive(Debug)]
pub(crate) struct Sample<V> {
    most: usize,
    level: u32,
    text_bytes: usize,
    kept: ByHash<V>,
}

impl<V: Kept> Sample<V> {
    /// An empty sample of at most `most` hashes.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            level: 0,
            text_bytes: 0,
            kept: HashMap::default(),
        }
    }

    /// Whether a value with this hash is kept.
    pub(crate) fn wants(&self, hash: u64) -> bool {
        self.most > 0 && hash.leading_zeros() >= self.level
    }

    /// Adds a value, if its hash is kept.
    pub(crate) fn add(&mut self, hash: u64, value: V) {
        if !self.wants(hash) {
            return;
        }
        match self.kept.entry(hash) {
            Entry::Occupied(mut entry) => return entry.get_mut().absorb(value),
            Entry::Vacant(entry) => {
                self.text_bytes += value.text_bytes();
                entry.insert(value);
            }
        }
        while self.kept.len() > self.most || self.text_bytes > MOST_TEXT_BYTES {
            self.thin(self.level + 1);
        }
    }

    /// The number of zero bits with which the kept hashes begin.
    pub(crate) fn level(&self) -> u32 {
        self.level
    }

    /// The kept values with their hashes, in any order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &V)> {
        self.kept.iter().map(|(&hash, value)| (hash, value))
    }

    /// The level, and the kept values sorted by hash.
    pub(crate) fn rows(&self) -> (u32, Vec<(u64, &V)>) {
        let mut rows: Vec<_> = self.iter().collect();
        rows.sort_unstable_by_key(|row| row.0);
        (self.level, rows)
    }

    /// Adds another sample: its level, and its rows sorted by hash.
    ///
    /// # Errors
    /// The fault of the rows, which come from a file.
    pub(crate) fn merge(
        &mut self,
        level: u32,
        rows: impl Iterator<Item = (u64, V)>,
    ) -> Result<(), &'static str> {
        if level > u64::BITS {
            return Err("a level above 64");
        }
        if level > self.level {
            self.thin(level);
        }
        for (hash, value) in rows {
            if hash.leading_zeros() < level {
                return Err("a hash that is not of the sample's level");
            }
            self.add(hash, value);
        }
        Ok(())
    }

    fn thin(&mut self, level: u32) {
        self.level = level;
        self.kept.retain(|hash, _| hash.leading_zeros() >= level);
        self.text_bytes = self.kept.values().map(Kept::text_bytes).sum();
    }
}

/// Records only that a hash occurred.
impl Kept for () {
    fn absorb(&mut self, (): Self) {}
}

/// The requests and the size of an object.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Object {
    pub(crate) requests: u64,
    pub(crate) size: i64,
}

impl Kept for Object {
    fn absorb(&mut self, other: Self) {
        self.requests = self.requests.saturating_add(other.requests);
        self.size = self.size.max(other.size);
    }
}

/// A line with a request for an object, and the number of equal lines.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DataLine {
    pub(crate) times: u64,
    pub(crate) object: u64,
    pub(crate) size: i64,
}

impl Kept for DataLine {
    fn absorb(&mut self, other: Self) {
        self.times = self.times.saturating_add(other.times);
    }
}

/// A request that is kept with all its fields.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) times: u64,
    pub(crate) end: i64,
    pub(crate) duration: i64,
    pub(crate) object: u64,
    pub(crate) sent: i64,
    /// The full size of the object in bytes; -1 if unknown.
    pub(crate) size: i64,
    pub(crate) range: Option<(i64, i64)>,
    pub(crate) server: Box<str>,
    pub(crate) path: Box<str>,
}

impl Kept for Request {
    fn absorb(&mut self, other: Self) {
        self.times = self.times.saturating_add(other.times);
    }

    fn text_bytes(&self) -> usize {
        self.server.len() + self.path.len()
    }
}

/// Adds counts by name.
pub(crate) fn add_each<K: Ord>(own: &mut BTreeMap<K, u64>, theirs: BTreeMap<K, u64>) {
    for (name, count) in theirs {
        let sum = own.entry(name).or_default();
        *sum = sum.saturating_add(count);
    }
}

/// The first of ascending keys, and the gaps between neighbours.
pub(crate) fn gaps_of(keys: impl Iterator<Item = u64>) -> Vec<u64> {
    let mut last = 0;
    keys.map(|key| key - std::mem::replace(&mut last, key))
        .collect()
}

/// The keys from their gaps.
///
/// # Errors
/// If the keys are not ascending, or exceed the largest number.
pub(crate) fn keys_of(gaps: &[u64]) -> Result<Vec<u64>, Fault> {
    let mut last = 0_u64;
    let keys = gaps.iter().enumerate().map(|(at, &gap)| {
        last = last.checked_add(gap).filter(|_| gap > 0 || at == 0)?;
        Some(last)
    });
    keys.collect::<Option<_>>().ok_or("keys that do not ascend")
}
