//! One WebSocket: which messages are on their way, and what came of them. No socket, no clock.
//!
//! A server that echoes answers in order, so what comes next is the echo of the oldest message. One
//! whose time is up is given up and keeps its place: its echo may come yet, and is nobody else's.

use std::collections::VecDeque;

use super::fault::Fault;
use super::frame::{self, Piece, Reader};
use super::handshake::{Answer, Opening};
use super::message::Message;
use super::news::{News, Over};
use super::tally::End;
use crate::chance::mix;
use crate::clock::Nanos;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::multiplexed::{self, Ended, Known};
use crate::plan::WebSocket;

/// Bytes that may wait for the socket before a message has to wait with its intended time.
const MOST_UNSENT_BYTES: usize = 256 * 1024;

/// Bytes of a message that nobody awaits, such as a greeting.
const MOST_UNASKED_BYTES: u64 = 64 * 1024;

/// Frames in a row that carry nothing of an echo.
const MOST_IDLE_FRAMES: u32 = 10_000;

/// A close frame without a code (RFC 6455 §7.1.5).
const NO_CODE: u16 = 1005;

/// What the probe says when it leaves.
const NORMAL: u16 = 1000;

/// One WebSocket of a client.
#[derive(Debug)]
pub struct Channel {
    plan: WebSocket,
    /// None once it stands.
    opening: Option<Opening>,
    reader: Reader,
    /// On their way, the oldest first; none are given up.
    sent: VecDeque<(Message, Option<Exchange>)>,
    /// How many of them are not.
    awaited: usize,
    incoming: Option<Incoming>,
    idle_frames: u32,
    out: Vec<u8>,
    /// Draws masks.
    seed: u64,
    masks: u64,
    end: Option<End>,
    news: News,
    /// When messages last came; when it stood, before.
    last: Nanos,
    has_heard: bool,
    /// What its class knows of it.
    pub known: Known,
}

/// A message that is coming in.
#[derive(Debug, Clone, Copy)]
struct Incoming {
    /// None where nobody awaits one.
    awaited: Option<Message>,
    bytes: u64,
    frames: u64,
    is_right: bool,
    /// Whether its last frame has begun.
    is_last: bool,
}

impl Channel {
    /// A connection on which the opening is about to be sent.
    pub fn new(plan: WebSocket, mut opening: Opening, seed: u64) -> Self {
        Self {
            plan,
            out: opening.take_request(),
            opening: Some(opening),
            reader: Reader::default(),
            sent: VecDeque::new(),
            awaited: 0,
            incoming: None,
            idle_frames: 0,
            seed,
            masks: 0,
            end: None,
            news: News::default(),
            last: 0,
            has_heard: false,
            known: Known::default(),
        }
    }

    /// Whether the server has agreed.
    pub fn is_settled(&self) -> bool {
        self.opening.is_none()
    }

    /// Whether one more message can be sent.
    pub fn has_room(&self) -> bool {
        self.is_settled()
            && self.end.is_none()
            && self.sent.len() < self.plan.messages
            && self.out.len() < MOST_UNSENT_BYTES
    }

    /// Whether it will carry nothing any more: as many messages as may be on their way were given up.
    pub fn is_done(&self) -> bool {
        self.awaited == 0 && self.sent.len() >= self.plan.messages
    }

    /// How it ended, by what came; `otherwise` where nothing did that says it.
    pub fn end(&self, otherwise: Failure) -> End {
        self.end.unwrap_or(match otherwise {
            Failure::Parse => End::Fault,
            Failure::Reset => End::Reset,
            _ => End::Tcp,
        })
    }

    /// What is to be sent; the caller takes away what it has sent.
    pub fn unsent(&mut self) -> &mut Vec<u8> {
        &mut self.out
    }

    /// Whether something is to be sent.
    pub fn has_unsent(&self) -> bool {
        !self.out.is_empty()
    }

    /// What is under way.
    pub fn exchanges(&self) -> impl Iterator<Item = &Exchange> {
        self.sent
            .iter()
            .filter_map(|(_, exchange)| exchange.as_ref())
    }

    /// The same, to take note of what has come.
    pub fn exchanges_mut(&mut self) -> impl Iterator<Item = &mut Exchange> {
        self.sent
            .iter_mut()
            .filter_map(|(_, exchange)| exchange.as_mut())
    }

