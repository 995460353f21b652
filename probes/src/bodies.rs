//! The comparison of bodies with files: a sample of bodies, and the first body of each file.
//!
//! During the run only the checksum of a sampled body is computed. The files are read after the
//! run, since reading them earlier would warm the page cache for the server under test.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::time::Instant;

use crate::chance::{Chance, Purpose};
use crate::plan::{ByteRange, Class};
use crate::request::Request;

/// The most distinct samples (object, part and checksum) to keep.
const MOST_SAMPLES: usize = 1 << 16;

/// Bytes to read from a file at a time.
const READ_BYTES: usize = 64 * 1024;

/// The sampled bodies of a class.
#[derive(Debug)]
pub struct Bodies<'p> {
    files: &'p [String],
    ratio: f64,
    chance: Chance,
    /// By path, true if a body was sampled.
    seen: Vec<bool>,
    samples: BTreeMap<Sample, u64>,
}

/// A received body; equal bodies are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sample {
    path: usize,
    range: Option<ByteRange>,
    bytes: u64,
    checksum: u32,
}

/// The result of the comparison, as numbers of bodies.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Compared {
    /// Bodies that were compared with their file.
    pub compared: u64,
    /// Compared bodies that differ from the file.
    pub differing: u64,
    /// Sampled bodies whose file could not be read, or not in time.
    pub unread: u64,
}

impl Compared {
    /// Adds another result.
    pub fn add(&mut self, other: Self) {
        self.compared += other.compared;
        self.differing += other.differing;
        self.unread += other.unread;
    }
}

impl<'p> Bodies<'p> {
    /// The sampling for a class; `None` if its plan names no files.
    pub fn new(class: &'p Class, seed: u64) -> Option<Self> {
        let files = class.paths.files.as_deref()?;
        Some(Self {
            files,
            ratio: class.hash_ratio,
            chance: Chance::new(seed, &class.name, Purpose::Hash),
            seen: vec![false; files.len()],
            samples: BTreeMap::new(),
        })
    }

    /// True if the body of this request is to be sampled.
    pub fn wants(&self, request: &Request) -> bool {
        !self.files[request.path].is_empty()
            && self.samples.len() < MOST_SAMPLES
            && (!self.seen[request.path] || self.chance.fraction(request.index) < self.ratio)
    }

    /// Records a sampled body that had no other fault.
    pub fn note(&mut self, path: usize, range: Option<ByteRange>, bytes: u64, checksum: u32) {
        self.seen[path] = true;
        let sample = Sample {
            path,
            range,
            bytes,
            checksum,
        };
        *self.samples.entry(sample).or_default() += 1;
    }

    /// Compares the samples with the files until a deadline.
    pub fn compare(&self, deadline: Instant) -> Compared {
        let mut total = Compared::default();
        for (sample, &count) in &self.samples {
            match self.differs(sample, deadline) {
                Ok(differs) => {
                    total.compared += count;
                    total.differing += if differs { count } else { 0 };
                }
                Err(_) => total.unread += count,
            }
        }
        total
    }

    fn differs(&self, sample: &Sample, deadline: Instant) -> io::Result<bool> {
        let mut file = File::open(&self.files[sample.path])?;
        if let Some(range) = sample.range {
            file.seek(SeekFrom::Start(range.first))?;
        } else if file.metadata()?.len() != sample.bytes {
            return Ok(true);
        }
        let mut part = file.take(sample.bytes);
        let mut hasher = crc32fast::Hasher::new();
        let mut buffer = vec![0; READ_BYTES];
        let mut bytes = 0;
        loop {
            if Instant::now() > deadline {
                return Err(io::ErrorKind::TimedOut.into());
            }
            let count = part.read(&mut buffer)?;
            if count == 0 {
                break;
            }
            hasher.update(&buffer[..count]);
            bytes += count as u64;
        }
        Ok(bytes != sample.bytes || hasher.finalize() != sample.checksum)
    }
}
