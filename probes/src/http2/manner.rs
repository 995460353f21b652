//! How the answers of a connection and of a class are to be read, and in what order.

/// How a connection's windows are at first, where a client of them is slow.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    /// The smallest of a stream.
    pub(super) stream_bytes: u32,
    /// The pace of the whole connection, where it has one.
    pub(super) bytes_per_second: Option<u64>,
    /// Whether anything on it has a pace.
    pub(super) are_paced: bool,
}

/// How a request is to be answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manner {
    /// What may be sent of the answer before it was read.
    pub(super) window_bytes: u32,
    /// The pace at which it is read then; none reads at once.
    pub(super) bytes_per_second: Option<u64>,
    /// How urgent it is; none says nothing.
    pub(super) place: Option<Place>,
}

/// Where a stream stands in the tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// From 1 to 256.
    pub(super) weight: u16,
    /// Classes, by their places in the plan, of which the newest stream is the one that it depends on.
    pub(super) depends_on: Vec<usize>,
    /// Whether it comes between that and what had depended on it.
    pub(super) exclusive: bool,
    /// Whether it is said in a frame of its own.
    pub(super) apart: bool,
}
