//! Pauses that let answers gather: what a closed loop may save without being seen to.
//!
//! A probe that is faster than the server sleeps after every answer, and the server pays for
//! each waking: fewer requests a second and more CPU time for both. So a closed loop whose
//! requests wait in the server anyway looks for answers a little less often. By Little's law its
//! rate and mean response time stay what they are as long as the server has work; where it has
//! none they change by no more than half the share below. The receive lag shows the pause.
//!
//! An open loop never pauses: there each microsecond counts as the server's.

use crate::clock::{MILLISECOND, Nanos};

/// A pause is at most this part of the mean response time.
const PART_OF_RESPONSE: Nanos = 32;

/// A shorter pause costs more than it saves.
const SHORTEST: Nanos = MILLISECOND / 100;

/// The longest pause.
const LONGEST: Nanos = MILLISECOND / 20;

/// So many events in one turn are a batch already.
const BATCH: usize = 8;

/// Weight of the newest response time in the mean: 1 / 64.
const NEWEST_SHIFT: u32 = 6;

/// Decides how long the loop looks away.
#[derive(Debug)]
pub(super) struct Pace {
    /// Whether it may at all.
    allowed: bool,
    mean_response: Nanos,
}

impl Pace {
    /// For a plan of which each class is a closed loop, or not.
    pub(super) fn new(all_closed: bool) -> Self {
        Self {
            allowed: all_closed,
            mean_response: 0,
        }
    }

    /// Takes note of a response time.
    pub(super) fn answered(&mut self, response: Nanos) {
        self.mean_response -= self.mean_response >> NEWEST_SHIFT;
        self.mean_response += response >> NEWEST_SHIFT;
    }

    /// The pause after a turn with so many events.
    pub(super) fn pause(&self, events: usize) -> Option<Nanos> {
        let pause = (self.mean_response / PART_OF_RESPONSE).min(LONGEST);
        (self.allowed && events < BATCH && pause >= SHORTEST).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::{BATCH, LONGEST, Pace};
    use crate::clock::{MILLISECOND, Nanos};

    fn settled(all_closed: bool, response: Nanos) -> Pace {
        let mut pace = Pace::new(all_closed);
        for _ in 0..2_000 {
            pace.answered(response);
        }
        pace
    }

    #[test]
    fn a_pause_is_a_small_part_of_the_response_time() {
        let pause = settled(true, MILLISECOND).pause(1).unwrap();
        assert!(
            pause <= MILLISECOND / 32 && pause > MILLISECOND / 40,
            "{pause}"
        );
        assert_eq!(settled(true, 1_000 * MILLISECOND).pause(0), Some(LONGEST));
        assert_eq!(settled(true, MILLISECOND / 10).pause(1), None);
    }

    #[test]
    fn an_open_loop_and_a_busy_one_never_pause() {
        assert_eq!(settled(false, MILLISECOND).pause(1), None);
        assert_eq!(settled(true, MILLISECOND).pause(BATCH), None);
    }
}
