//! A response of a multiplexed protocol, whose head and body arrive separately.

use super::fields::Fields;
use super::{NotHttp, Response, State};
use crate::failure::Failure;
use crate::plan::Method;

impl Response {
    /// Takes the head.
    ///
    /// # Errors
    /// `NotHttp` for contradictory fields.
    pub fn take_head(
        &mut self,
        status: u16,
        headers: &[httparse::Header<'_>],
    ) -> Result<(), NotHttp> {
        let fields = Fields::read(headers)?;
        self.started = true;
        self.status = status;
        self.declared_bytes = fields.length;
        self.content_range = fields.range;
        self.encoded = fields.encoded;
        self.worker = fields.worker;
        self.keepalive = true;
        self.state = State::UntilClose;
        Ok(())
    }

    /// Takes a part of the body.
    ///
    /// # Errors
    /// `NotHttp` before the head or after the end.
    pub fn take_body(&mut self, bytes: &[u8]) -> Result<(), NotHttp> {
        if self.state != State::UntilClose {
            return Err(NotHttp::Status(self.status));
        }
        self.see(bytes);
        self.skip_payload(bytes.len() as u64);
        Ok(())
    }

    /// Handles the end of the stream; returns the failure, `None` if the response is complete (RFC
    /// 9113 §8.1.1).
    pub fn end_stream(&mut self) -> Option<Failure> {
        let without_body = self.method == Method::Head || matches!(self.status, 204 | 304);
        let declared = self.declared_bytes.filter(|_| !without_body);
        self.state = State::Complete;
        match declared {
            Some(declared) if self.body_bytes < declared => Some(Failure::Truncated),
            Some(declared) if self.body_bytes > declared => Some(Failure::Parse),
            _ if without_body && self.body_bytes > 0 => Some(Failure::Parse),
            _ => None,
        }
    }
}
