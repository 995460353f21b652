//! The windows, paces and priorities of connections and requests.

/// The initial windows of a connection with a slow client.
#[derive(Debug, Clone, Copy)]
pub(super) struct Windows {
    /// The smallest window of a stream.
    pub(super) stream_bytes: u32,
    /// The pace of the whole connection, if it has one.
    pub(super) bytes_per_second: Option<u64>,
    /// True if anything on it has a pace.
    pub(super) are_paced: bool,
}

/// The windows, pace and priority of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Manner {
    /// The initial window: the bytes that the server may send before they are read.
    pub(super) window_bytes: u32,
    /// The pace at which the answer is read; `None` to read at once.
    pub(super) bytes_per_second: Option<u64>,
    /// The priority; `None` to send none.
    pub(super) place: Option<Place>,
}

/// The place of a stream in the priority tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Place {
    /// The weight, from 1 to 256.
    pub(super) weight: u16,
    /// Indices of classes in the plan; the stream depends on the newest stream of them.
    pub(super) depends_on: Vec<usize>,
    /// True if this stream becomes the parent of the other streams that depend on the same stream.
    pub(super) exclusive: bool,
    /// True to send the priority in a separate frame.
    pub(super) apart: bool,
}
