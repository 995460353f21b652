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
                // What was flushed is to be had now, and not with the next bytes.
                let fed = unpacker.write_all(bytes).and_then(|()| unpacker.flush());
                self.texts.read(unpacker.get_ref());
                unpacker.get_mut().clear();
                if fed.is_err() {
                    self.coding = Coding::Unreadable;
                }
            }
            Coding::Unknown | Coding::Unreadable => {}
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

    use super::Watch;
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
}
