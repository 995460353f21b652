//! What the connections of a class with HTTP/3 came to beneath their streams.

/// Counts of all connections, warm-up included.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Connections whose handshake came about.
    pub handshakes: u64,
    /// Datagrams that the probe sent.
    pub datagrams_sent: u64,
    /// Datagrams that it read.
    pub datagrams_received: u64,
    /// Packets of the probe that the server never acknowledged: what they carried was sent again.
    pub lost_packets: u64,
    /// Datagrams that came to this host and found the buffer of the probe's socket full.
    pub dropped_datagrams: u64,
}

impl Traffic {
    /// Adds what others counted.
    pub fn add(&mut self, other: &Self) {
        self.handshakes += other.handshakes;
        self.datagrams_sent += other.datagrams_sent;
        self.datagrams_received += other.datagrams_received;
        self.lost_packets += other.lost_packets;
        self.dropped_datagrams += other.dropped_datagrams;
    }
}

#[cfg(test)]
mod tests {
    use super::Traffic;

    #[test]
    fn what_threads_counted_adds() {
        let one = Traffic {
            handshakes: 1,
            datagrams_sent: 2,
            datagrams_received: 3,
            lost_packets: 4,
            dropped_datagrams: 5,
        };
        let mut all = one;
        all.add(&one);
        all.add(&Traffic::default());
        assert_eq!((all.handshakes, all.datagrams_sent), (2, 4));
        assert_eq!((all.datagrams_received, all.lost_packets), (6, 8));
        assert_eq!(all.dropped_datagrams, 10);
    }
}
