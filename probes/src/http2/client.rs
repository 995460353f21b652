//! The start of a class's connections, and the windows and priority of its requests.

use super::manner::{Manner, Place, Windows};
use super::windows::slow_window;
use crate::error::Error;
use crate::multiplexed::{Block, Coding};
use crate::plan::{Class, PaceOf, Plan, Streams};
use crate::tls;

/// The state that the connections of a class share.
#[derive(Debug)]
pub struct Client {
    pub(crate) tls: Option<tls::Client>,
    pub(crate) block: Block,
    pub(super) streams: Streams,
    pub(super) windows: Windows,
    pub(super) manner: Manner,
}

impl Client {
    /// The client of the class at an index of a plan.
    ///
    /// # Errors
    /// `Error::Plan` if its certificates cannot be read.
    pub fn new(plan: &Plan, index: usize, streams: Streams) -> Result<Self, Error> {
        let class = &plan.classes[index];
        let target = plan.target_of(class);
        let own = (0..plan.classes.len()).filter(|&other| plan.owner_of(other) == index);
        let all: Vec<_> = own.map(|other| &plan.classes[other]).collect();
        let windows = Windows {
            stream_bytes: all
                .iter()
                .map(|it| first_window(it, streams))
                .min()
                .unwrap_or(0),
            bytes_per_second: class
                .read_bytes_per_second
                .filter(|_| class.read_pace_of == PaceOf::Connection),
            are_paced: all.iter().any(|it| it.read_bytes_per_second.is_some()),
        };
        Ok(Self {
            tls: tls::Client::of(target, super::ALPN)?,
            block: Block::new(Coding::Hpack, class, target),
            streams,
            windows,
            manner: Manner {
                window_bytes: first_window(class, streams),
                bytes_per_second: stream_pace(class),
                place: place_of(plan, class),
            },
        })
    }
}

/// The pace at which each answer is read; `None` without one.
fn stream_pace(class: &Class) -> Option<u64> {
    let pace = class.read_bytes_per_second;
    pace.filter(|_| class.read_pace_of == PaceOf::Stream)
}

/// The initial window of a stream. Classes on the same connections have the same windows.
fn first_window(class: &Class, streams: Streams) -> u32 {
    let window = streams.stream_window_bytes;
    stream_pace(class).map_or(window, |pace| slow_window(pace, window))
}

fn place_of(plan: &Plan, class: &Class) -> Option<Place> {
    let tree = class.priority.as_ref()?.tree.as_ref()?;
    let depends_on = tree.depends_on.iter();
    Some(Place {
        weight: tree.weight,
        depends_on: depends_on.filter_map(|it| plan.place_of(it)).collect(),
        exclusive: tree.exclusive,
        apart: tree.apart,
    })
}
