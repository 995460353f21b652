//! Bodies of requests: DATA frames as far as the server's windows let them go (RFC 9113 §5.2, §6.9).

use super::{CANCEL, Multiplex};
use crate::clock::{NEVER, Nanos};
use crate::http2::fault::Fault;
use crate::http2::frame::{self, Head as FrameHead, LONGEST_BYTES};

/// Frames that wait for the socket; no more are made then.
const MOST_WAITING_BYTES: usize = 64 * 1024;

/// The largest window (RFC 9113 §6.9.1).
const LARGEST_WINDOW: i64 = 0x7fff_ffff;

/// What the server lets be sent, and what was.
#[derive(Debug)]
pub(super) struct Uploads {
    /// Whether any request has had a body.
    is_used: bool,
    /// What it still takes of all streams together.
    window: i64,
    /// What it takes of a stream at first.
    pub(super) first_window: i64,
    /// Which stream has the first turn.
    turn: usize,
}

impl Default for Uploads {
    fn default() -> Self {
        Self {
            is_used: false,
            window: i64::from(super::FIRST_WINDOW_BYTES),
            first_window: i64::from(super::FIRST_WINDOW_BYTES),
            turn: 0,
        }
    }
}

impl Multiplex {
    /// A stream was opened that has a body.
    pub(super) fn begin_body(&mut self) {
        self.uploads.is_used = true;
    }

    /// Whether a part of a body was not made yet.
    pub(super) fn has_bodies(&self) -> bool {
        let exchanges = self.streams.iter().map(|stream| &stream.exchange);
        let mut bodies = exchanges.filter_map(|it| it.upload.as_ref());
        self.uploads.is_used && bodies.any(|upload| !upload.is_made())
    }

    /// Makes as many frames as may go: how many bytes of bodies, and when the pace lets more go.
    pub fn fill(&mut self, now: Nanos) -> (u64, Nanos) {
        let (mut made, mut next) = (0, NEVER);
        if !self.uploads.is_used || self.streams.is_empty() {
            return (made, next);
        }
        // A frame from each stream in turn.
        let count = self.streams.len();
        let mut still = 0;
        let mut turn = self.uploads.turn % count;
        while still < count && self.out.len() < MOST_WAITING_BYTES {
            let (bytes, moment) = self.fill_from(turn, now);
            next = next.min(moment);
            made += bytes;
            still = if bytes > 0 { 0 } else { still + 1 };
            turn = (turn + 1) % count;
        }
        self.uploads.turn = turn;
        (made, next)
    }

    /// A frame of the stream at a place, if one may go.
    fn fill_from(&mut self, place: usize, now: Nanos) -> (u64, Nanos) {
        let stream = &mut self.streams[place];
        let Some(upload) = &mut stream.exchange.upload else {
            return (0, NEVER);
        };
        if upload.is_made() {
            return (0, NEVER);
        }
        let window = stream.send_window.min(self.uploads.window);
        let most = window.clamp(0, LONGEST_BYTES as i64) as u64;
        if most == 0 && upload.bytes() > 0 {
            // There will be word.
            return (0, NEVER);
        }
        let count = upload.allowed(now, most);
        if count == 0 && upload.bytes() > 0 {
            return (0, upload.next_moment());
        }
        let piece = upload.take(count);
        let end = if upload.is_made() {
            frame::END_STREAM
        } else {
            0
        };
        frame::begin(piece.len(), frame::DATA, end, stream.number, &mut self.out);
        self.out.extend_from_slice(piece);
        stream.send_window -= count as i64;
        self.uploads.window -= count as i64;
        if upload.is_made() {
            stream.ends_behind = Some(self.out.len());
        }
        // What a server says of windows is no idle talk then.
        self.idle_frames = 0;
        (count, NEVER)
    }

    /// So much of what was to be sent was sent.
    pub fn sent(&mut self, count: usize) {
        self.out.drain(..count);
        if self.uploads.is_used {
            for behind in self
                .streams
                .iter_mut()
                .filter_map(|it| it.ends_behind.as_mut())
            {
                *behind = behind.saturating_sub(count);
            }
        }
    }

    /// Takes note of bodies that are handed over.
    pub fn note_handed_over(&mut self, now: Nanos) {
        for stream in &mut self.streams {
            if let (Some(0), Some(upload)) = (stream.ends_behind, &mut stream.exchange.upload) {
                stream.ends_behind = None;
                upload.hand_over(now);
            }
        }
    }

    /// The server takes more.
    pub(super) fn window_update(&mut self, head: FrameHead, payload: &[u8]) -> Result<(), Fault> {
        let more = payload.try_into().map_err(|_| Fault::FrameSize)?;
        let more = i64::from(u32::from_be_bytes(more) & 0x7fff_ffff);
        if more == 0 {
            return Err(Fault::Protocol);
        }
        let window = if head.stream == 0 {
            &mut self.uploads.window
        } else {
            match self.place(head.stream) {
                Some(place) => &mut self.streams[place].send_window,
                // Of a stream that is over.
                None => return Ok(()),
            }
        };
        *window += more;
        if *window > LARGEST_WINDOW {
            return Err(Fault::Window);
        }
        Ok(())
    }

    /// The server takes another amount of each stream at first: those under way follow, below zero too
    /// (RFC 9113 §6.9.2).
    pub(super) fn first_window(&mut self, bytes: u32) -> Result<(), Fault> {
        let more = i64::from(bytes) - self.uploads.first_window;
        self.uploads.first_window = i64::from(bytes);
        for stream in &mut self.streams {
            stream.send_window += more;
            if stream.send_window > LARGEST_WINDOW {
                return Err(Fault::Window);
            }
        }
        Ok(())
    }

    /// A stream was answered whole: the server wants no more of its body.
    pub(super) fn drop_body(&mut self, number: u32, is_uploading: bool) {
        if is_uploading {
            self.reset(number, CANCEL);
        }
    }
}
