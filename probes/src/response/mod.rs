//! A response as a state machine over bytes, without sockets or clocks.
//!
//! Bytes come in pieces of any size. If the next bytes can only be payload, `payload_ahead` is
//! their exact number, so that the caller may discard them inside the kernel. Framing follows RFC
//! 9112 §6 and §7.

mod chunked;
mod content_range;
mod fields;
mod head;
mod not_http;
mod stream;

use self::chunked::Chunk;
use self::content_range::ContentRange;
pub use self::not_http::{NotHttp, Part};
use crate::failure::Failure;
use crate::plan::{ByteRange, Method};

/// A response that is being received.
#[derive(Debug)]
pub struct Response {
    method: Method,
    state: State,
    /// The head so far, if it came in more than one piece.
    head: Vec<u8>,
    started: bool,
    status: u16,
    declared_bytes: Option<u64>,
    /// The range of a 206.
    content_range: Option<ContentRange>,
    /// True if the body is compressed; then its length is not that of the object.
    encoded: bool,
    body_bytes: u64,
    /// The bytes of chunk framing.
    framing_bytes: u64,
    /// The reason why the bytes are not HTTP.
    not_http: Option<NotHttp>,
    /// The checksum of the body, if it is sampled.
    checksum: Option<crc32fast::Hasher>,
    keepalive: bool,
    worker: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Head,
    Length { left: u64 },
    Chunk(Chunk),
    UntilClose,
    Complete,
}

impl Response {
    /// A response of which nothing has arrived yet.
    pub fn new() -> Self {
        Self {
            method: Method::Get,
            state: State::Head,
            head: Vec::new(),
            started: false,
            status: 0,
            declared_bytes: None,
            content_range: None,
            encoded: false,
            body_bytes: 0,
            framing_bytes: 0,
            not_http: None,
            checksum: None,
            keepalive: false,
            worker: None,
        }
    }

    /// Resets the state for the response to a new request; keeps its memory.
    pub fn expect(&mut self, method: Method) {
        self.method = method;
        self.state = State::Head;
        self.head.clear();
        self.started = false;
        self.status = 0;
        self.declared_bytes = None;
        self.content_range = None;
        self.encoded = false;
        self.body_bytes = 0;
        self.framing_bytes = 0;
        self.not_http = None;
        self.checksum = None;
        self.keepalive = false;
        self.worker = None;
    }

    /// Starts a checksum of the body, which must then be read completely.
    pub fn sample_body(&mut self) {
        self.checksum = Some(crc32fast::Hasher::new());
    }

    /// Whether the body must be read.
    pub fn is_sampled(&self) -> bool {
        self.checksum.is_some()
    }

    /// The checksum of a sampled body (CRC-32, as in gzip).
    pub fn checksum(&self) -> Option<u32> {
        self.checksum.clone().map(crc32fast::Hasher::finalize)
    }

    /// Whether any byte of it has arrived.
    pub fn has_started(&self) -> bool {
        self.started
    }

    /// Whether it is complete.
    pub fn is_complete(&self) -> bool {
        self.state == State::Complete
    }

    /// The status; 0 before the head is complete.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// The reason why the received bytes are not HTTP, if they are not.
    pub fn not_http(&self) -> Option<NotHttp> {
        self.not_http
    }

    /// The number of body bytes received.
    pub fn body_bytes(&self) -> u64 {
        self.body_bytes
    }

    /// Whether the connection can be used again after it.
    pub fn keeps_connection(&self) -> bool {
        self.keepalive
    }

    /// The number in `X-Probe-Worker`.
    pub fn worker(&self) -> Option<u64> {
        self.worker
    }

    /// The number of next bytes that can only be payload.
    pub fn payload_ahead(&self) -> u64 {
        match self.state {
            State::Length { left } | State::Chunk(Chunk::Data { left }) => left,
            State::UntilClose => u64::MAX,
            State::Head | State::Chunk(_) | State::Complete => 0,
        }
    }

    /// Whether the response ends with the payload ahead, so that further bytes do not belong to it.
    pub fn ends_with_payload(&self) -> bool {
        matches!(self.state, State::Length { .. })
    }

