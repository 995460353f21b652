//! The load probe of nginx-tune: several request classes at once, each with its own connections and
//! schedule, on one epoll loop.
//!
//! Its numbers are reliable for these reasons:
//! - An open-loop schedule never waits for a response, and latency counts from the *intended*
//!   start. So a stalled server cannot hide the requests that it delayed.
//! - A response counts only if it is complete and as expected; short bodies are failures.
//! - Requests that are unfinished at the end count with their age and are never dropped.
//! - The probe reports its own lateness and CPU time, and flags runs in which it was the limit.
//!
//! The crate also has the disk probe (`disk`): random reads at increasing depths, bypassing the
//! page cache.

#[cfg(not(target_os = "linux"))]
compile_error!("the probe is built on epoll and runs on Linux alone");

pub mod alarms;
pub mod ballast;
pub mod bodies;
pub mod chance;
pub mod ciphers;
pub mod class;
pub mod clock;
pub mod connection;
pub mod disk;
pub mod distribution;
pub mod doubts;
pub mod engine;
pub mod error;
pub mod exchange;
pub mod failure;
pub mod fields;
pub mod guard;
pub mod http1;
pub mod http2;
pub mod http3;
pub mod latencies;
pub mod learn;
pub mod manifest;
pub mod multiplexed;
#[cfg(test)]
mod mutations;
pub mod paths;
pub mod pauses;
pub mod plan;
pub mod pool;
pub mod progress;
pub mod protocol;
pub mod proxy_protocol;
pub mod receive;
pub mod recorder;
pub mod report;
pub mod request;
pub mod response;
pub mod schedule;
pub mod socket;
pub mod source;
pub mod sources;
pub mod spoken;
pub mod surroundings;
pub mod sys;
pub mod tls;
pub mod validity;
pub mod workers;
pub mod zipf;
