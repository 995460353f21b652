//! The bodies of a class's requests, if these have any: which of what becomes of them is measured.

use super::Recorder;
use crate::clock::Nanos;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::request::{Reached, Request};
use crate::upload::UploadEnd;

impl Recorder {
    /// Bytes of a body went.
    pub fn sent_body(&mut self, bytes: u64, now: Nanos) {
        let counts = self.window.contains(&now);
        if let Some(tally) = self.uploads.as_mut().filter(|_| counts) {
            tally.bytes += bytes;
        }
    }

    /// The last byte of a request's body was handed over at a moment; that counts once, however often
    /// the request is sent again.
    pub fn uploaded(&mut self, request: &Request, moment: Nanos) {
        let counts = self.measures(request.intended) && !request.is_uploaded;
        if let Some(tally) = self.uploads.as_mut().filter(|_| counts) {
            tally.handed_over(moment.saturating_sub(request.intended));
        }
    }

    /// A request is over; `failure` is what is wrong with it.
    pub(super) fn close_upload(&mut self, exchange: &Exchange, failure: Option<Failure>) {
        if !self.measures(exchange.request.intended) {
            return;
        }
        let Some(tally) = &mut self.uploads else {
            return;
        };
        let is_cut = matches!(
            failure,
            Some(Failure::Reset | Failure::Empty | Failure::Truncated)
        );
        tally.ended(if exchange.is_uploading() {
            match failure {
                _ if is_cut => UploadEnd::CutOff,
                Some(Failure::Timeout) => UploadEnd::Other,
                _ => UploadEnd::EarlyAnswer,
            }
        } else {
            match (failure, exchange.response.upload_bytes()) {
                (None, Some(_)) => UploadEnd::Confirmed,
                (None, None) => UploadEnd::Unconfirmed,
                _ => UploadEnd::Other,
            }
        });
    }

    /// A request that is measured is given up at this age.
    pub(super) fn not_uploaded(&mut self, request: &Request, reached: Reached, age: Nanos) {
        let counts = !reached.is_uploaded && !request.is_uploaded;
        if let Some(tally) = self.uploads.as_mut().filter(|_| counts) {
            tally.not_handed_over(age);
        }
    }
}