    /// Sends the message of a request.
    pub fn open(&mut self, exchange: Exchange) {
        let message = Message {
            number: exchange.request.index,
            bytes: self.plan.message_bytes,
        };
        let mask = self.draw_mask();
        message.write(self.opcode(), mask, &mut self.out);
        self.sent.push_back((message, Some(exchange)));
        self.awaited += 1;
        self.news.most_messages = self.news.most_messages.max(self.sent.len() as u64);
    }

    /// Gives up the messages of which `is_due` says so; they keep their places.
    pub fn give_up(&mut self, is_due: impl Fn(&Exchange) -> bool) -> Vec<Exchange> {
        let sent = self.sent.iter_mut();
        let given_up: Vec<_> = sent
            .filter_map(|(_, exchange)| exchange.take_if(|it| is_due(it)))
            .collect();
        self.awaited -= given_up.len();
        given_up
    }

    /// Takes all that was under way: the connection is gone.
    pub fn take_all(&mut self) -> Vec<Exchange> {
        self.awaited = 0;
        let sent = std::mem::take(&mut self.sent).into_iter();
        sent.filter_map(|(_, exchange)| exchange).collect()
    }

    /// What has come about since this was last asked, and for how long no message had come, where
    /// one came now.
    pub fn take_news(&mut self, now: Nanos) -> (News, Option<Nanos>) {
        let news = std::mem::take(&mut self.news);
        if !news.has_messages() {
            return (news, None);
        }
        let gap = self.has_heard.then(|| now.saturating_sub(self.last));
        self.has_heard = true;
        self.last = now;
        (news, gap)
    }

    /// For how long no message has come by `now` though one is awaited; none where none is.
    pub fn silence(&self, now: Nanos) -> Option<Nanos> {
        let is_awaited = self.awaited > 0 && self.has_heard;
        is_awaited.then(|| now.saturating_sub(self.last))
    }

    /// Says that the probe leaves, unless something was said already, or half of a message.
    pub fn leave(&mut self) {
        if self.is_settled() && self.end.is_none() && self.out.is_empty() {
            self.say_close(NORMAL);
        }
    }

    /// The probe leaves it because nothing is answered.
    pub fn is_silent(&mut self) -> Option<End> {
        let is_so = self.is_done() && self.end.is_none();
        is_so.then(|| *self.end.insert(End::Silent))
    }

    /// Takes what has come; messages that ended by it go into `ended`. How many bytes were of messages.
    ///
    /// # Errors
    /// Why nothing more comes; what was under way stays.
    pub fn feed(&mut self, bytes: &[u8], now: Nanos, ended: &mut Vec<Ended>) -> Result<u64, Over> {
        let mut rest = bytes;
        if let Some(opening) = &mut self.opening {
            match opening.feed(bytes).map_err(Over::Fault)? {
                Answer::Waiting => return Ok(0),
                Answer::Refused(status) => return Err(Over::Refused(status)),
                Answer::Open(taken) => {
                    rest = &bytes[taken..];
                    self.opening = None;
                }
            }
        }
        let result = self.feed_frames(rest, now, ended);
        if let Err(Over::Fault(fault)) = result {
            self.end = Some(End::Fault);
            self.say_close(fault.code());
        }
        result
    }

    fn feed_frames(
        &mut self,
        mut rest: &[u8],
        now: Nanos,
        ended: &mut Vec<Ended>,
    ) -> Result<u64, Over> {
        let mut data_bytes = 0;
        while let Some(piece) = self.reader.next(&mut rest).map_err(Over::Fault)? {
            match piece {
                Piece::Begin {
                    is_final,
                    opcode,
                    bytes,
                } => self.begin((is_final, opcode, bytes), now)?,
                Piece::Data { bytes, is_end } => {
                    data_bytes += bytes.len() as u64;
                    self.take_data(bytes, is_end, now, ended);
                }
                Piece::Control(control) => self.hear(&control)?,
            }
        }
        Ok(data_bytes)
    }

    /// A data frame begins.
    fn begin(
        &mut self,
        (is_final, opcode, bytes): (bool, u8, u64),
        now: Nanos,
    ) -> Result<(), Over> {
        let is_first = opcode != frame::CONTINUATION;
        if is_first == self.incoming.is_some() {
            return Err(Over::Fault(Fault::Fragment));
        }
        if bytes == 0 {
            self.count_idle()?;
        }
        let wanted = self.opcode();
        if is_first {
            let oldest = self.sent.front_mut();
            let awaited = oldest.map(|(message, exchange)| {
                if let Some(exchange) = exchange {
                    exchange.first_byte = now;
                }
                *message
            });
            self.incoming = Some(Incoming {
                awaited,
                bytes: 0,
                frames: 0,
                is_right: opcode == wanted,
                is_last: false,
            });
        }
        let Some(incoming) = &mut self.incoming else {
            return Ok(());
        };
        incoming.frames += 1;
        incoming.is_last = is_final;
        let most = match incoming.awaited {
            // A server that answers something else says so shortly.
            Some(message) => message.bytes.max(MOST_UNASKED_BYTES),
            None => MOST_UNASKED_BYTES,
        };
        if incoming.bytes.saturating_add(bytes) > most {
            return Err(Over::Fault(Fault::Oversized));
        }
        Ok(())
    }

