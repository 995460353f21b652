//! The tests of the probe as its callers and servers see it: one program, since linking one for each
//! subject takes longer than running them.

#![allow(clippy::float_cmp)] // counts: exact in a double
#![allow(unreachable_pub)]

mod answers;
mod arrivals;
mod bodies;
mod connections;
mod disk;
mod ground_truth;
mod hostile;
mod learn;
mod outcomes;
mod plans;
mod process;
mod receive;
mod threads;
mod truth;
