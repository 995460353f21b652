//! What connections that carry many requests at once came to.

/// Counts of all connections, warm-up included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Requests sent, each on a stream of its own.
    pub streams: u64,
    /// The sum, over these, of the streams that its connection then had.
    pub streams_beside: u64,
    /// Most streams of a connection at once.
    pub most_streams: u64,
    /// The least that a server said it takes at once; none when none said so.
    pub peer_limit: Option<u32>,
    /// Connections of which the server said that it takes no more (GOAWAY).
    pub goaways: u64,
    /// Requests that the server had not looked at, and that were sent again.
    pub refused: u64,
    /// Streams that the server reset otherwise.
    pub resets: u64,
    /// Times that what the probe allows to be sent had run out, or nearly.
    pub window_stalls: u64,
}

impl Tally {
    /// Adds what others counted.
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

    /// The mean number of streams of a connection when one more was opened, itself included.
    pub fn mean_streams(&self) -> f64 {
        self.streams_beside as f64 / self.streams.max(1) as f64
    }
}

/// Counts of all connections over UDP, warm-up included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Datagrams {
    /// Connections whose handshake came about.
    pub handshakes: u64,
    /// Datagrams that the probe sent.
    pub sent: u64,
    /// Datagrams that it read.
    pub received: u64,
    /// Packets of the probe that the server never acknowledged: what they carried was sent again.
    pub lost_packets: u64,
    /// Datagrams that came to this host and found the buffer of the probe's socket full.
    pub dropped: u64,
}

impl Datagrams {
    /// Adds what others counted.
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
