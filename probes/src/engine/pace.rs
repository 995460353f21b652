//! Short pauses that let answers accumulate, which a closed loop can make without affecting its
//! results.
//!
//! A probe that is faster than the server sleeps after every answer, and waking it costs the
//! server: fewer requests per second, and more CPU time for both. So if the requests of a closed
//! loop wait in the server anyway, the loop polls for answers a little less often. By Little's law,
//! the rate and the mean response time stay the same as long as the server has work; otherwise they
//! change by at most half of the share below. The receive lag includes the pause. A pause comes
//! only after a poll without events, so an answer that is already there never waits for it.
//!
//! An open loop never pauses, since there each microsecond would count as the server's.

use crate::clock::{MILLISECOND, Nanos};

/// A pause is at most the mean response time divided by this.
const PART_OF_RESPONSE: Nanos = 16;

/// The fewest users with which a pause pays: on average, two are answered during it.
const FEWEST_USERS: usize = 2 * PART_OF_RESPONSE as usize;

/// The shortest pause; a shorter one costs more than it saves.
const SHORTEST: Nanos = MILLISECOND / 100;

/// The longest pause.
const LONGEST: Nanos = MILLISECOND / 20;

/// The weight of the latest response time in the mean, as a shift: 1 / 64.
const NEWEST_SHIFT: u32 = 6;

/// Decides on the length of pauses.
#[derive(Debug)]
pub(super) struct Pace {
    /// True if pauses are allowed.
    allowed: bool,
    mean_response: Nanos,
}

impl Pace {
    /// The pace for a plan's users if all classes are closed loops; `None` for other plans.
    pub(super) fn new(users: Option<usize>) -> Self {
        Self {
            allowed: users.is_some_and(|users| users >= FEWEST_USERS),
            mean_response: 0,
        }
    }

    /// Records a response time.
    pub(super) fn answered(&mut self, response: Nanos) {
        self.mean_response -= self.mean_response >> NEWEST_SHIFT;
        self.mean_response += response >> NEWEST_SHIFT;
    }

    /// The pause to make if there was no event.
    pub(super) fn pause(&self) -> Option<Nanos> {
        let pause = (self.mean_response / PART_OF_RESPONSE).min(LONGEST);
        (self.allowed && pause >= SHORTEST).then_some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::{FEWEST_USERS, LONGEST, Pace};
    use crate::clock::{MILLISECOND, Nanos};

    fn settled(users: Option<usize>, response: Nanos) -> Pace {
        let mut pace = Pace::new(users);
        for _ in 0..2_000 {
            pace.answered(response);
        }
        pace
    }

    #[test]
    fn a_pause_is_a_small_part_of_the_response_time() {
        let many = Some(FEWEST_USERS);
        let pause = settled(many, MILLISECOND / 2).pause().unwrap();
        assert!(
            pause <= MILLISECOND / 32 && pause > MILLISECOND / 40,
            "{pause}"
        );
        assert_eq!(settled(many, 1_000 * MILLISECOND).pause(), Some(LONGEST));
        assert_eq!(settled(many, MILLISECOND / 10).pause(), None);
    }

    #[test]
    fn an_open_loop_and_few_users_never_pause() {
        assert_eq!(settled(None, MILLISECOND).pause(), None);
        assert_eq!(settled(Some(FEWEST_USERS - 1), MILLISECOND).pause(), None);
    }
}
