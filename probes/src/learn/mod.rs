//! The reader of access logs: lines in, a tally out (`nginx-tune learn`).
//!
//! It takes a plan and plain lines from standard input; which files those are of and what packs
//! them is its caller's affair. Memory is bounded however long the log is. What is counted is
//! whole numbers, and whoever reads a tally does the arithmetic.

mod clock;
mod extent;
mod format;
mod names;
mod plan;
mod reader;
mod round_trips;
mod sample;
mod sketch;
mod tally;
mod timeline;
mod values;

use std::io::{self, Read, Write};

use self::reader::{LONGEST_LINE_BYTES, Reader};
use crate::error::Error;

pub use self::plan::Plan;

const BLOCK_BYTES: usize = 1 << 18;

/// Reads lines to their end and prints the tally.
///
/// # Errors
/// `Error::System` when reading or printing fails.
pub fn run(plan: &Plan, input: &mut impl Read, output: &mut impl Write) -> Result<(), Error> {
    let mut reader = Reader::new(plan);
    read_lines(input, |line| reader.add(line))
        .map_err(|error| Error::System("reading the log", error))?;
    tally::write(reader, output).map_err(|error| Error::System("printing the tally", error))
}

/// Gives each line without its line feed; of one that is too long no more than tells that it is.
fn read_lines(input: &mut impl Read, mut take: impl FnMut(&[u8])) -> io::Result<()> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut rest: Vec<u8> = Vec::new();
    loop {
        let length = match input.read(&mut block) {
            Ok(0) => break,
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        let mut from = 0;
        for end in memchr::memchr_iter(b'\n', &block[..length]) {
            if rest.is_empty() {
                take(&block[from..end]);
            } else {
                keep(&mut rest, &block[from..end]);
                take(&rest);
                rest.clear();
            }
            from = end + 1;
        }
        keep(&mut rest, &block[from..length]);
    }
    if !rest.is_empty() {
        take(&rest);
    }
    Ok(())
}

/// Adds to the start of a line, up to the length that is too long in any case.
fn keep(rest: &mut Vec<u8>, more: &[u8]) {
    let room = (LONGEST_LINE_BYTES + 2).saturating_sub(rest.len());
    rest.extend_from_slice(&more[..more.len().min(room)]);
}
