//! The head of a response: its end, and the framing of the body after it (RFC 9112 §6).

use std::mem::MaybeUninit;

use super::chunked::Chunk;
use super::fields::{Coding, Fields};
use super::not_http::{self, LONGEST_HEAD_BYTES, MOST_HEADERS, NotHttp, Part};
use super::{Response, State};
use crate::plan::Method;

impl Response {
    /// Takes bytes of the head; returns their number, which is that of all bytes while the head is
    /// incomplete.
    pub(super) fn feed_head(&mut self, bytes: &[u8]) -> Result<usize, NotHttp> {
        // Nearly always, the head comes in one piece and is parsed in place.
        if self.head.is_empty() {
            let whole = self.parse_head(bytes)?;
            if whole.unwrap_or(bytes.len()) > LONGEST_HEAD_BYTES {
                return Err(NotHttp::HeadTooLong);
            }
            if let Some(length) = whole {
                return Ok(length);
            }
            self.head.extend_from_slice(bytes);
            return Ok(bytes.len());
        }
        let before = self.head.len();
        // The text after the head in the same piece may be longer than any head.
        let room = LONGEST_HEAD_BYTES - before;
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let head = std::mem::take(&mut self.head);
        let parsed = self.parse_head(&head);
        self.head = head;
        match parsed? {
            Some(length) => {
                self.head.clear();
                Ok(length - before)
            }
            None if bytes.len() > room => Err(NotHttp::HeadTooLong),
            None => Ok(bytes.len()),
        }
    }

    /// Parses a complete head and decides on the framing; returns its length, or `None` while it is
    /// incomplete.
    fn parse_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, NotHttp> {
        let mut headers = [const { MaybeUninit::uninit() }; MOST_HEADERS];
        let mut head = httparse::Response::new(&mut []);
        let parser = httparse::ParserConfig::default();
        let length = match parser.parse_response_with_uninit_headers(&mut head, bytes, &mut headers)
        {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(error) => return Err(fault_of_head(error, bytes)),
        };
        let status = head.code.unwrap_or_default();
        match status {
            // No change of protocols was requested.
            0..=99 | 101 => return Err(NotHttp::Status(status)),
            // An interim response: the final one follows.
            102..=199 | 100 => {
                return Ok(Some(length));
            }
            _ => {}
        }
        let fields = Fields::read(head.headers)?;
        self.status = status;
        self.declared_bytes = fields.length;
        self.content_range = fields.range;
        self.encoded = fields.encoded;
        self.worker = fields.worker;
        self.keepalive = if head.version == Some(1) {
            !fields.close
        } else {
            fields.keepalive && !fields.close
        };
        self.state = if self.method == Method::Head || matches!(status, 204 | 304) {
            State::Complete
        } else if fields.coding == Coding::Chunked {
            // With both framings, RFC 9112 §6.3 requires closing the connection afterwards.
            self.keepalive &= fields.length.is_none();
            self.declared_bytes = None;
            State::Chunk(Chunk::START)
        } else if fields.coding == Coding::Other {
            self.keepalive = false;
            State::UntilClose
        } else {
            match fields.length {
                Some(0) => State::Complete,
                Some(left) => State::Length { left },
                None => {
                    self.keepalive = false;
                    State::UntilClose
                }
            }
        };
        Ok(Some(length))
    }
}

/// The fault of a head that the parser rejects.
fn fault_of_head(error: httparse::Error, bytes: &[u8]) -> NotHttp {
    if error == httparse::Error::TooManyHeaders {
        return NotHttp::TooManyFields;
    }
    let refuses = |count: usize| {
        let mut headers = [const { MaybeUninit::uninit() }; MOST_HEADERS];
        httparse::ParserConfig::default()
            .parse_response_with_uninit_headers(
                &mut httparse::Response::new(&mut []),
                &bytes[..count],
                &mut headers,
            )
            .is_err()
    };
    let offset = not_http::first_refused(bytes.len(), refuses) - 1;
    NotHttp::Byte {
        byte: bytes[offset],
        offset: offset as u64,
        part: Part::Head,
    }
}
