//! The streams that a server opens: what it says of itself and of its tables (RFC 9114 §6.2, RFC 9204 §4.2).

use super::answer::MOST_IDLE_FRAMES;
use super::fault::Fault;
use super::frame::{self, Piece, Reader, variable};

/// Settings that were HTTP/2's and may not be said (RFC 9114 §7.2.4.1).
const OF_HTTP2: [u64; 4] = [0x2, 0x3, 0x4, 0x5];

/// Settings of one server; more are no use to anybody.
const MOST_SETTINGS: usize = 256;

/// What a server has said of itself.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// Kinds of which there is one stream each: control, encoder, decoder.
    opened: [bool; 3],
    has_settings: bool,
    /// The first request that it does not look at, once it takes no more.
    pub(super) goaway: Option<u64>,
    idle_frames: u32,
}

/// What a stream is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Control,
    Encoder,
    Decoder,
    Unknown,
}

/// A stream that the server opened.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    kind: Option<Kind>,
    /// The beginning, while it does not tell the kind.
    head: Vec<u8>,
    reader: Reader,
    /// Of the decoder's: an instruction is not whole.
    is_inside: bool,
}

impl Incoming {
    /// Whether nothing that comes on it matters.
    pub(super) fn is_unknown(&self) -> bool {
        self.kind == Some(Kind::Unknown)
    }

    /// Bytes that are kept of what is not whole.
    #[cfg(test)]
    fn kept_bytes(&self) -> usize {
        self.head.capacity() + self.reader.kept_bytes()
    }

    /// The stream has ended, or was reset.
    ///
    /// # Errors
    /// `Fault::ClosedCriticalStream` where it may not.
    pub(super) fn end(&self) -> Result<(), Fault> {
        match self.kind {
            None | Some(Kind::Unknown) => Ok(()),
            Some(_) => Err(Fault::ClosedCriticalStream),
        }
    }

    /// Takes what has come.
    ///
    /// # Errors
    /// Why the whole connection is of no use any more.
    pub(super) fn feed(&mut self, bytes: &[u8], peer: &mut Peer) -> Result<(), Fault> {
        let mut rest = bytes;
        let kind = loop {
            if let Some(kind) = self.kind {
                break kind;
            }
            let Some((&byte, tail)) = rest.split_first() else {
                return Ok(());
            };
            rest = tail;
            self.head.push(byte);
            if let Some((number, _)) = variable(&self.head) {
                self.kind = Some(peer.opens(number)?);
            }
        };
        match kind {
            Kind::Control => self.control(rest, peer),
            // The one thing that can be said of no table is that it stays so (RFC 9204 §4.3.1).
            Kind::Encoder if rest.iter().any(|&byte| byte != 0x20) => Err(Fault::EncoderStream),
            Kind::Decoder => self.decoder(rest),
            Kind::Encoder | Kind::Unknown => Ok(()),
        }
    }

    /// Blocks that need no table are not acknowledged; that a stream was cancelled may be said of any
    /// (RFC 9204 §4.4).
    fn decoder(&mut self, rest: &[u8]) -> Result<(), Fault> {
        for &byte in rest {
            let is_first = !self.is_inside;
            if is_first && byte & 0xc0 != 0x40 {
                return Err(Fault::DecoderStream);
            }
            self.is_inside = if is_first {
                byte == 0x7f
            } else {
                byte & 0x80 != 0
            };
        }
        Ok(())
    }

    fn control(&mut self, mut rest: &[u8], peer: &mut Peer) -> Result<(), Fault> {
        while let Some(piece) = self.reader.next(&mut rest)? {
            let is_settings = matches!(piece, Piece::Frame(frame::SETTINGS, _));
            if peer.has_settings == is_settings {
                return Err(if is_settings {
                    Fault::FrameUnexpected
                } else {
                    Fault::MissingSettings
                });
            }
            peer.has_settings = true;
            match piece {
                Piece::Frame(frame::SETTINGS, payload) => settings(payload)?,
                Piece::Frame(frame::GOAWAY, payload) => peer.leaves(payload)?,
                // Of a push that was never made.
                Piece::Frame(frame::CANCEL_PUSH, _) => return Err(Fault::Id),
                Piece::Frame(..) | Piece::Body(_) => return Err(Fault::FrameUnexpected),
                Piece::Unknown => {}
            }
            peer.idle_frames += 1;
            if peer.idle_frames > MOST_IDLE_FRAMES {
                return Err(Fault::ExcessiveLoad);
            }
        }
        Ok(())
    }
}

impl Peer {
    /// A stream of a kind by its number was opened.
    fn opens(&mut self, number: u64) -> Result<Kind, Fault> {
        let (kind, place) = match number {
            0 => (Kind::Control, 0),
            // No number was given that a push could have.
            1 => return Err(Fault::Id),
            2 => (Kind::Encoder, 1),
            3 => (Kind::Decoder, 2),
            _ => return Ok(Kind::Unknown),
        };
        if std::mem::replace(&mut self.opened[place], true) {
            return Err(Fault::StreamCreation);
        }
        Ok(kind)
    }

    /// GOAWAY: the number of a request, which never grows (RFC 9114 §5.2).
    fn leaves(&mut self, payload: &[u8]) -> Result<(), Fault> {
        let Some((first, [])) = variable(payload) else {
            return Err(Fault::Frame);
        };
        if first % 4 != 0 || self.goaway.is_some_and(|before| first > before) {
            return Err(Fault::Id);
        }
        self.goaway = Some(first);
        Ok(())
    }
}

fn settings(mut rest: &[u8]) -> Result<(), Fault> {
    let mut said = Vec::new();
    while !rest.is_empty() {
        let (name, tail) = variable(rest).ok_or(Fault::Frame)?;
        let (_, tail) = variable(tail).ok_or(Fault::Frame)?;
        rest = tail;
        if OF_HTTP2.contains(&name) || said.contains(&name) {
            return Err(Fault::Settings);
        }
        said.push(name);
        if said.len() > MOST_SETTINGS {
            return Err(Fault::ExcessiveLoad);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