    /// Bytes of a data frame.
    fn take_data(&mut self, bytes: &[u8], is_end: bool, now: Nanos, ended: &mut Vec<Ended>) {
        let Some(incoming) = &mut self.incoming else {
            return;
        };
        if let Some(message) = incoming.awaited {
            incoming.is_right = incoming.is_right && message.has(incoming.bytes, bytes);
        }
        incoming.bytes += bytes.len() as u64;
        if !bytes.is_empty() {
            self.idle_frames = 0;
        }
        if is_end && incoming.is_last {
            let whole = *incoming;
            self.incoming = None;
            self.end_message(whole, now, ended);
        }
    }

    /// A message is whole.
    fn end_message(&mut self, whole: Incoming, now: Nanos, ended: &mut Vec<Ended>) {
        self.news.fragmented += u64::from(whole.frames > 1);
        let Some(message) = whole.awaited else {
            self.news.unasked += 1;
            return;
        };
        let Some((_, exchange)) = self.sent.pop_front() else {
            return;
        };
        let Some(mut exchange) = exchange else {
            self.news.late += 1;
            return;
        };
        self.awaited -= 1;
        self.news.echoes += 1;
        exchange.last_byte = now;
        let end = if whole.is_right && whole.bytes == message.bytes {
            multiplexed::End::Echo
        } else {
            multiplexed::End::Failed(Failure::Echo)
        };
        ended.push(Ended { exchange, end });
    }

    /// A control frame.
    fn hear(&mut self, control: &frame::Control) -> Result<(), Over> {
        self.count_idle()?;
        let payload = control.payload();
        match control.opcode {
            frame::PING => {
                self.news.pings += 1;
                // Only the last of several has to be answered (§5.5.3): a server that reads nothing is
                // not to fill this host's memory.
                if self.out.len() < MOST_UNSENT_BYTES {
                    self.say(frame::PONG, payload);
                }
                Ok(())
            }
            frame::CLOSE => {
                let code = match payload {
                    [] => NO_CODE,
                    [high, low, ..] => u16::from_be_bytes([*high, *low]),
                    [_] => return Err(Over::Fault(Fault::CloseCode)),
                };
                if !payload.is_empty() && !may_be_sent(code) {
                    return Err(Over::Fault(Fault::CloseCode));
                }
                self.end = Some(End::Close(code));
                self.say(frame::CLOSE, &payload[..payload.len().min(2)]);
                Err(Over::Closed)
            }
            _ => Ok(()),
        }
    }

    fn count_idle(&mut self) -> Result<(), Over> {
        self.idle_frames += 1;
        if self.idle_frames > MOST_IDLE_FRAMES {
            return Err(Over::Fault(Fault::Flood));
        }
        Ok(())
    }

    fn say_close(&mut self, code: u16) {
        self.say(frame::CLOSE, &code.to_be_bytes());
    }

    fn say(&mut self, opcode: u8, payload: &[u8]) {
        let mask = self.draw_mask();
        frame::begin(opcode, payload.len() as u64, mask, &mut self.out);
        let from = self.out.len();
        self.out.extend_from_slice(payload);
        frame::mask(&mut self.out[from..], mask);
    }

    /// Another for each frame (§5.3). No stranger's code chooses what is sent here, which is what nobody
    /// may foresee masks for.
    fn draw_mask(&mut self) -> [u8; 4] {
        self.masks += 1;
        let [a, b, c, d, ..] = mix(self.seed.wrapping_add(self.masks)).to_le_bytes();
        [a, b, c, d]
    }

    fn opcode(&self) -> u8 {
        if self.plan.text {
            frame::TEXT
        } else {
            frame::BINARY
        }
    }
}

/// Codes that may stand in a close frame (RFC 6455 §7.4, IANA's list).
fn may_be_sent(code: u16) -> bool {
    matches!(code, 1000..=1003 | 1007..=1014 | 3000..=4999)
}

#[cfg(test)]
mod tests;
