//! The reader of access logs: lines in, a tally out (`nginx-tune learn`), or tallies in and their
//! sum out (`nginx-tune merge`).
//!
//! It reads a plan, and frames from standard input: the beginning of a log, its plain bytes, or a
//! tally from a file. The caller opens and decompresses the files. Memory is bounded however long
//! the logs are. All counts are whole numbers; the reader of a tally does further arithmetic.

mod clock;
mod extent;
mod format;
mod names;
mod plan;
mod popularity;
mod reader;
mod round_trips;
mod sample;
mod tally;
mod timeline;
mod values;

use std::collections::BTreeMap;
use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

use self::popularity::Popularity;
use self::reader::{LONGEST_LINE_BYTES, Reader};
use self::tally::{Requests, Written};
use self::timeline::Summary;
use crate::error::Error;

pub use self::plan::Plan;

const BLOCK_BYTES: usize = 1 << 18;
/// The frame for the beginning of a log; its content is the name of the log's host.
const LOG: u8 = b'L';
/// The frame for bytes of the log.
const BYTES: u8 = b'B';
/// The frame for a tally from a file.
const TALLY: u8 = b'T';

/// The printed result.
#[derive(Debug, Serialize)]
struct Reading {
    schema: &'static str,
    logs: Vec<String>,
    first_lines: BTreeMap<&'static str, Vec<(usize, u64)>>,
    timeline: Summary,
    popularity: Popularity,
    #[serde(flatten)]
    sum: Sum,
}

/// The parts that are added up.
#[derive(Debug, Serialize, Deserialize)]
struct Sum {
    tally: Written,
    places: Requests,
}

/// Reads frames to their end and prints the result.
///
/// # Errors
/// `Error::System` if reading or printing fails; `Error::Plan` for an invalid tally.
pub fn run(plan: &Plan, input: &mut impl Read, output: &mut impl Write) -> Result<(), Error> {
    let mut reader = Reader::new(plan);
    read_frames(&mut reader, input)?;
    let reading = Reading {
        schema: "nginx-tune/reading/1",
        timeline: reader.tally.timeline.summary(),
        popularity: Popularity::of(&reader.tally),
        sum: Sum {
            tally: reader.tally.written(),
            places: Requests::of(&reader.tally.places),
        },
        logs: reader.logs,
        first_lines: reader.first_lines,
    };
    serde_json::to_writer(&mut *output, &reading)
        .map_err(io::Error::from)
        .and_then(|()| output.flush())
        .map_err(|error| Error::System("printing the tally", error))
}

/// Reads frames: each has a letter, its length in four bytes (little-endian), and its content.
fn read_frames(reader: &mut Reader, input: &mut impl Read) -> Result<(), Error> {
    let fault = |error| Error::System("reading the log", error);
    let mut lines = Lines::default();
    let mut head = [0; 5];
    let mut is_open = false;
    while read_head(input, &mut head).map_err(fault)? {
        let [kind, length @ ..] = head;
        let mut contents = input.take(u32::from_le_bytes(length).into());
        if kind == BYTES {
            lines.read(&mut contents, reader).map_err(fault)?;
            continue;
        }
        if std::mem::take(&mut is_open) {
            lines.end(reader);
        }
        let mut data = Vec::new();
        contents.read_to_end(&mut data).map_err(fault)?;
        match kind {
            LOG => {
                reader.begin(data);
                is_open = true;
            }
            TALLY => {
                let sum: Sum = serde_json::from_slice(&data)
                    .map_err(|error| Error::Plan(format!("not a tally: {error}")))?;
                let added = reader.tally.merge(sum.tally, sum.places);
                added.map_err(|fault| Error::Plan(format!("not a tally: {fault}")))?;
            }
            _ => return Err(Error::Plan(format!("a frame of kind {kind}"))),
        }
    }
    if is_open {
        lines.end(reader);
    }
    Ok(())
}

