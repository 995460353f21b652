//! The idle connections of a class, and which of them carries the next request.

use std::collections::VecDeque;

use crate::plan::{Class, ConnectionUse};

/// The idle connections of a class.
#[derive(Debug)]
pub enum Pool {
    /// An open loop's, as many as there are requests at once: the last used is on top.
    Latest(Vec<u32>),
    /// An open loop's, held from the start and used in turn: the one that is idle for longest is
    /// in front.
    Turns(VecDeque<u32>),
    /// A closed loop's: each belongs to a user, who has no other.
    Owned(Vec<Option<u32>>),
}

impl Pool {
    /// None yet of a class, which has so many users.
    pub fn new(class: &Class, users: usize) -> Self {
        if class.arrivals.is_closed() {
            return Self::Owned(vec![None; users]);
        }
        match class.connection_use {
            ConnectionUse::Latest => Self::Latest(Vec::with_capacity(class.connections)),
            ConnectionUse::Turns => Self::Turns(VecDeque::with_capacity(class.connections)),
        }
    }

    /// The connection for the next request of a user (0 in an open loop).
    pub fn take(&mut self, user: u32) -> Option<u32> {
        match self {
            Self::Latest(idle) => idle.pop(),
            Self::Turns(idle) => idle.pop_front(),
            Self::Owned(idle) => idle.get_mut(user as usize)?.take(),
        }
    }

    /// A connection is idle again, or for the first time.
    pub fn put(&mut self, slot: u32, user: u32) {
        match self {
            Self::Latest(idle) => idle.push(slot),
            Self::Turns(idle) => idle.push_back(slot),
            Self::Owned(idle) => idle[user as usize] = Some(slot),
        }
    }

    /// A connection is gone.
    pub fn remove(&mut self, slot: u32) {
        match self {
            Self::Latest(idle) => idle.retain(|&other| other != slot),
            Self::Turns(idle) => idle.retain(|&other| other != slot),
            Self::Owned(idle) => {
                if let Some(place) = idle.iter_mut().find(|place| **place == Some(slot)) {
                    *place = None;
                }
            }
        }
    }

    /// Whether a request that waits would find one. The users of a closed loop never wait.
    pub fn has_any(&self) -> bool {
        match self {
            Self::Latest(idle) => !idle.is_empty(),
            Self::Turns(idle) => !idle.is_empty(),
            Self::Owned(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Pool;

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
}
