//! The connections of a class that have room for a request, and the choice among them.

use std::collections::VecDeque;

use crate::plan::{Class, ConnectionUse};

/// The connections of a class with room for a request.
#[derive(Debug)]
pub enum Pool {
    /// For an open loop with as many connections as concurrent requests: the last used is on top.
    Latest(Vec<u32>),
    /// For an open loop whose connections are held and used in turn: the longest idle is in front.
    Turns(VecDeque<u32>),
    /// For a closed loop: the connection of each user.
    Owned(Vec<Option<u32>>),
    /// Connections that carry many requests at once.
    Shared(Shared),
}

/// Connections that carry many requests at once, used in turn; a closed-loop user stays on one.
#[derive(Debug)]
pub struct Shared {
    with_room: VecDeque<u32>,
    /// For each user of a closed loop, the connection of the last request.
    seats: Vec<Option<u32>>,
    /// True once all connections are open, or one has failed. Before that no requests are sent,
    /// since the first connection would get them all.
    stands: bool,
}

impl Pool {
    /// The empty pool of a class with `users` users (0 in an open loop).
    pub fn new(class: &Class, users: usize) -> Self {
        if class.streams().is_some() {
            return Self::Shared(Shared {
                with_room: VecDeque::new(),
                seats: vec![None; users],
                stands: false,
            });
        }
        if class.arrivals.is_closed() {
            return Self::Owned(vec![None; users]);
        }
        match class.connection_use {
            ConnectionUse::Latest => Self::Latest(Vec::with_capacity(class.connections)),
            ConnectionUse::Turns => Self::Turns(VecDeque::with_capacity(class.connections)),
        }
    }

    /// Takes the connection for the next request of a user: the user's own one, if there is one.
    pub fn take(&mut self, user: u32) -> Option<u32> {
        match self {
            Self::Latest(idle) => idle.pop(),
            Self::Turns(idle) => idle.pop_front(),
            Self::Owned(idle) => idle.get_mut(user as usize)?.take(),
            Self::Shared(shared) => shared.take(user),
        }
    }

    /// Adds a connection that has room, for the first time or again; `user` sent its last request.
    pub fn put(&mut self, slot: u32, user: u32) {
        match self {
            Self::Latest(idle) => idle.push(slot),
            Self::Turns(idle) => idle.push_back(slot),
            Self::Owned(idle) => idle[user as usize] = Some(slot),
            Self::Shared(shared) => shared.with_room.push_back(slot),
        }
    }

    /// Removes a connection that is closed or full.
    pub fn remove(&mut self, slot: u32) {
        match self {
            Self::Latest(idle) => idle.retain(|&other| other != slot),
            Self::Turns(idle) => idle.retain(|&other| other != slot),
            Self::Owned(idle) => {
                if let Some(place) = idle.iter_mut().find(|place| **place == Some(slot)) {
                    *place = None;
                }
            }
            Self::Shared(shared) => shared.with_room.retain(|&other| other != slot),
        }
    }

    /// Stops waiting for further connections; returns true if the pool was waiting.
    pub fn stand(&mut self) -> bool {
        match self {
            Self::Shared(shared) => !std::mem::replace(&mut shared.stands, true),
            Self::Latest(_) | Self::Turns(_) | Self::Owned(_) => false,
        }
    }

    /// Whether a waiting request would get a connection. Closed-loop users with their own never
    /// wait.
    pub fn has_any(&self) -> bool {
        match self {
            Self::Latest(idle) => !idle.is_empty(),
            Self::Turns(idle) => !idle.is_empty(),
            Self::Owned(_) => false,
            Self::Shared(shared) => shared.stands && !shared.with_room.is_empty(),
        }
    }
}

impl Shared {
    fn take(&mut self, user: u32) -> Option<u32> {
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
}

#[cfg(test)]
mod tests {
    use super::{Pool, Shared};

    #[test]
    fn the_last_used_the_longest_idle_or_the_own_one_is_next() {
        let pools = [
            (Pool::Latest(Vec::new()), [Some(9), Some(7)]),
            (Pool::Turns([].into()), [Some(7), Some(9)]),
            (Pool::Owned(vec![None; 3]), [Some(9), None]),
        ];
        for (mut pool, next) in pools {
            assert_eq!(pool.take(2), None);
            for (user, slot) in [(0, 7), (1, 8), (2, 9)] {
                pool.put(slot, user);
            }
            pool.remove(8);
            assert_eq!([pool.take(2), pool.take(1)], next, "{pool:?}");
        }
    }

    fn shared(users: usize) -> Pool {
        Pool::Shared(Shared {
            with_room: [].into(),
            seats: vec![None; users],
            stands: false,
        })
    }

    #[test]
    fn arrivals_take_turns_on_shared_connections_and_users_stay() {
        for (users, taken) in [
            (0, [Some(7), Some(8), Some(9)]),
            (2, [Some(7), Some(7), Some(8)]),
        ] {
            let mut pool = shared(users);
            (7..10).for_each(|slot| pool.put(slot, 0));
            assert!(!pool.has_any(), "another is still in its handshake");
            assert_eq!(pool.take(0), None);
            assert!(pool.stand());
            assert!(!pool.stand(), "it stood already");
            let took = [0, 0, 1].map(|user| {
                let slot = pool.take(user);
                if let Some(slot) = slot {
                    pool.put(slot, user);
                }
                slot
            });
            assert_eq!(took, taken, "{users} users");
        }
    }

    #[test]
    fn a_user_whose_shared_connection_is_gone_takes_another() {
        let mut pool = shared(1);
        pool.stand();
        pool.put(3, 0);
        assert_eq!((pool.take(0), pool.take(0)), (Some(3), None));
        pool.put(4, 0);
        assert_eq!(pool.take(0), Some(4));
        pool.put(3, 0);
        pool.put(4, 0);
        pool.remove(4);
        assert_eq!((pool.take(0), pool.has_any()), (Some(3), false));
    }
}
