//! The ends of requests, and the repetition of requests that were not served.

use super::Engine;
use crate::clock::Nanos;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::protocol::{End, Ended, Protocol as _};
use crate::request::{Reached, Request};

/// The number of refusals after which a request counts as refused for good. A single refusal is
/// normal: nginx counts a stream even after it has sent the last frame.
const MOST_REFUSALS: u8 = 8;

impl Engine<'_> {
    /// Handles the end of an exchange: judges the response, or sends the request again.
    pub(super) fn end_exchange(&mut self, slot: u32, ended: Ended, now: Nanos) {
        let Ended { exchange, end } = ended;
        let (index, request) = (exchange.class, exchange.request);
        let class = &mut self.classes[index];
        class.in_flight -= 1;
        if class.counts_stalls() {
            class.recorder.ack_stall_suspects += u64::from(exchange.stalls);
        }
        match end {
            End::Whole => self.end_whole(slot, &exchange, now),
            End::Failed(failure) => {
                class.not_http = class.not_http.or(exchange.response.not_http());
                if exchange.response.status() != 0 {
                    let status = exchange.response.status();
                    class.recorder.answered(&request, status);
                }
                class.failed(&request, exchange.reached(), failure, now);
            }
            End::Stale if request.retries == 0 => self.send_again(index, &exchange, true),
            End::Refused if request.retries < MOST_REFUSALS => {
                self.send_again(index, &exchange, false);
            }
            End::Unseen => self.send_again(index, &exchange, false),
            End::Stale | End::Refused => {
                class.failed(&request, exchange.reached(), Failure::Reset, now);
            }
        }
    }

    /// Judges a complete response.
    fn end_whole(&mut self, slot: u32, exchange: &Exchange, now: Nanos) {
        let request = exchange.request;
        let class = &mut self.classes[exchange.class];
        class.spare_failures = 0;
        if let Some(lag) = exchange.receive_lag {
            class.recorder.stamped(&request, exchange.first_byte, lag);
        }
        let mut place = None;
        if let Some(connection) = self.sockets.get(slot) {
            connection.served += 1;
            if let Some(round_trip) = connection.round_trip() {
                class.recorder.went_and_came(&request, round_trip);
            }
            place = Some(connection.worker_of(exchange.class));
        }
        let fault = class.judge(exchange, place, now);
        self.pace.answered(now.saturating_sub(request.sent));
        match fault {
            None => class.succeeded(&request, exchange.first_byte, now),
            Some(failure) => class.failed(&request, exchange.reached(), failure, now),
        }
    }

    /// Sends a request that was not served again, with its intended time: on a new connection, or
    /// once there is room.
    fn send_again(&mut self, index: usize, exchange: &Exchange, is_on_a_new_one: bool) {
        let mut request = exchange.request;
        if !self.may_send() {
            return self.fail(index, &request, exchange.reached(), Failure::Reset);
        }
        let class = &mut self.classes[index];
        class.recorder.retries(&request);
        request.retries = request.retries.saturating_add(1);
        class.await_deadline(&request);
        if is_on_a_new_one {
            self.open(index, request);
        } else {
            class.pending.push_front(request);
        }
    }

    /// Closes a failed connection; its requests, sent or waiting for it, fail.
    pub(super) fn lose(&mut self, slot: u32, failure: Failure) {
        let now = self.clock.now();
        let Some(connection) = self.sockets.get(slot) else {
            return;
        };
        let (index, served) = (connection.class, connection.served);
        if let Some((word, why)) = connection.spoken.reason(failure) {
            self.accounts.faults.entry(word).or_insert(why);
        }
        if connection.is_spare {
            return self.lose_spare(slot, index, failure);
        }
        let exchanges = connection.spoken.take_all();
        let (waiting, stale) = (connection.waiting.take(), connection.spoken.stale());
        self.close(slot);
        if let Some(request) = waiting {
            self.classes[index].in_flight -= 1;
            return self.fail(index, &request, Reached::NOT_SENT, failure);
        }
        if served == 0 && exchanges.is_empty() {
            // Without a request, this counts as a failed handshake.
            self.classes[index].spare_failed(now);
        }
        for exchange in exchanges {
            let is_closed = matches!(failure, Failure::Empty | Failure::Reset);
            let has_started = exchange.response.has_started();
            // The race of a kept connection: the server closed it before it saw the request.
            let end = if is_closed && has_started {
                End::Failed(Failure::Truncated)
            } else if is_closed && served > 0 {
                stale
            } else {
                End::Failed(failure)
            };
            self.end_exchange(slot, Ended { exchange, end }, now);
        }
        self.proceed(index);
    }

    pub(super) fn fail(
        &mut self,
        class: usize,
        request: &Request,
        reached: Reached,
        failure: Failure,
    ) {
        let now = self.clock.now();
        self.classes[class].failed(request, reached, failure, now);
        self.proceed(class);
    }
}
