//! The start of a run: at once, or at a moment that several load hosts share.

use super::{BELL, Engine, SIGNALS};
use crate::clock::{Clock, SECOND, nanos, unix_seconds};
use crate::error::Error;
use crate::sys::Dial;

/// Arrivals that are due are counted from the plan's moment; a host that comes later than this
/// has no part in the common load.
const LATEST_SECONDS: f64 = 1.0;

/// A start further ahead than this is a mistake.
const LONGEST_WAIT_SECONDS: f64 = 3600.0;

impl Engine<'_> {
    /// The clock of a run that has a moment to start at, when that has come. A signal ends the
    /// waiting.
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
            // Not in one sleep: the wall clock may be set meanwhile.
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
            // Nothing was due yet.
            self.ending.stop_at = 0;
            return Ok(Some(Clock::start()));
        }
        let skew = unix_seconds() - start_at;
        self.start_skew_seconds = Some(skew);
        Ok(Some(Clock::started(nanos(skew))))
    }

    /// Opens idle connections that are missing.
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
