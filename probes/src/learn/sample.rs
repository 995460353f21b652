//! Requests chosen by the hash of their line's number: evenly, and the same each time.

use std::io::{self, Write};

use super::sketch::{is_sampled, mix};

/// Most room of the texts in a sample.
const MOST_TEXT_BYTES: usize = 32 << 20;

/// A request that is kept.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub(crate) number: u64,
    pub(crate) stretch: usize,
    pub(crate) end: i64,
    pub(crate) duration: i64,
    pub(crate) object: u64,
    pub(crate) sent: i64,
    /// -1 when not known.
    pub(crate) size: i64,
    pub(crate) range: Option<(i64, i64)>,
    pub(crate) server: Box<str>,
    pub(crate) path: Box<str>,
}

impl Request {
    fn text_bytes(&self) -> usize {
        self.server.len() + self.path.len()
    }
}

/// The requests of a log that are kept.
#[derive(Debug)]
pub(crate) struct Sample {
    most: usize,
    level: u32,
    text_bytes: usize,
    requests: Vec<Request>,
}

impl Sample {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            level: 0,
            text_bytes: 0,
            requests: Vec::new(),
        }
    }

    /// Whether the request on this line is kept.
    pub(crate) fn wants(&self, number: u64) -> bool {
        self.most > 0 && is_sampled(mix(number), self.level)
    }

    /// Keeps a request.
    pub(crate) fn add(&mut self, request: Request) {
        self.text_bytes += request.text_bytes();
        self.requests.push(request);
        while self.requests.len() > self.most || self.text_bytes > MOST_TEXT_BYTES {
            self.level += 1;
            let level = self.level;
            self.requests
                .retain(|request| is_sampled(mix(request.number), level));
            self.text_bytes = self.requests.iter().map(Request::text_bytes).sum();
        }
    }

    /// Prints the requests in the order of their lines.
    pub(crate) fn write(&self, output: &mut impl Write) -> io::Result<()> {
        write!(output, r#"{{"level":{},"requests":["#, self.level)?;
        for (at, r) in self.requests.iter().enumerate() {
            if at > 0 {
                output.write_all(b",")?;
            }
            serde_json::to_writer(
                &mut *output,
                &(
                    r.number, r.stretch, r.end, r.duration, r.object, r.sent, r.size, r.range,
                    &r.server, &r.path,
                ),
            )?;
        }
        output.write_all(b"]}")
    }
}
