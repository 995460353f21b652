//! The body of a request: made as it is sent, never stored.
//!
//! What is sent is a text of 64 KiB that is said again and again, so that any part of any body is known
//! without having been kept, and whoever gets it can check it by its place.

mod tally;

use std::io::Write as _;
use std::sync::LazyLock;

pub use self::tally::{Tally, UploadEnd};
use crate::clock::{NEVER, Nanos, SECOND};
use crate::failure::Failure;
use crate::plan;
use crate::trickle::Trickle;

/// After how many bytes the text begins again.
const PERIOD: usize = 1 << 16;

/// Bytes that are made at once.
pub const PIECE_BYTES: u64 = PERIOD as u64;

/// How long a body waits for `100 Continue` (RFC 9110 §10.1.1 wants a bound; curl's is as long).
const CONTINUE_WAIT: Nanos = SECOND;

/// The text twice, so that a piece that begins anywhere lies in one part.
static CONTENT: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let byte = |place: usize| {
        let number = (place % PERIOD) as u32;
        number.wrapping_mul(0x9e37_79b1).to_be_bytes()[0]
    };
    (0..2 * PERIOD).map(byte).collect()
});

/// The next `count` bytes of a body from a place on; at most `PIECE_BYTES`.
fn text(place: u64, count: u64) -> &'static [u8] {
    let first = place as usize % PERIOD;
    &CONTENT[first..first + count as usize]
}

/// Whether the last byte of a body was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HandedOver {
    No,
    At(Nanos),
    /// And that was told.
    Told,
}

/// A body on its way.
#[derive(Debug)]
pub struct Upload {
    bytes: u64,
    made: u64,
    /// What was told of that.
    told: u64,
    /// What a slow client sends at once, and how long it rests then; none sends what the socket takes.
    pace: Option<Trickle>,
    /// What it may still send before it rests.
    budget: u64,
    /// Nothing goes before this.
    next: Nanos,
    awaits_word: bool,
    is_chunked: bool,
    /// Nothing is to be made any more.
    is_made: bool,
    handed_over: HandedOver,
    /// Why the connection takes no more of it.
    pub broken: Option<Failure>,
}

impl Upload {
    /// A body of so many bytes, whose request is sent now.
    pub fn new(bytes: u64, plan: &plan::Upload, now: Nanos) -> Self {
        let awaits_word = plan.expect_continue && bytes > 0;
        Self {
            bytes,
            made: 0,
            told: 0,
            pace: (plan.bytes_per_second > 0).then(|| Trickle::new(plan.bytes_per_second)),
            budget: 0,
            next: if awaits_word {
                now + CONTINUE_WAIT
            } else {
                now
            },
            awaits_word,
            is_chunked: plan.chunked,
            is_made: bytes == 0 && !plan.chunked,
            handed_over: HandedOver::No,
            broken: None,
        }
    }

    /// How long it is.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether nothing is to be made any more.
    pub fn is_made(&self) -> bool {
        self.is_made
    }

    /// Whether its last byte was handed over.
    pub fn is_handed_over(&self) -> bool {
        self.handed_over != HandedOver::No
    }

    /// When more of it may go; `NEVER` where all was made.
    pub fn next_moment(&self) -> Nanos {
        if self.is_made { NEVER } else { self.next }
    }

    /// The server wants it.
    pub fn go_on(&mut self, now: Nanos) {
        if self.awaits_word {
            self.awaits_word = false;
            self.next = now;
        }
    }

    /// How much of it may be made now, at most `most`. Time in which the socket took nothing is not
    /// made up for: a slow client is never a fast one.
    pub fn allowed(&mut self, now: Nanos, most: u64) -> u64 {
        let left = self.bytes - self.made;
        if now < self.next && (self.budget == 0 || self.awaits_word) {
            return 0;
        }
        self.awaits_word = false;
        let Some(pace) = self.pace else {
            return left.min(most);
        };
        if self.budget == 0 {
            self.budget = pace.bytes;
            let late = now - self.next;
            self.next = if late > pace.rest { now } else { self.next } + pace.rest;
        }
        left.min(self.budget).min(most)
    }

    /// Makes so many bytes, as many as are allowed, as they are.
    pub fn take(&mut self, count: u64) -> &'static [u8] {
        let piece = text(self.made, count);
        self.made += count;
        self.budget -= count.min(self.budget);
        self.is_made = self.made == self.bytes;
        piece
    }

    /// The same as HTTP/1.1 frames them, in `scratch` where that is more than the bytes themselves.
    pub fn framed<'a>(&mut self, count: u64, scratch: &'a mut Vec<u8>) -> &'a [u8] {
        let piece = self.take(count);
        if !self.is_chunked {
            return piece;
        }
        scratch.clear();
        if count > 0 {
            // Into a vector: cannot fail.
            let _ = write!(scratch, "{count:x}\r\n");
            scratch.extend_from_slice(piece);
            scratch.extend_from_slice(b"\r\n");
        }
        if self.is_made {
            scratch.extend_from_slice(b"0\r\n\r\n");
        }
        scratch
    }

    /// How many bytes were made since this was last asked.
    pub fn take_untold(&mut self) -> u64 {
        let more = self.made - self.told;
        self.told = self.made;
        more
    }

    /// All of it was handed over.
    pub fn hand_over(&mut self, now: Nanos) {
        if self.handed_over == HandedOver::No {
            self.handed_over = HandedOver::At(now);
        }
    }

    /// When its last byte was handed over, once.
    pub fn take_handed_over(&mut self) -> Option<Nanos> {
        let HandedOver::At(moment) = self.handed_over else {
            return None;
        };
        self.handed_over = HandedOver::Told;
        Some(moment)
    }
}

