//! Classes whose requests go over the same connections, and how each of them wants its answers.

use crate::http2::{Manner, Place, Windows, slow_window};
use crate::plan::{Class, PaceOf, Plan, Streams};

/// What a class shares with others, and what is its own on what they share.
#[derive(Debug)]
pub struct Family {
    /// The class whose connections carry its requests.
    pub owner: usize,
    /// Other classes whose requests its own connections carry.
    pub guests: Vec<usize>,
    /// The windows of its own connections.
    pub windows: Windows,
    /// How its requests are answered; none where it does not speak HTTP/2.
    pub manner: Option<Manner>,
}

impl Family {
    /// That of the class at a place of a plan.
    pub fn new(plan: &Plan, index: usize) -> Self {
        let class = &plan.classes[index];
        let owner = plan.owner_of(index);
        let of_it = |&other: &usize| other != index && plan.owner_of(other) == index;
        let guests: Vec<_> = (0..plan.classes.len()).filter(of_it).collect();
        let own = |index: &usize| {
            let class = &plan.classes[*index];
            (class, class.http2.unwrap_or_default())
        };
        let all = || guests.iter().chain([&index]).map(own);
        let windows = Windows {
            stream_bytes: all().map(first_window).min().unwrap_or(0),
            bytes_per_second: class
                .read_bytes_per_second
                .filter(|_| class.read_pace_of == PaceOf::Connection),
            are_paced: all().any(|(class, _)| class.read_bytes_per_second.is_some()),
        };
        let manner = class.http2.map(|streams| Manner {
            window_bytes: first_window((class, streams)),
            bytes_per_second: stream_pace(class),
            place: place_of(plan, class),
        });
        Self {
            owner,
            guests,
            windows,
            manner,
        }
    }
}

/// The pace at which each answer is read.
fn stream_pace(class: &Class) -> Option<u64> {
    let pace = class.read_bytes_per_second;
    pace.filter(|_| class.read_pace_of == PaceOf::Stream)
}

/// What a server may send of an answer before it is told of more.
fn first_window((class, streams): (&Class, Streams)) -> u32 {
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