/// Reads the head of a frame; returns false at the end of the input.
fn read_head(input: &mut impl Read, head: &mut [u8; 5]) -> io::Result<bool> {
    let mut first = [0];
    loop {
        match input.read(&mut first) {
            Ok(0) => return Ok(false),
            Ok(_) => break,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    head[0] = first[0];
    input.read_exact(&mut head[1..])?;
    Ok(true)
}

/// The lines of a log that arrives in blocks.
#[derive(Debug)]
struct Lines {
    block: Vec<u8>,
    /// The beginning of an incomplete line; of a line that is too long, just enough to detect that.
    rest: Vec<u8>,
}

impl Default for Lines {
    fn default() -> Self {
        Self {
            block: vec![0; BLOCK_BYTES],
            rest: Vec::new(),
        }
    }
}

impl Lines {
    fn read(&mut self, input: &mut impl Read, reader: &mut Reader) -> io::Result<()> {
        loop {
            let length = match input.read(&mut self.block) {
                Ok(0) => return Ok(()),
                Ok(length) => length,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let mut from = 0;
            for end in memchr::memchr_iter(b'\n', &self.block[..length]) {
                if self.rest.is_empty() {
                    reader.add(&self.block[from..end]);
                } else {
                    keep(&mut self.rest, &self.block[from..end]);
                    reader.add(&self.rest);
                    self.rest.clear();
                }
                from = end + 1;
            }
            keep(&mut self.rest, &self.block[from..length]);
        }
    }

    /// Ends the log, possibly within a line.
    fn end(&mut self, reader: &mut Reader) {
        if !self.rest.is_empty() {
            reader.add(&self.rest);
            self.rest.clear();
        }
        reader.end();
    }
}

/// Appends to an incomplete line, up to a length that is too long in any case.
fn keep(rest: &mut Vec<u8>, more: &[u8]) {
    let room = (LONGEST_LINE_BYTES + 2).saturating_sub(rest.len());
    rest.extend_from_slice(&more[..more.len().min(room)]);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{BYTES, LOG, Plan, TALLY, run};
    use crate::error::Error;
    use crate::mutations::Mutations;

    const PLAN: &str = r#"{"schema":"nginx-tune/learnplan/1","format":{"escape":"default","segments":[
        {"before":"","slot":"msec","is_list":false},{"before":" \"","slot":"request","is_list":false},
        {"before":"\" ","slot":"status","is_list":false},{"before":" ","slot":"bytes","is_list":false},
        {"before":" ","slot":"request_time","is_list":false},{"before":" \"","slot":"range","is_list":false}],
        "after":"\"","keys":[]},"with_query":false,"most_objects":9,"most_lines":9,"most_seconds":9,"most_requests":5,
        "key":"000102030405060708090a0b0c0d0e0f",
        "most_places":4,"keeps_paths":true}"#;
    const LINES: &[u8] =
        b"1790000000.123 \"GET /a%20b?c HTTP/1.1\" 206 900 1.250 \"bytes=100-1099\"\n\
        1790000001.000 \"HEAD /\\x22 HTTP/2.0\" 304 0 0.000 \"-\"\n\
        1790000009.999 \"PRI\" 400 157 - \"-\"\n";

    fn framed(kind: u8, data: &[u8]) -> Vec<u8> {
        let length = (data.len() as u32).to_le_bytes();
        [&[kind], &length[..], data].concat()
    }

    fn read(plan: &Plan, frames: &[u8]) -> Result<serde_json::Value, Error> {
        let mut reading = Vec::new();
        run(plan, &mut &*frames, &mut reading)?;
        Ok(serde_json::from_slice(&reading).unwrap())
    }

    #[test]
    fn mutated_logs_are_counted_and_mutated_plans_read_or_refused() {
        let plan = Plan::parse(PLAN.as_bytes()).unwrap();
        let mut some = Mutations::of("access logs", 500);
        while some.again() {
            let log = framed(BYTES, &some.mutated(&[LINES]));
            let reading = read(&plan, &[framed(LOG, b"a"), log].concat()).unwrap();
            let counts = &reading["tally"]["counts"];
            let refused = counts["refused"].as_object().unwrap().values();
            let refused: u64 = refused.map(|lines| lines.as_u64().unwrap()).sum();
            let requests = counts["requests"].as_u64().unwrap();
            assert_eq!(counts["lines"].as_u64(), Some(requests + refused));
            let _ = Plan::parse(&some.mutated(&[PLAN]));
        }
    }

    #[test]
    fn mutated_tallies_are_added_or_refused() {
        let plan = Plan::parse(PLAN.as_bytes()).unwrap();
        let frames = [framed(LOG, b"a"), framed(BYTES, LINES)].concat();
        let reading = read(&plan, &frames).unwrap();
        let sum = json!({"tally": reading["tally"], "places": reading["places"]}).to_string();
        let mut some = Mutations::of("tallies", 500);
        let (mut added, mut refused) = (0, 0);
        while some.again() {
            let tally = framed(TALLY, &some.mutated(&[&sum]));
            match read(&plan, &[tally, frames.clone()].concat()) {
                Ok(_) => added += 1,
                Err(_) => refused += 1,
            }
            let _ = read(&plan, &some.mutated(&[&frames]));
        }
        assert!(added > 10 && refused > 10 || some.is_alone());
    }
}
