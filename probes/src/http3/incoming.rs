//! The streams that a server opens: its control stream and those of QPACK (RFC 9114 §6.2, RFC 9204
//! §4.2).

use super::answer::MOST_IDLE_FRAMES;
use super::fault::Fault;
use super::frame::{self, Piece, Reader, variable};

/// Settings of HTTP/2, which are forbidden (RFC 9114 §7.2.4.1).
const OF_HTTP2: [u64; 4] = [0x2, 0x3, 0x4, 0x5];

/// The most settings of a server.
const MOST_SETTINGS: usize = 256;

/// The state that a server has announced.
#[derive(Debug, Default)]
pub(super) struct Peer {
    /// The types with at most one stream each that were opened: control, encoder, decoder.
    opened: [bool; 3],
    has_settings: bool,
    /// The first request that the server will not process, from GOAWAY.
    pub(super) goaway: Option<u64>,
    idle_frames: u32,
}

/// The type of a stream.
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
    /// The beginning of the stream, until its type is known.
    head: Vec<u8>,
    reader: Reader,
    /// For the decoder stream: true within an instruction.
    is_inside: bool,
}

impl Incoming {
    /// Whether the content of the stream is ignored.
    pub(super) fn is_unknown(&self) -> bool {
        self.kind == Some(Kind::Unknown)
    }

    /// Bytes buffered for incomplete frames.
    #[cfg(test)]
    fn kept_bytes(&self) -> usize {
        self.head.capacity() + self.reader.kept_bytes()
    }

    /// Handles the end or reset of the stream.
    ///
    /// # Errors
    /// `Fault::ClosedCriticalStream` if it must not end.
    pub(super) fn end(&self) -> Result<(), Fault> {
        match self.kind {
            None | Some(Kind::Unknown) => Ok(()),
            Some(_) => Err(Fault::ClosedCriticalStream),
        }
    }

    /// Processes received bytes.
    ///
    /// # Errors
    /// The violation that makes the whole connection unusable.
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
            // Without a dynamic table, the only valid instruction is to set its capacity to 0 (RFC
            // 9204 §4.3.1).
            Kind::Encoder if rest.iter().any(|&byte| byte != 0x20) => Err(Fault::EncoderStream),
            Kind::Decoder => self.decoder(rest),
            Kind::Encoder | Kind::Unknown => Ok(()),
        }
    }

    /// Checks the decoder stream: blocks that need no table are not acknowledged, but any stream
    /// may be reported as cancelled (RFC 9204 §4.4).
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
                // It cancels a push that was never made.
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
    /// Handles the type of a new stream.
    fn opens(&mut self, number: u64) -> Result<Kind, Fault> {
        let (kind, place) = match number {
            0 => (Kind::Control, 0),
            // The client allows no pushes, so no push id is valid.
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

    /// Handles GOAWAY: the id of a request, which never grows (RFC 9114 §5.2).
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
