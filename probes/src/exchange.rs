//! One request and what has come of its response, whatever carries the two.

use std::ops::Range;

use crate::clock::{MILLISECOND, Nanos};
use crate::plan::Method;
use crate::request::{Reached, Request};
use crate::response::Response;

/// A pause inside a response that is as long as Linux delays an acknowledgement for which the
/// server waits: 40 ms and what a busy machine adds.
const DELAYED_ACKNOWLEDGEMENT: Range<Nanos> = 35 * MILLISECOND..60 * MILLISECOND;

/// How a request is sent.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Its class, by the place in the plan.
    pub class: usize,
    /// Its method.
    pub method: Method,
    /// What its class's client wrote of it.
    pub bytes: &'a [u8],
    /// Whether the response's body gets a checksum.
    pub samples_body: bool,
    /// Whether the kernel is asked when the response began.
    pub wants_stamp: bool,
    /// Whether the connection closes behind it.
    pub is_last: bool,
}

/// A request on its way and its response.
#[derive(Debug)]
pub struct Exchange {
    /// The request.
    pub request: Request,
    /// Its class, by the place in the plan.
    pub class: usize,
    /// What has come of the response.
    pub response: Response,
    /// When the response began, 0 while it has not.
    pub first_byte: Nanos,
    /// When the last bytes came.
    pub last_byte: Nanos,
    /// Bytes of the body that its class was told of.
    pub told_bytes: u64,
    /// Whether it is to be asked when the response began.
    pub wants_stamp: bool,
    /// For how long it had lain in the kernel then, where that was asked.
    pub receive_lag: Option<Nanos>,
    /// Pauses inside the response that look like a delayed acknowledgement.
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

    /// An exchange whose request was not sent yet.
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

    /// Takes note that bytes of the response have come.
    pub fn came(&mut self, now: Nanos) {
        if self.first_byte == 0 {
            self.first_byte = now;
        } else if DELAYED_ACKNOWLEDGEMENT.contains(&(now - self.last_byte)) {
            self.stalls += 1;
        }
        self.last_byte = now;
    }

    /// When its time is up.
    pub fn deadline(&self, timeout: Nanos) -> Nanos {
        self.request.intended.saturating_add(timeout)
    }

    /// How far the request came, once it was sent.
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
