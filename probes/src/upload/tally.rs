//! What the bodies of a class's requests came to.

use crate::clock::Nanos;
use crate::distribution::Distribution;

/// How a body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UploadEnd {
    /// It was handed over, and the far side says that it got as much.
    Confirmed,
    /// It was handed over and the answer is good; nobody says how much came.
    Unconfirmed,
    /// The answer was whole before the body was handed over.
    EarlyAnswer,
    /// The connection ended inside the body.
    CutOff,
    /// Otherwise: its time was up, or another answer than expected.
    Other,
}

/// Counts and the time until bodies were handed over. A body counts as its request does, bytes count
/// when they go.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// Bodies whose last byte was handed over.
    pub bodies: u64,
    /// Bytes that went in the measured time.
    pub bytes: u64,
    /// See `UploadEnd`.
    pub confirmed: u64,
    /// See `UploadEnd`.
    pub unconfirmed: u64,
    /// See `UploadEnd`.
    pub early_answers: u64,
    /// See `UploadEnd`.
    pub cut_off: u64,
    /// From the intended start until the last byte was handed over.
    pub upload: Distribution,
}

impl Tally {
    /// The last byte of a body was handed over so long after its request was due.
    pub fn handed_over(&mut self, took: Nanos) {
        self.bodies += 1;
        self.upload.record(took);
    }

    /// A request of this age is given up, its body not handed over.
    pub fn not_handed_over(&mut self, age: Nanos) {
        self.upload.record_at_least(age);
    }

    /// A body ended.
    pub fn ended(&mut self, end: UploadEnd) {
        match end {
            UploadEnd::Confirmed => self.confirmed += 1,
            UploadEnd::Unconfirmed => self.unconfirmed += 1,
            UploadEnd::EarlyAnswer => self.early_answers += 1,
            UploadEnd::CutOff => self.cut_off += 1,
            UploadEnd::Other => {}
        }
    }

    /// Adds what another thread saw.
    pub fn add(&mut self, other: &Self) {
        self.bodies += other.bodies;
        self.bytes += other.bytes;
        self.confirmed += other.confirmed;
        self.unconfirmed += other.unconfirmed;
        self.early_answers += other.early_answers;
        self.cut_off += other.cut_off;
        self.upload.add(&other.upload);
    }
}

#[cfg(test)]
mod tests {
    use super::{Tally, UploadEnd};

    #[test]
    fn what_threads_counted_adds() {
        let mut one = Tally {
            bytes: 7,
            ..Tally::default()
        };
        one.handed_over(5);
        one.not_handed_over(9);
        for end in [
            UploadEnd::Confirmed,
            UploadEnd::Unconfirmed,
            UploadEnd::Unconfirmed,
            UploadEnd::EarlyAnswer,
            UploadEnd::CutOff,
            UploadEnd::Other,
        ] {
            one.ended(end);
        }
        let mut all = Tally::default();
        all.add(&one);
        all.add(&one);
        assert_eq!((all.bodies, all.bytes), (2, 14));
        assert_eq!((all.confirmed, all.unconfirmed), (2, 4));
        assert_eq!((all.early_answers, all.cut_off), (2, 2));
        assert_eq!((all.upload.count(), all.upload.censored()), (4, 2));
    }
}
