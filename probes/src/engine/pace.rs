//! Pauses that let answers gather: what a closed loop may save without being seen to.
//!
//! A probe that is faster than the server sleeps after every answer, and the server pays for
//! each waking: fewer requests a second and more CPU time for both. So a closed loop whose
//! requests wait in the server anyway looks for answers a little less often. By Little's law its
//! rate and mean response time stay what they are as long as the server has work; where it has
//! none they change by no more than half the share below. The receive lag shows the pause. It
//! comes only after a look that found nothing, so that no answer that is there waits for it.
//!
//! An open loop never pauses: there each microsecond counts as the server's.

use crate::clock::{MILLISECOND, Nanos};

/// A pause is at most this part of the mean response time.
const PART_OF_RESPONSE: Nanos = 16;

/// Users of whom in such a part two are answered, at least: fewer are not worth it.
const FEWEST_USERS: usize = 2 * PART_OF_RESPONSE as usize;

/// A shorter pause costs more than it saves.
const SHORTEST: Nanos = MILLISECOND / 100;

/// The longest pause.
const LONGEST: Nanos = MILLISECOND / 20;

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
    /// For the users of a plan of which each class is a closed loop; none for any other.
    pub(super) fn new(users: Option<usize>) -> Self {
        Self {
            allowed: users.is_some_and(|users| users >= FEWEST_USERS),
            mean_response: 0,
        }
    }

    /// Takes note of a response time.
    pub(super) fn answered(&mut self, response: Nanos) {
        self.mean_response -= self.mean_response >> NEWEST_SHIFT;
        self.mean_response += response >> NEWEST_SHIFT;
    }

    /// The pause that there may be when nothing has come.
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
