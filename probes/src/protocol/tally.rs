//! Counts of connections that carry many requests at once.

/// Counts over all connections, including the warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests sent, each on its own stream.
    pub streams: u64,
    /// The sum, over these requests, of the open streams of their connection.
    pub streams_beside: u64,
    /// The most concurrent streams of a connection.
    pub most_streams: u64,
    /// The lowest limit of streams that a server announced; `None` without any.
    pub peer_limit: Option<u32>,
    /// Connections on which the server announced that it accepts no more (GOAWAY).
    pub goaways: u64,
    /// Requests that the server did not process and that were sent again.
    pub refused: u64,
    /// Streams that the server reset for other reasons.
    pub resets: u64,
    /// The number of times that the probe's flow-control window was empty or nearly empty.
    pub window_stalls: u64,
}

impl Tally {
    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.streams += other.streams;
        self.streams_beside += other.streams_beside;
        self.most_streams = self.most_streams.max(other.most_streams);
        self.peer_limit = match (self.peer_limit, other.peer_limit) {
            (Some(own), Some(theirs)) => Some(own.min(theirs)),
            (own, theirs) => own.or(theirs),
        };
        self.goaways += other.goaways;
        self.refused += other.refused;
        self.resets += other.resets;
        self.window_stalls += other.window_stalls;
    }

    /// The mean number of streams of a connection when one is opened, including that one.
    pub fn mean_streams(&self) -> f64 {
        self.streams_beside as f64 / self.streams.max(1) as f64
    }
}

/// Counts of all connections over UDP, including the warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Datagrams {
    /// Completed handshakes.
    pub handshakes: u64,
    /// Datagrams that the probe sent.
    pub sent: u64,
    /// Datagrams that it read.
    pub received: u64,
    /// Packets of the probe that were never acknowledged, whose data was sent again.
    pub lost_packets: u64,
    /// Datagrams that arrived when the buffer of the probe's socket was full.
    pub dropped: u64,
}

impl Datagrams {
    /// Adds other counts.
    pub fn add(&mut self, other: &Self) {
        self.handshakes += other.handshakes;
        self.sent += other.sent;
        self.received += other.received;
        self.lost_packets += other.lost_packets;
        self.dropped += other.dropped;
    }
}

#[cfg(test)]
mod tests {
    use super::Tally;

    #[test]
    fn what_threads_counted_adds_and_the_least_limit_stays() {
        let one = Tally {
            streams: 4,
            streams_beside: 10,
            most_streams: 4,
            peer_limit: Some(128),
            goaways: 1,
            ..Tally::default()
        };
        let mut all = Tally {
            most_streams: 9,
            peer_limit: Some(100),
            ..one
        };
        all.add(&one);
        all.add(&Tally::default());
        assert_eq!((all.streams, all.most_streams, all.goaways), (8, 9, 2));
        assert_eq!(all.peer_limit, Some(100));
        assert!((all.mean_streams() - 2.5).abs() < 1e-9);
    }
}
