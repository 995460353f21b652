//! A request and its response so far, over any protocol.

use std::ops::Range;

use crate::clock::{MILLISECOND, Nanos};
use crate::plan::Method;
use crate::request::{Reached, Request};
use crate::response::Response;

/// The length of a pause inside a response that suggests a delayed acknowledgement: Linux's 40 ms,
/// with a margin for a busy machine.
const DELAYED_ACKNOWLEDGEMENT: Range<Nanos> = 35 * MILLISECOND..60 * MILLISECOND;

/// The parameters for sending a request.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// The index of its class in the plan.
    pub class: usize,
    /// Its method.
    pub method: Method,
    /// The request as written by the client of its class.
    pub bytes: &'a [u8],
    /// True to compute a checksum of the response's body.
    pub samples_body: bool,
    /// True to ask the kernel for the arrival time of the response.
    pub wants_stamp: bool,
    /// True if the connection closes after it.
    pub is_last: bool,
}

/// A request in progress with its response.
#[derive(Debug)]
pub struct Exchange {
    /// The request.
    pub request: Request,
    /// The index of its class in the plan.
    pub class: usize,
    /// The response so far.
    pub response: Response,
    /// The time of the response's first byte; 0 before it.
    pub first_byte: Nanos,
    /// The time of the latest bytes.
    pub last_byte: Nanos,
    /// Body bytes that were already counted for its class.
    pub told_bytes: u64,
    /// True to ask the kernel for the arrival time of the response.
    pub wants_stamp: bool,
    /// The time that the first byte waited in the kernel, if it was measured.
    pub receive_lag: Option<Nanos>,
    /// The number of pauses in the response that look like a delayed acknowledgement.
    pub stalls: u32,
}

impl Exchange {
    /// An exchange whose request is sent now.
    pub fn asked(request: Request, ask: &Ask<'_>) -> Self {
        let mut response = Response::new();
        response.expect(ask.method);
        if ask.samples_body {
            response.sample_body();
        }
        Self {
            class: ask.class,
            response,
            wants_stamp: ask.wants_stamp,
            ..Self::new(request)
        }
    }

    /// An exchange whose request has not been sent yet.
    pub fn new(request: Request) -> Self {
        Self {
            request,
            class: 0,
            response: Response::new(),
            first_byte: 0,
            last_byte: 0,
            told_bytes: 0,
            wants_stamp: false,
            receive_lag: None,
            stalls: 0,
        }
    }

    /// Records the arrival of bytes of the response.
    pub fn came(&mut self, now: Nanos) {
        if self.first_byte == 0 {
            self.first_byte = now;
        } else if DELAYED_ACKNOWLEDGEMENT.contains(&(now - self.last_byte)) {
            self.stalls += 1;
        }
        self.last_byte = now;
    }

    /// The time at which its time limit ends.
    pub fn deadline(&self, timeout: Nanos) -> Nanos {
        self.request.intended.saturating_add(timeout)
    }

    /// The progress of a request that was sent.
    pub fn reached(&self) -> Reached {
        Reached {
            sent: true,
            first_byte: self.first_byte,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Exchange;
    use crate::clock::MILLISECOND;
    use crate::request::Request;

    #[test]
    fn a_pause_as_long_as_a_delayed_acknowledgement_is_counted() {
        let mut exchange = Exchange::new(Request::new(0, 0, 0));
        let (mut now, pauses) = (7, [34, 35, 59, 60, 0].map(|count| count * MILLISECOND));
        exchange.came(now);
        for pause in pauses {
            now += pause;
            exchange.came(now);
        }
        assert_eq!((exchange.first_byte, exchange.last_byte), (7, now));
        assert_eq!(exchange.stalls, 2, "35 and 59 ms, not 34, 60 or none");
    }
}
