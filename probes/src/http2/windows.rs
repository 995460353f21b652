//! Flow-control windows, and the pace at which they are enlarged (RFC 9113 §5.2).
//!
//! A slow client of HTTP/2 enlarges its windows slowly. Its socket is read at once, so that other
//! streams of the connection are as fast as ever.

use crate::clock::{NEVER, Nanos, SECOND};
use crate::http2::fault::Fault;

/// The number of enlargements of a window per second, if each is of more than one byte.
const PIECES_A_SECOND: u64 = 50;

/// The window of a slow client is its bytes per second, divided by this number. A server may send
/// that many bytes at once.
const ROOM_PART: u64 = 8;

/// A window of a stream or a connection.
#[derive(Debug)]
pub(super) struct Window {
    /// The size of the window.
    bytes: u32,
    /// The part of it that the server has used.
    taken: u32,
    /// The pace of enlargements; `None` to enlarge at once, by half of the window at a time.
    pace: Option<Pace>,
}

#[derive(Debug)]
struct Pace {
    bytes_per_second: u64,
    /// The size of one enlargement.
    piece: u32,
    /// The part of the window that is never given back, since its initial size exceeds that of a
    /// slow client.
    beyond: u32,
    /// The time since which there was something to give back, and the bytes given since then.
    since: Nanos,
    given: u64,
}

/// The window of a client that takes `bytes_per_second`, at most `window`.
pub(super) fn slow_window(bytes_per_second: u64, window: u32) -> u32 {
    let room = (bytes_per_second / ROOM_PART).max(2);
    window.min(u32::try_from(room).unwrap_or(u32::MAX))
}

impl Window {
    /// A window that is enlarged as it is used.
    pub(super) fn new(bytes: u32) -> Self {
        Self {
            bytes,
            taken: 0,
            pace: None,
        }
    }

    /// A window with an initial size of `bytes` that is enlarged at a pace, up to the window of
    /// such a client.
    pub(super) fn paced(bytes: u32, bytes_per_second: u64) -> Self {
        let room = slow_window(bytes_per_second, bytes);
        let piece = (bytes_per_second / PIECES_A_SECOND).clamp(1, u64::from(room / 2).max(1));
        Self {
            bytes,
            taken: 0,
            pace: Some(Pace {
                bytes_per_second,
                piece: piece as u32,
                beyond: bytes - room,
                since: 0,
                given: 0,
            }),
        }
    }

    /// Whether it is enlarged at a pace.
    pub(super) fn is_paced(&self) -> bool {
        self.pace.is_some()
    }

    #[cfg(test)]
    pub(super) fn taken(&self) -> u32 {
        self.taken
    }

    /// Records `counted` bytes from the server.
    ///
    /// # Errors
    /// `Fault::FlowControl` if the server exceeded the window.
    pub(super) fn take(&mut self, counted: u32, now: Nanos) -> Result<(), Fault> {
        if let Some(pace) = &mut self.pace {
            if self.taken <= pace.beyond {
                // It was full: time in which nothing could be sent is not made up for.
                (pace.since, pace.given) = (now, 0);
            }
        }
        self.taken = self.taken.saturating_add(counted);
        if self.taken > self.bytes {
            return Err(Fault::FlowControl);
        }
        Ok(())
    }

    /// Whether less than `bytes` is left, although the client takes data at once.
    pub(super) fn is_short(&self, bytes: u32) -> bool {
        self.pace.is_none() && self.bytes - self.taken < bytes
    }

    /// The enlargement to send at once.
    pub(super) fn give_back(&mut self) -> Option<u32> {
        if self.pace.is_some() || self.taken < self.bytes / 2 {
            return None;
        }
        Some(std::mem::take(&mut self.taken))
    }

