//! Engines side by side: several threads that run one plan together.
//!
//! There is one schedule of arrivals: thread t of k takes every kth arrival of the host, at the
//! same time at which a single thread would send it. While the engines run, they share only the
//! decision to stop and the figures of each second. At the end their records are added: histograms
//! add exactly, and quantiles of a second come from the added histograms.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use super::{Engine, Outcome};
use crate::clock::{Clock, Nanos};
use crate::error::Error;
use crate::plan::Plan;
use crate::progress::{Progress, Told};
use crate::receive::Receiver;
use crate::sys::{self, Poller};

/// The state shared by engines side by side.
#[derive(Debug)]
pub(super) struct Peers {
    stop: Mutex<Option<Stop>>,
    bells: Vec<File>,
    /// The last second of each engine's classes.
    told: Mutex<Vec<Vec<Told>>>,
}

/// The reason and the manner of an early end.
#[derive(Debug, Clone)]
pub(super) struct Stop {
    pub(super) reason: String,
    pub(super) drain: Nanos,
    pub(super) interrupted: bool,
}

/// An engine's position among several.
#[derive(Debug)]
pub(super) struct Side {
    peers: Arc<Peers>,
    number: usize,
    bell: File,
}

impl Side {
    /// Has the other engines stop too.
    pub(super) fn stop_others(&self, stop: Stop) {
        let mut told = self
            .peers
            .stop
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if told.is_some() {
            return;
        }
        *told = Some(stop);
        drop(told);
        for mut bell in &self.peers.bells {
            // A bell that is already ringing needs no second write.
            let _ = bell.write(&1_u64.to_ne_bytes());
        }
    }

    /// The request to stop, if another engine made one.
    pub(super) fn told_to_stop(&self) -> Option<Stop> {
        let told = self.peers.stop.lock();
        told.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Reports this engine's last second; the first engine gets the sum of all.
    pub(super) fn tell(&self, own: Vec<Told>) -> Option<Vec<Told>> {
        let told = self.peers.told.lock();
        let mut told = told.unwrap_or_else(PoisonError::into_inner);
        told[self.number] = own;
        (self.number == 0).then(|| {
            let mut sum = told[0].clone();
            for others in &told[1..] {
                for (all, other) in sum.iter_mut().zip(others) {
                    all.add(other);
                }
            }
            sum
        })
    }
}

/// Runs a plan on its threads. `receiver` makes a receiver for each thread.
///
/// # Errors
/// As for [`Engine::new`] and [`Engine::run`].
pub fn run_side_by_side<'p>(
    plans: &'p [Plan],
    receiver: impl Fn() -> Receiver,
    progress: Progress,
) -> Result<Outcome<'p>, Error> {
    let system = |error| Error::System("epoll", error);
    let bells = plans.iter().map(|_| sys::bell());
    let peers = Arc::new(Peers {
        stop: Mutex::new(None),
        bells: bells.collect::<Result<_, _>>().map_err(system)?,
        told: Mutex::new(vec![Vec::new(); plans.len()]),
    });
    let mut progress = Some(progress);
    let mut engines = Vec::new();
    for (number, plan) in plans.iter().enumerate() {
        let poller = Poller::new(true).map_err(system)?;
        let progress = progress.take().unwrap_or_default();
        let mut engine = Engine::new(plan, poller, receiver(), progress)?;
        let side = Side {
            peers: peers.clone(),
            number,
            bell: peers.bells[number].try_clone().map_err(system)?,
        };
        engine.join(side)?;
        engines.push(engine);
    }
    sys::hold_memory();
    let clock = Clock::start();
    let outcomes: Vec<_> = thread::scope(|scope| {
        let runs: Vec<_> = engines
            .into_iter()
            .map(|engine| scope.spawn(move || engine.run_from(clock)))
            .collect();
        runs.into_iter()
            .map(thread::ScopedJoinHandle::join)
            .collect()
    });
    let mut whole: Option<Outcome<'p>> = None;
    for outcome in outcomes {
        let gone = || Error::System("a thread of the probe", std::io::Error::other("it ended"));
        let outcome = outcome.map_err(|_| gone())??;
        match &mut whole {
            None => whole = Some(outcome),
            Some(whole) => whole.add(&outcome),
        }
    }
    whole.ok_or_else(|| Error::Plan("threads must be at least 1".into()))
}

impl Engine<'_> {
    /// Makes this engine one of several.
    fn join(&mut self, side: Side) -> Result<(), Error> {
        let system = |error| Error::System("epoll", error);
        if side.number > 0 {
            // The first engine handles signals and informs the others.
            let none = 0;
            self.sockets
                .poller
                .modify(&self.signals, super::SIGNALS, none)
                .map_err(system)?;
        }
        self.sockets
            .poller
            .add(&side.bell, super::BELL, sys::READABLE)
            .map_err(system)?;
        self.side = Some(side);
        for class in &mut self.classes {
            class.recorder.keep_each_second();
        }
        Ok(())
    }

    /// Handles a message from another engine.
    pub(super) fn listen(&mut self) {
        let Some(side) = &mut self.side else {
            return;
        };
        // The read only resets the bell; it does not matter if it was reset before.
        let _ = side.bell.read(&mut [0; 8]);
        if let Some(stop) = side.told_to_stop() {
            self.ending.interrupted |= stop.interrupted;
            self.stop_alone(&stop.reason, stop.drain);
        }
    }
}
