//! Bodies that are watched while they come: event streams, long polls, tokens of a model.
//!
//! Of such a response the last byte says little. What counts is when the body began, how long it
//! stood still in between, and how long each event was on its way, where it says when it was sent.
//! A *piece* is what one look of the probe found of a body: as many events as someone on the way
//! gathered.

mod scan;
mod tally;

use std::io::Write as _;

use flate2::write::GzDecoder;

use self::scan::{Numbers, Text};
pub use self::tally::{BodyEnd, Tally};
use crate::clock::Nanos;
use crate::plan::EventStream;

/// What a body of gzip begins with (RFC 1952).
const GZIP: [u8; 2] = [0x1f, 0x8b];

/// Bytes of a compressed body that are unpacked at once.
const UNPACKED_AT_ONCE: usize = 256;

/// What one look at a body may come to: of a compressed one, 64 KiB are 64 MiB at most, and a stream of
/// events is never so. Beyond that its texts are not read any more.
const MOST_UNPACKED_BYTES: usize = 16 << 20;
const MOST_STAMPS: usize = 1 << 17;

/// One body that is watched.
#[derive(Debug)]
pub struct Watch {
    texts: Texts,
    coding: Coding,
    /// Bytes that came since a piece was last taken.
    fresh_bytes: u64,
    /// When the body began; 0 before.
    first: Nanos,
    /// When its last bytes came.
    last: Nanos,
}

/// What is looked for in a body.
#[derive(Debug)]
struct Texts {
    stamps: Option<Numbers>,
    end: Option<Text>,
    has_ended: bool,
    /// Stamps since a piece was last taken.
    found: Vec<u64>,
}

/// How the texts in a body are read.
#[derive(Debug)]
enum Coding {
    /// Nothing of it has come.
    Unknown,
    Plain,
    Gzip(Box<GzDecoder<Vec<u8>>>),
    /// They cannot be.
    Unreadable,
}

/// What one look found of a body.
#[derive(Debug)]
pub struct Piece<'w> {
    /// Since the piece before; none of the first.
    pub gap: Option<Nanos>,
    /// When its events were sent, as far as they say.
    pub stamps: std::vec::Drain<'w, u64>,
}

impl Watch {
    /// To watch a body of which nothing has come.
    pub fn new(plan: &EventStream) -> Self {
        Self {
            texts: Texts {
                stamps: plan.stamp.as_deref().map(Numbers::behind),
                end: plan.end.as_deref().map(Text::new),
                has_ended: false,
                found: Vec::new(),
            },
            coding: Coding::Unknown,
            fresh_bytes: 0,
            first: 0,
            last: 0,
        }
    }

    /// Takes bytes of the body; `encoded`: they are compressed.
    pub fn take(&mut self, bytes: &[u8], encoded: bool) {
        if bytes.is_empty() {
            return;
        }
        self.fresh_bytes += bytes.len() as u64;
        if self.texts.stamps.is_none() && self.texts.end.is_none() {
            return;
        }
        if let Coding::Unknown = self.coding {
            self.coding = match bytes.first() {
                _ if !encoded => Coding::Plain,
                Some(first) if *first == GZIP[0] => {
                    Coding::Gzip(Box::new(GzDecoder::new(Vec::new())))
                }
                _ => Coding::Unreadable,
            };
        }
        match &mut self.coding {
            Coding::Plain => self.texts.read(bytes),
            Coding::Gzip(unpacker) => {
                if !unpack(unpacker, bytes, &mut self.texts) {
                    self.coding = Coding::Unreadable;
                }
            }
            Coding::Unknown | Coding::Unreadable => {}
        }
        if self.texts.found.len() > MOST_STAMPS {
            self.texts.found.clear();
            self.coding = Coding::Unreadable;
        }
    }

    /// What has come since this was last asked, if anything has.
    pub fn take_piece(&mut self, now: Nanos) -> Option<Piece<'_>> {
        if std::mem::take(&mut self.fresh_bytes) == 0 {
            return None;
        }
        let gap = self.has_begun().then(|| now.saturating_sub(self.last));
        if self.first == 0 {
            self.first = now;
        }
        self.last = now;
        Some(Piece {
            gap,
            stamps: self.texts.found.drain(..),
        })
    }

    /// Whether a byte of the body has come.
    pub fn has_begun(&self) -> bool {
        self.first != 0
    }

    /// When it did.
    pub fn began(&self) -> Nanos {
        self.first
    }

    /// For how long nothing has come by now.
    pub fn silence(&self, now: Nanos) -> Nanos {
        now.saturating_sub(self.last)
    }

    /// Whether what every whole stream has at its end is missing.
    pub fn lacks_end(&self) -> bool {
        let is_readable = !matches!(self.coding, Coding::Unreadable);
        is_readable && self.texts.end.is_some() && !self.texts.has_ended
    }
}

/// Reads the texts in compressed bytes; whether these are such, and come to no more than is read.
fn unpack(unpacker: &mut GzDecoder<Vec<u8>>, bytes: &[u8], texts: &mut Texts) -> bool {
    let mut unpacked_bytes = 0;
    let mut read = |unpacker: &mut GzDecoder<Vec<u8>>| {
        unpacked_bytes += unpacker.get_ref().len();
        texts.read(unpacker.get_ref());
        unpacker.get_mut().clear();
        unpacked_bytes <= MOST_UNPACKED_BYTES && texts.found.len() <= MOST_STAMPS
    };
    for part in bytes.chunks(UNPACKED_AT_ONCE) {
        let is_good = unpacker.write_all(part).is_ok();
        if !read(unpacker) || !is_good {
            return false;
        }
    }
    // What was flushed is to be had now, and not with the next bytes.
    let is_good = unpacker.flush().is_ok();
    read(unpacker) && is_good
}

