//! What the WebSockets of a class came to.

use std::collections::BTreeMap;

use super::news::News;
use crate::clock::Nanos;
use crate::distribution::Distribution;

/// Codes of close frames that are told apart; the others are summed under 0.
const MOST_CODES: usize = 32;

/// How a WebSocket that stood ended, but not by the probe with the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// The server sent a close frame with this code; 1005 without one (RFC 6455 §7.1.5).
    Close(u16),
    /// The server ended the TCP connection, or TLS, without a close frame.
    Tcp,
    /// The connection was reset.
    Reset,
    /// What came was no WebSocket, and the probe left.
    Fault,
    /// The probe left one on which as many messages as may be were given up.
    Silent,
}

/// Counts and distributions. What happens counts in the measured time in which it is seen.
#[derive(Debug, Clone, Default)]
pub struct Tally {
    /// WebSockets that opened, warm-up included.
    pub opened: u64,
    /// Openings that were answered with another status than 101, warm-up included, by that.
    pub refused: BTreeMap<u16, u64>,
    /// Echoes that came, whole, be they right or not.
    pub echoes: u64,
    /// Echoes of messages whose time was up before.
    pub late: u64,
    /// Messages that came while none was awaited.
    pub unasked: u64,
    /// Pings of the server.
    pub pings: u64,
    /// Messages that came in more than one frame.
    pub fragmented: u64,
    /// Most messages of a connection that were on their way at once.
    pub most_messages: u64,
    /// Close frames by code.
    pub closes: BTreeMap<u16, u64>,
    /// Other ends.
    pub tcp_ends: u64,
    /// See there.
    pub resets: u64,
    /// See there.
    pub faults: u64,
    /// See there.
    pub silent: u64,
    /// From opening a connection to the server's 101, warm-up included.
    pub opening: Distribution,
    /// Between messages of one connection.
    pub gap: Distribution,
    /// The longest gap that has ended.
    longest: Nanos,
}

impl Tally {
    /// One more stands.
    pub fn opened(&mut self, took: Nanos) {
        self.opened += 1;
        self.opening.record(took);
    }

    /// An opening was refused.
    pub fn refused(&mut self, status: u16) {
        *self.refused.entry(status).or_default() += 1;
    }

    /// Takes what has come about on a connection; `gap`: since messages came before, where some
    /// did.
    pub fn note(&mut self, news: &News, gap: Option<Nanos>) {
        self.echoes += news.echoes;
        self.late += news.late;
        self.unasked += news.unasked;
        self.pings += news.pings;
        self.fragmented += news.fragmented;
        self.most_messages = self.most_messages.max(news.most_messages);
        if let Some(gap) = gap {
            self.gap.record(gap);
            self.longest = self.longest.max(gap);
        }
    }

    /// One ended in the measured time.
    pub fn ended(&mut self, end: End) {
        match end {
            End::Close(code) => {
                let is_room = self.closes.len() < MOST_CODES || self.closes.contains_key(&code);
                *self
                    .closes
                    .entry(if is_room { code } else { 0 })
                    .or_default() += 1;
            }
            End::Tcp => self.tcp_ends += 1,
            End::Reset => self.resets += 1,
            End::Fault => self.faults += 1,
            End::Silent => self.silent += 1,
        }
    }

    /// A connection was left at the end of the measured time with messages on their way, on which
    /// nothing had come for so long: told where it is longer than every gap that ended.
    pub fn was_cut(&mut self, silence: Nanos) {
        if silence > self.longest {
            self.gap.record_at_least(silence);
        }
    }

    /// Ends that were not the probe's, and came before the run's.
    pub fn early_ends(&self) -> u64 {
        self.closes.values().sum::<u64>() + self.tcp_ends + self.resets + self.faults + self.silent
    }

    /// Adds what another thread saw.
    pub fn add(&mut self, other: &Self) {
        self.opened += other.opened;
        for (status, count) in &other.refused {
            *self.refused.entry(*status).or_default() += count;
        }
        self.echoes += other.echoes;
        self.late += other.late;
        self.unasked += other.unasked;
        self.pings += other.pings;
        self.fragmented += other.fragmented;
        self.most_messages = self.most_messages.max(other.most_messages);
        for (code, count) in &other.closes {
            *self.closes.entry(*code).or_default() += count;
        }
        self.tcp_ends += other.tcp_ends;
        self.resets += other.resets;
        self.faults += other.faults;
        self.silent += other.silent;
        self.opening.add(&other.opening);
        self.gap.add(&other.gap);
        self.longest = self.longest.max(other.longest);
    }
}

#[cfg(test)]
mod tests {
    use super::{End, Tally};

    #[test]
    fn ends_are_told_apart_and_codes_are_bounded() {
        let mut tally = Tally::default();
        for end in [
            End::Close(1001),
            End::Tcp,
            End::Reset,
            End::Fault,
            End::Silent,
        ] {
            tally.ended(end);
        }
        for code in 3000..3100 {
            tally.ended(End::Close(code));
        }
        tally.ended(End::Close(1001));
        assert_eq!(tally.closes[&1001], 2);
        assert!(tally.closes.len() <= 33, "{}", tally.closes.len());
        assert_eq!(tally.early_ends(), 106);
        let mut both = tally.clone();
        both.add(&tally);
        assert_eq!(both.early_ends(), 212);
    }

    #[test]
    fn a_silence_at_the_end_is_told_where_it_is_longer_than_every_gap() {
        let mut tally = Tally::default();
        tally.note(&super::News::default(), Some(50));
        tally.was_cut(49);
        assert_eq!((tally.gap.count(), tally.gap.censored()), (1, 0));
        tally.was_cut(51);
        assert_eq!((tally.gap.count(), tally.gap.censored()), (2, 1));
    }
}