#[cfg(test)]
mod tests {
    use super::{CONTINUE_WAIT, PERIOD, PIECE_BYTES, Upload};
    use crate::clock::{MILLISECOND, NEVER, SECOND};
    use crate::plan;

    fn plan() -> plan::Upload {
        plan::Upload {
            bytes: vec![1],
            bytes_per_second: 0,
            chunked: false,
            expect_continue: false,
        }
    }

    #[test]
    fn a_body_is_its_text_whatever_the_pieces() {
        let bytes = 3 * PERIOD as u64 + 77;
        let mut whole = Vec::new();
        for most in [PIECE_BYTES, 1, 16_384, 65_535] {
            let mut upload = Upload::new(bytes, &plan(), 5);
            let mut body = Vec::new();
            while !upload.is_made() {
                let count = upload.allowed(5, most);
                body.extend_from_slice(upload.framed(count, &mut Vec::new()));
            }
            assert_eq!(body.len() as u64, bytes, "{most}");
            if whole.is_empty() {
                whole = body;
            } else {
                assert!(whole == body, "{most}");
            }
        }
        assert_eq!(whole[PERIOD + 9], whole[9]);
        assert_ne!(whole[..4096], whole[4096..8192]);
    }

    #[test]
    fn chunks_say_their_length_and_the_last_is_empty() {
        let plan = plan::Upload {
            chunked: true,
            ..plan()
        };
        let mut upload = Upload::new(20, &plan, 5);
        let mut scratch = Vec::new();
        let count = upload.allowed(5, 16);
        assert!(upload.framed(count, &mut scratch).starts_with(b"10\r\n"));
        assert!(!upload.is_made());
        let count = upload.allowed(5, 16);
        assert!(
            upload
                .framed(count, &mut scratch)
                .ends_with(b"\r\n0\r\n\r\n")
        );
        assert!(upload.is_made());
        let mut empty = Upload::new(0, &plan, 5);
        let count = empty.allowed(5, 16);
        assert_eq!(empty.framed(count, &mut scratch), b"0\r\n\r\n");
    }

    #[test]
    fn a_slow_client_sends_so_much_a_second_and_makes_up_for_no_blocked_time() {
        for rate in [100_u64, 50_000, 50_000_000] {
            let plan = plan::Upload {
                bytes_per_second: rate,
                ..plan()
            };
            let mut upload = Upload::new(rate * 10, &plan, 0);
            let (mut now, mut sent) = (0, 0);
            let mut go = |upload: &mut Upload, until| {
                while now < until {
                    loop {
                        let count = upload.allowed(now, 16_384);
                        if count == 0 {
                            break;
                        }
                        sent += upload.take(count).len() as u64;
                    }
                    now = upload.next_moment().min(until);
                }
                sent
            };
            let first = go(&mut upload, SECOND);
            assert!(first.abs_diff(rate) <= rate / 50, "{first} of {rate}");
            // Blocked for five seconds.
            let mut later = 6 * SECOND;
            let mut burst = 0;
            for _ in 0..50 {
                loop {
                    let count = upload.allowed(later, 16_384);
                    if count == 0 {
                        break;
                    }
                    burst += upload.take(count).len() as u64;
                }
                later += 20 * MILLISECOND;
            }
            assert!(burst <= rate + rate / 25 + 2, "{burst} of {rate}");
        }
    }

    #[test]
    fn a_body_waits_for_the_word_that_it_is_wanted_but_not_for_ever() {
        let plan = plan::Upload {
            expect_continue: true,
            ..plan()
        };
        let mut upload = Upload::new(9, &plan, 7);
        assert_eq!(upload.allowed(8, 100), 0);
        assert_eq!(upload.next_moment(), 7 + CONTINUE_WAIT);
        upload.go_on(20);
        assert_eq!(upload.allowed(20, 100), 9);
        let mut unheard = Upload::new(9, &plan, 7);
        assert_eq!(unheard.allowed(7 + CONTINUE_WAIT, 100), 9);
        unheard.take(9);
        assert_eq!(unheard.next_moment(), NEVER);
        unheard.hand_over(50);
        unheard.hand_over(60);
        assert_eq!(unheard.take_handed_over(), Some(50));
        assert_eq!(unheard.take_handed_over(), None);
    }
}
