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
    /// Times that a connection changed the port that it comes from.
    pub migrations: u64,
    /// Of these, those after which the server spoke to the new port.
    pub followed_migrations: u64,
    /// Of these, those that ended the connection.
    pub lost_migrations: u64,
    /// Times that the server asked whether a new port is this connection's.
    pub path_challenges: u64,
    /// Requests that were under way at a change.
    pub moved_requests: u64,
    /// Of these, those that were answered whole on the same connection.
    pub moved_answers: u64,
}

impl Traffic {
    /// Adds what others counted.
    pub fn add(&mut self, other: &Self) {
        self.handshakes += other.handshakes;
        self.datagrams_sent += other.datagrams_sent;
        self.datagrams_received += other.datagrams_received;
        self.lost_packets += other.lost_packets;
        self.dropped_datagrams += other.dropped_datagrams;
        self.migrations += other.migrations;
        self.followed_migrations += other.followed_migrations;
        self.lost_migrations += other.lost_migrations;
        self.path_challenges += other.path_challenges;
        self.moved_requests += other.moved_requests;
        self.moved_answers += other.moved_answers;
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
            migrations: 6,
            followed_migrations: 7,
            lost_migrations: 8,
            path_challenges: 9,
            moved_requests: 10,
            moved_answers: 11,
        };
        let mut all = one;
        all.add(&one);
        all.add(&Traffic::default());
        assert_eq!((all.handshakes, all.datagrams_sent), (2, 4));
        assert_eq!((all.datagrams_received, all.lost_packets), (6, 8));
        assert_eq!(all.dropped_datagrams, 10);
        assert_eq!((all.migrations, all.followed_migrations), (12, 14));
        assert_eq!((all.lost_migrations, all.path_challenges), (16, 18));
        assert_eq!((all.moved_requests, all.moved_answers), (20, 22));
    }
}
