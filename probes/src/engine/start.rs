//! The start of a run: at once, or at a time that several load hosts share.

use super::{BELL, Engine, SIGNALS};
use crate::clock::{Clock, SECOND, nanos, unix_seconds};
use crate::error::Error;
use crate::sys::Dial;

/// The latest start after the plan's start time: a host that starts later does not take part in the
/// common load.
const LATEST_SECONDS: f64 = 1.0;

/// The longest wait for a start time; a later one is a mistake.
const LONGEST_WAIT_SECONDS: f64 = 3600.0;

impl Engine<'_> {
    /// Waits for the plan's start time, if it has one; returns the clock of the run. A signal ends
    /// the wait.
    pub(super) fn await_start(&mut self) -> Result<Option<Clock>, Error> {
        let Some(start_at) = self.plan.start_at_unix_seconds else {
            return Ok(None);
        };
        let late = unix_seconds() - start_at;
        if late > LATEST_SECONDS {
            return Err(Error::Plan(format!(
                "start_at_unix_seconds was {late:.1} s ago"
            )));
        }
        if late < -LONGEST_WAIT_SECONDS {
            return Err(Error::Plan(format!(
                "start_at_unix_seconds is {:.0} s ahead, more than {LONGEST_WAIT_SECONDS} s",
                -late
            )));
        }
        loop {
            let left = start_at - unix_seconds();
            if left <= 0.0 || self.ending.interrupted {
                break;
            }
            // In several sleeps, since the wall clock may be changed meanwhile.
            let count = self
                .sockets
                .poller
                .wait(nanos(left).min(SECOND))
                .map_err(|error| Error::System("waiting for the start", error))?;
            for number in 0..count {
                match self.sockets.poller.event(number).map(|event| event.token) {
                    Some(SIGNALS) => self.interrupt(),
                    Some(BELL) => self.listen(),
                    _ => {}
                }
            }
        }
        if self.ending.interrupted {
            // No request was due yet.
            self.ending.stop_at = 0;
            return Ok(Some(Clock::start()));
        }
        let skew = unix_seconds() - start_at;
        self.start_skew_seconds = Some(skew);
        Ok(Some(Clock::started(nanos(skew))))
    }

    /// Opens missing idle connections.
    pub(super) fn fill_ballast(&mut self, now: u64) {
        if now < self.ballast.next_moment() || now >= self.ending.stop_at {
            return;
        }
        let (target, sources) = (&self.plan.target, &mut self.sources);
        self.ballast.fill(now, &self.sockets.poller, || {
            let dial = Dial {
                source: sources.current(),
                receive_buffer_bytes: None,
            };
            target.endpoint.connect(dial).inspect_err(|error| {
                if error.raw_os_error() == Some(libc::EADDRNOTAVAIL) {
                    sources.advance();
                }
            })
        });
    }
}
