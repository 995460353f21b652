//! Counts and latencies by server process, from the number in `X-Probe-Worker`.
//!
//! The lab has nginx add the header (`add_header X-Probe-Worker $pid always`). A connection stays
//! with one worker, so the index of its worker is kept with the connection.

use crate::clock::Nanos;
use crate::distribution::Distribution;

/// The most workers that are counted separately; nginx never has more.
const MOST_WORKERS: usize = 512;

/// The results of a server's workers.
#[derive(Debug, Default)]
pub struct Workers {
    shares: Vec<Share>,
    /// Responses of workers beyond the most that are counted separately.
    pub untold: u64,
}

/// The results of a worker.
#[derive(Debug)]
pub struct Share {
    /// The number that it sends: its process id.
    pub worker: u64,
    /// Complete, correct responses.
    pub requests: u64,
    /// Connections on which it answered.
    pub connections: u64,
    /// Time from the intended start to the last byte, with two digits.
    pub response: Distribution,
}

impl Workers {
    /// Records a response. `place` is the index kept with the connection, `None` before its first
    /// response; returns the index to keep.
    pub fn answered(
        &mut self,
        worker: u64,
        place: Option<u32>,
        response: Option<Nanos>,
    ) -> Option<u32> {
        let known = place.filter(|&at| self.shares[at as usize].worker == worker);
        let at = if let Some(at) = known {
            at as usize
        } else if let Some(at) = self.place_of(worker) {
            self.shares[at].connections += 1;
            at
        } else {
            self.untold += 1;
            return None;
        };
        if let Some(response) = response {
            self.shares[at].requests += 1;
            self.shares[at].response.record(response);
        }
        Some(at as u32)
    }

    fn place_of(&mut self, worker: u64) -> Option<usize> {
        let found = self.shares.iter().position(|share| share.worker == worker);
        if found.is_none() && self.shares.len() < MOST_WORKERS {
            self.shares.push(Share {
                worker,
                requests: 0,
                connections: 0,
                response: Distribution::coarse(),
            });
            return Some(self.shares.len() - 1);
        }
        found
    }

    /// Adds the results of another thread.
    pub fn add(&mut self, other: &Self) {
        self.untold += other.untold;
        for share in &other.shares {
            if let Some(at) = self.place_of(share.worker) {
                self.shares[at].requests += share.requests;
                self.shares[at].connections += share.connections;
                self.shares[at].response.add(&share.response);
            } else {
                self.untold += share.requests;
            }
        }
    }

    /// The workers that answered, in the order of their first answers.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }
}

#[cfg(test)]
mod tests {
    use super::{MOST_WORKERS, Workers};

    #[test]
    fn requests_and_connections_are_counted_by_worker() {
        let mut workers = Workers::default();
        let first = workers.answered(70, None, Some(5));
        assert_eq!(workers.answered(70, first, Some(9)), first);
        let second = workers.answered(71, None, Some(7));
        assert_ne!(first, second);
        assert_eq!(workers.answered(70, None, None), first);
        let told: Vec<_> = workers
            .shares()
            .iter()
            .map(|share| (share.worker, share.requests, share.connections))
            .collect();
        assert_eq!(told, [(70, 2, 2), (71, 1, 1)]);
    }

    #[test]
    fn a_connection_that_another_worker_answers_is_one_of_that_worker_too() {
        let mut workers = Workers::default();
        let first = workers.answered(1, None, Some(1));
        let second = workers.answered(2, first, Some(1));
        assert_ne!(first, second);
        assert_eq!(workers.shares()[1].connections, 1);
    }

    #[test]
    fn a_server_that_makes_numbers_up_fills_no_memory() {
        let mut workers = Workers::default();
        for number in 0..10_000 {
            workers.answered(number, None, Some(1));
        }
        assert_eq!(workers.shares().len(), MOST_WORKERS);
        assert_eq!(workers.untold, 10_000 - MOST_WORKERS as u64);
    }
}