    /// Whether only the end of the connection ends it.
    pub fn ends_with_the_connection(&self) -> bool {
        self.state == State::UntilClose
    }

    /// Records payload that was discarded unread; at most `payload_ahead`.
    pub fn skip_payload(&mut self, count: u64) {
        self.body_bytes += count;
        match &mut self.state {
            State::Length { left } => {
                *left -= count;
                if *left == 0 {
                    self.state = State::Complete;
                }
            }
            State::Chunk(chunk @ Chunk::Data { .. }) => {
                if let Chunk::Data { left } = chunk {
                    *left -= count;
                    if *left == 0 {
                        *chunk = Chunk::DataCr;
                    }
                }
            }
            State::Head | State::Chunk(_) | State::UntilClose | State::Complete => {}
        }
    }

    /// Takes the next bytes; returns the number that belong to this response.
    ///
    /// # Errors
    /// `NotHttp` if they cannot belong to any response.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<usize, NotHttp> {
        let taken = self.take(bytes);
        self.not_http = taken.err();
        taken
    }

    fn take(&mut self, bytes: &[u8]) -> Result<usize, NotHttp> {
        self.started |= !bytes.is_empty();
        let mut taken = 0;
        while taken < bytes.len() && self.state != State::Complete {
            let rest = &bytes[taken..];
            taken += match self.state {
                State::Head => self.feed_head(rest)?,
                State::Chunk(chunk) if !matches!(chunk, Chunk::Data { .. }) => {
                    let offset = self.body_bytes + self.framing_bytes;
                    let next = chunk.after(rest[0], offset)?;
                    self.state = next.map_or(State::Complete, State::Chunk);
                    self.framing_bytes += 1;
                    1
                }
                _ => {
                    let count = self.payload_ahead().min(rest.len() as u64);
                    self.see(&rest[..count as usize]);
                    self.skip_payload(count);
                    count as usize
                }
            };
        }
        Ok(taken)
    }

    /// Adds bytes of the body to its checksum, if it is sampled.
    fn see(&mut self, bytes: &[u8]) {
        if let Some(checksum) = &mut self.checksum {
            checksum.update(bytes);
        }
    }

    /// Handles the end of the connection; returns the failure, `None` if it completes the response.
    pub fn end(&mut self) -> Option<Failure> {
        match self.state {
            State::UntilClose | State::Complete => {
                self.state = State::Complete;
                None
            }
            State::Head if !self.started => Some(Failure::Empty),
            State::Head | State::Length { .. } | State::Chunk(_) => Some(Failure::Truncated),
        }
    }

    /// The fault of a complete response; `None` if it is as expected. The length of a compressed
    /// body is not checked, since it is not that of the object.
    pub fn fault(&self, statuses: &[u16], expected_bytes: Option<u64>) -> Option<Failure> {
        if !statuses.contains(&self.status) {
            return Some(Failure::Status);
        }
        let expected = expected_bytes?;
        let has_no_body = matches!(self.status, 204 | 304);
        let got = match self.method {
            _ if has_no_body || self.encoded => return None,
            Method::Head => self.declared_bytes?,
            Method::Get => self.body_bytes,
        };
        (got != expected).then_some(Failure::Length)
    }

    /// The same for a request for a part of an object of `size` bytes (`None`: unknown). If the
    /// plan expects 200 for whole objects, 206 is expected for a part.
    pub fn fault_of_range(
        &self,
        statuses: &[u16],
        range: ByteRange,
        size: Option<u64>,
    ) -> Option<Failure> {
        if self.status != 206 {
            let whole = self.status == 200;
            return self
                .fault(statuses, None)
                .or(whole.then_some(Failure::Status));
        }
        if !statuses.contains(&200) && !statuses.contains(&206) {
            return Some(Failure::Status);
        }
        match self.content_range {
            Some(got) if got.answers(range, size) => self.fault(&[206], Some(got.bytes())),
            _ => Some(Failure::Range),
        }
    }
}

impl Default for Response {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
