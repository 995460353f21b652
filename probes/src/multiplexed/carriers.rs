//! The connections of a class on which one more request can be sent, used in turn.

use std::collections::VecDeque;

use super::block::Block;

/// What a class with HTTP/2 has beside what others have.
#[derive(Debug)]
pub struct Carriers {
    /// What its requests look like.
    pub block: Block,
    with_room: VecDeque<u32>,
    /// Where each user of a closed loop sent the last request.
    seats: Vec<Option<u32>>,
    /// Whether all connections stood, or one could not be had: until then nobody is sent anywhere, or
    /// the first connection would get them all.
    stands: bool,
}

impl Carriers {
    /// None yet, of a class with so many users (0 in an open loop).
    pub fn new(block: Block, users: usize) -> Self {
        Self {
            block,
            with_room: VecDeque::new(),
            seats: vec![None; users],
            stands: false,
        }
    }

    /// The connection for a user's next request: the user's own, else the one that was used least
    /// recently. It is no longer among those with room.
    pub fn take(&mut self, user: u32) -> Option<u32> {
        if !self.stands {
            return None;
        }
        let Some(seat) = self.seats.get_mut(user as usize) else {
            return self.with_room.pop_front();
        };
        let own = seat.and_then(|slot| self.with_room.iter().position(|&other| other == slot));
        *seat = self.with_room.remove(own.unwrap_or(0));
        *seat
    }

    /// One has room, or has it still.
    pub fn put(&mut self, slot: u32) {
        self.with_room.push_back(slot);
    }

    /// One is gone, or is full.
    pub fn remove(&mut self, slot: u32) {
        self.with_room.retain(|&other| other != slot);
    }

    /// No connection is waited for any more.
    pub fn stand(&mut self) {
        self.stands = true;
    }

    /// Whether that is so.
    pub fn stands(&self) -> bool {
        self.stands
    }

    /// Whether a request that waits would find one.
    pub fn has_any(&self) -> bool {
        self.stands && !self.with_room.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, Carriers};

    #[test]
    fn arrivals_take_turns_and_users_stay() {
        for (users, taken) in [
            (0, [Some(7), Some(8), Some(9)]),
            (2, [Some(7), Some(7), Some(8)]),
        ] {
            let mut carriers = Carriers::new(Block::default(), users);
            (7..10).for_each(|slot| carriers.put(slot));
            assert!(!carriers.has_any(), "another is still in its handshake");
            assert_eq!(carriers.take(0), None);
            carriers.stand();
            let took = [0, 0, 1].map(|user| {
                let slot = carriers.take(user);
                if let Some(slot) = slot {
                    carriers.put(slot);
                }
                slot
            });
            assert_eq!(took, taken, "{users} users");
        }
    }

    #[test]
    fn a_user_whose_connection_is_gone_takes_another() {
        let mut carriers = Carriers::new(Block::default(), 1);
        carriers.stand();
        carriers.put(3);
        assert_eq!(carriers.take(0), Some(3));
        assert_eq!(carriers.take(0), None);
        carriers.put(4);
        assert_eq!(carriers.take(0), Some(4));
        carriers.put(3);
        carriers.put(4);
        carriers.remove(4);
        assert_eq!((carriers.take(0), carriers.has_any()), (Some(3), false));
    }
}