impl Texts {
    fn read(&mut self, bytes: &[u8]) {
        if let Some(stamps) = &mut self.stamps {
            stamps.take(bytes, &mut self.found);
        }
        if let (Some(end), false) = (&mut self.end, self.has_ended) {
            self.has_ended = end.find(bytes).is_some();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::Compression;
    use flate2::write::GzEncoder;

    use super::{Coding, MOST_STAMPS, MOST_UNPACKED_BYTES, UNPACKED_AT_ONCE, Watch};
    use crate::mutations::Mutations;
    use crate::plan::EventStream;

    fn watch() -> Watch {
        Watch::new(&EventStream {
            stamp: Some("sent=".into()),
            end: Some("[DONE]".into()),
        })
    }

    #[test]
    fn pieces_are_told_with_their_gaps_and_stamps() {
        let mut watch = watch();
        assert!(watch.take_piece(5).is_none());
        assert!(!watch.has_begun());
        watch.take(b"sent=1 sent=2", false);
        let piece = watch.take_piece(7).unwrap();
        assert_eq!((piece.gap, piece.stamps.as_slice()), (None, &[1][..]));
        drop(piece);
        watch.take(b"3 [DO", false);
        watch.take(b"NE]", false);
        assert_eq!(watch.silence(9), 2);
        let piece = watch.take_piece(10).unwrap();
        assert_eq!((piece.gap, piece.stamps.as_slice()), (Some(3), &[23][..]));
        drop(piece);
        assert!(watch.take_piece(11).is_none(), "nothing has come since");
        assert!(!watch.lacks_end());
    }

    #[test]
    fn what_was_flushed_of_a_compressed_body_is_read_at_once() {
        let mut packer = GzEncoder::new(Vec::new(), Compression::fast());
        let mut watch = watch();
        for number in 0..50_u64 {
            write!(packer, "data: sent={number} \n\n").unwrap();
            packer.flush().unwrap();
            watch.take(&std::mem::take(packer.get_mut()), true);
            let stamps = watch.take_piece(1 + number).unwrap().stamps;
            assert_eq!(stamps.as_slice(), [number]);
        }
        assert!(watch.lacks_end());
        packer.write_all(b"[DONE]").unwrap();
        watch.take(&packer.finish().unwrap(), true);
        assert!(!watch.lacks_end());
    }

    #[test]
    fn a_coding_that_is_not_known_says_nothing_of_its_texts() {
        let mut watch = watch();
        watch.take(b"sent=1 ", true);
        assert_eq!(watch.take_piece(1).unwrap().stamps.len(), 0);
        assert!(!watch.lacks_end());
    }

    fn packed(bytes: &[u8]) -> Vec<u8> {
        let mut packer = GzEncoder::new(Vec::new(), Compression::best());
        packer.write_all(bytes).unwrap();
        packer.finish().unwrap()
    }

    /// What is kept of a body beside the text that is looked for.
    fn kept_bytes(watch: &Watch) -> usize {
        let unpacked = match &watch.coding {
            Coding::Gzip(unpacker) => unpacker.get_ref().capacity(),
            _ => 0,
        };
        unpacked + 8 * watch.texts.found.capacity()
    }

    #[test]
    fn a_small_body_that_comes_to_much_is_not_read_on() {
        let bomb = packed(&vec![b' '; MOST_UNPACKED_BYTES + 1_000_000]);
        assert!(bomb.len() < 64 * 1024, "one look has all of it");
        let stamps = b"sent=1 ".repeat(MOST_STAMPS + 2);
        for (body, encoded) in [
            (bomb, true),
            (packed(&stamps), true),
            (stamps.clone(), false),
        ] {
            let mut watch = watch();
            watch.take(&body, encoded);
            assert!(matches!(watch.coding, Coding::Unreadable));
            assert!(!watch.lacks_end(), "nothing is said of its end");
            assert!(kept_bytes(&watch) <= 4 << 20, "{}", kept_bytes(&watch));
            let piece = watch.take_piece(1).expect("bytes came all the same");
            assert!(piece.stamps.len() <= MOST_STAMPS);
        }
        let mut watch = watch();
        let good = packed(&vec![b' '; MOST_UNPACKED_BYTES - 1]);
        watch.take(&good, true);
        assert!(matches!(watch.coding, Coding::Gzip(_)) && watch.lacks_end());
        assert!(kept_bytes(&watch) <= UNPACKED_AT_ONCE * 1100 * 2);
    }

    #[test]
    fn mutated_bodies_break_nothing() {
        let plain =
            b"data: {sent=120}\n\ndata: sent=7 sent=sent=18446744073709551615 [DO[DONE]\n\n";
        let seeds = [plain.to_vec(), packed(plain), packed(&plain.repeat(50))];
        let mut some = Mutations::of("bodies of events", 10_000);
        let (mut stamps, mut ends) = (0, 0);
        while some.again() {
            let body = some.mutated(&seeds);
            let encoded = some.below(4) > 0;
            let mut watch = watch();
            for (moment, piece) in some.pieces(&body).into_iter().enumerate() {
                watch.take(piece, encoded);
                assert!(kept_bytes(&watch) <= 1 << 20, "{body:02x?}");
                let found = watch.take_piece(1 + moment as u64);
                stamps += found.map_or(0, |piece| piece.stamps.len());
            }
            ends += usize::from(!watch.lacks_end());
        }
        assert!(stamps > 100 && ends > 100 || some.is_alone());
    }
}
