//! Random changes of inputs, for fuzzing the parsers of untrusted bytes.
//!
//! `NGINX_TUNE_FUZZ_SECONDS=60 cargo test --profile checked mutated -- --nocapture` runs each kind
//! for a minute and prints the number of rounds; `SEED` draws others. A failing test prints its
//! seed and round, and `NGINX_TUNE_ROUND` runs only that round.

use std::time::{Duration, Instant};

use crate::chance::{Chance, Purpose};

/// The random numbers reserved for a round, so that each round can be repeated alone.
const DRAWS_OF_A_ROUND: u64 = 1 << 20;

/// The rounds of a test.
#[derive(Debug)]
pub(crate) struct Mutations {
    kind: String,
    until: Option<Instant>,
    chance: Chance,
    seed: u64,
    round: u64,
    end: u64,
    drawn: u64,
    is_begun: bool,
    is_alone: bool,
}

impl Mutations {
    /// `count` rounds, and more until the seconds in the environment have passed.
    pub(crate) fn of(kind: &str, count: u64) -> Self {
        let seed = asked("SEED").unwrap_or(20);
        let alone = asked("NGINX_TUNE_ROUND");
        let seconds = asked("NGINX_TUNE_FUZZ_SECONDS").filter(|_| alone.is_none());
        Self {
            kind: kind.to_owned(),
            until: seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds)),
            chance: Chance::new(seed, kind, Purpose::Path),
            seed,
            round: alone.unwrap_or(0),
            end: alone.map_or(count, |round| round + 1),
            drawn: 0,
            is_begun: false,
            is_alone: alone.is_some(),
        }
    }

    /// Whether only one round is repeated; then nothing can be asserted about many rounds.
    pub(crate) fn is_alone(&self) -> bool {
        self.is_alone
    }

    /// Starts the next round, if there is one.
    pub(crate) fn again(&mut self) -> bool {
        self.round += u64::from(std::mem::replace(&mut self.is_begun, true));
        self.drawn = 0;
        self.round < self.end || self.until.is_some_and(|until| Instant::now() < until)
    }

    /// A number below `most`, which is not 0.
    pub(crate) fn below(&mut self, most: usize) -> usize {
        self.drawn += 1;
        let index = self.round * DRAWS_OF_A_ROUND + self.drawn;
        self.chance.below(index, most as u64) as usize
    }

    /// One of the seeds, changed at a few places, or occasionally unchanged.
    pub(crate) fn mutated(&mut self, seeds: &[impl AsRef<[u8]>]) -> Vec<u8> {
        let mut bytes = seeds[self.below(seeds.len())].as_ref().to_vec();
        for _ in 0..self.below(5) {
            self.change(&mut bytes);
        }
        bytes
    }

    /// Changes bytes at one place.
    pub(crate) fn change(&mut self, bytes: &mut Vec<u8>) {
        let any = self.below(256) as u8;
        if bytes.is_empty() {
            return bytes.push(any);
        }
        let place = self.below(bytes.len());
        match self.below(8) {
            0 => bytes[place] = any,
            1 => bytes[place] ^= 1 << self.below(8),
            // Boundary values of numbers and lengths.
            2 => bytes[place] = [0, 0x3f, 0x7f, 0x80, 0xc0, 0xff][self.below(6)],
            3 => bytes.insert(place, any),
            4 => drop(bytes.remove(place)),
            5 => bytes.truncate(place),
            6 => {
                let end = place + 1 + self.below(bytes.len() - place);
                let part = bytes[place..end].to_vec();
                bytes.splice(place..place, part);
            }
            _ => {
                let other = self.below(bytes.len());
                bytes.swap(place, other);
            }
        }
    }

    /// The bytes in two to four pieces, some of which may be empty.
    pub(crate) fn pieces<'b>(&mut self, bytes: &'b [u8]) -> Vec<&'b [u8]> {
        let (mut rest, mut pieces) = (bytes, Vec::new());
        for _ in 0..=self.below(3) {
            let (own, tail) = rest.split_at(self.below(rest.len() + 1));
            pieces.push(own);
            rest = tail;
        }
        pieces.push(rest);
        pieces
    }
}

fn asked(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

impl Drop for Mutations {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("SEED={} NGINX_TUNE_ROUND={}", self.seed, self.round);
        } else if self.until.is_some() {
            eprintln!("{}: {} rounds", self.kind, self.round);
        }
    }
}

#[test]
fn a_round_can_be_tried_alone_and_pieces_are_the_whole() {
    let mut all = Mutations::of("self", 9);
    let seeds = [&b"some bytes"[..], b"others"];
    let mut seen = Vec::new();
    while all.again() {
        let bytes = all.mutated(&seeds);
        assert_eq!(all.pieces(&bytes).concat(), bytes);
        seen.push((all.round, bytes));
    }
    let (round, bytes) = seen.pop().expect("a round");
    let mut one = Mutations::of("self", 0);
    (one.until, one.round, one.end) = (None, round, round + 1);
    assert!(one.again());
    assert_eq!(one.mutated(&seeds), bytes);
    assert!(!one.again());
}