    /// The enlargement that the pace allows now, and the time of the next one.
    pub(super) fn pace(&mut self, now: Nanos) -> (u32, Nanos) {
        let taken = self.taken;
        let Some(pace) = self.pace.as_mut().filter(|it| taken > it.beyond) else {
            return (0, NEVER);
        };
        let owed = taken - pace.beyond;
        let earned = u128::from(pace.bytes_per_second) * u128::from(now.saturating_sub(pace.since));
        let earned = (earned / u128::from(SECOND)) as u64;
        let earned = earned.saturating_sub(pace.given);
        let more = earned.min(u64::from(owed)) as u32;
        let more = if more >= pace.piece.min(owed) {
            more
        } else {
            0
        };
        self.taken -= more;
        pace.given += u64::from(more);
        let left = owed - more;
        if left == 0 {
            return (more, NEVER);
        }
        let next = u128::from(pace.given + u64::from(pace.piece.min(left))) * u128::from(SECOND);
        let next = next.div_ceil(u128::from(pace.bytes_per_second)) as Nanos;
        (more, pace.since + next)
    }
}

#[cfg(test)]
mod tests {
    use super::{Window, slow_window};
    use crate::clock::{MILLISECOND, NEVER, Nanos, SECOND};
    use crate::http2::fault::Fault;

    /// Bytes that a server sends in a time if it always uses the whole window.
    fn sent_after(window: &mut Window, first: u32, span: Nanos) -> u64 {
        window.take(first, 0).expect("its first window");
        let (mut sent, mut now) = (u64::from(first), 0);
        loop {
            let (more, next) = window.pace(now);
            if more > 0 {
                window.take(more, now).expect("what was given");
                sent += u64::from(more);
                continue;
            }
            now = next;
            if now > span {
                return sent;
            }
        }
    }

    #[test]
    fn the_rate_is_exact_over_any_time() {
        for rate in [1, 7, 49, 1_000, 99_991, 20_000_000] {
            let first = slow_window(rate, 6 << 20);
            let mut window = Window::paced(first, rate);
            let sent = sent_after(&mut window, first, 1_000 * SECOND);
            let exact = u64::from(first) + 1_000 * rate;
            // The last enlargement may still be due.
            assert!(
                sent <= exact && sent + rate / 50 + 1 >= exact,
                "{rate}: {sent}"
            );
        }
    }

    #[test]
    fn a_connections_first_window_is_spent_once() {
        let mut window = Window::paced(65_535, 8_000);
        assert_eq!(window.take(64_535, 0), Ok(()));
        assert_eq!(window.pace(SECOND), (0, NEVER), "its room of 1,000 is left");
        assert_eq!(window.take(200, SECOND), Ok(()));
        let later = SECOND + 20 * MILLISECOND;
        assert_eq!(window.pace(SECOND), (0, later));
        // No more than that is open again, however long nothing arrives.
        assert_eq!(window.pace(3_600 * SECOND), (200, NEVER));
        assert_eq!(window.take(1_001, 0), Err(Fault::FlowControl));
    }

    #[test]
    fn what_the_server_did_not_use_is_not_made_up_for() {
        let mut window = Window::paced(1_000, 8_000);
        assert_eq!(window.pace(SECOND), (0, NEVER), "full");
        window.take(400, 5 * SECOND).expect("room");
        let (more, next) = window.pace(5 * SECOND + 10 * MILLISECOND);
        assert_eq!((more, next), (0, 5 * SECOND + 20 * MILLISECOND));
        assert_eq!(window.pace(6 * SECOND), (400, NEVER));
        assert_eq!(window.take(1_001, 6 * SECOND), Err(Fault::FlowControl));
    }

    #[test]
    fn one_without_a_pace_is_given_back_by_halves() {
        let mut window = Window::new(100);
        window.take(49, 0).expect("room");
        assert_eq!(
            (window.give_back(), window.pace(SECOND)),
            (None, (0, NEVER))
        );
        assert!(window.is_short(52) && !window.is_short(51));
        window.take(1, 0).expect("room");
        assert_eq!((window.give_back(), window.taken()), (Some(50), 0));
    }
}
