//! A QUIC connection: datagrams on one side, streams on the other.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use bytes::{Bytes, BytesMut};
use quinn_proto::{
    Connection, ConnectionError, ConnectionHandle, DatagramEvent, Endpoint, Event, VarInt,
};

use super::client::Client;
use super::frame::variable;
use crate::clock::{Clock, Nanos};
use crate::failure::Failure;
use crate::protocol::Datagrams;

/// The id of `initial_max_streams_bidi` (RFC 9000 §18.2).
const MAX_STREAMS: u64 = 0x08;

/// The longest quoted reason of a server, which may send one as long as a packet.
const LONGEST_REASON_CHARACTERS: usize = 160;

/// The reason why a connection is unusable.
#[derive(Debug)]
pub(super) struct Lost {
    pub(super) failure: Failure,
    /// The text for a failed handshake or a protocol error.
    pub(super) why: Option<String>,
}

/// The client's end of a connection.
pub(super) struct Quic {
    clock: Clock,
    endpoint: Endpoint,
    handle: ConnectionHandle,
    server: SocketAddr,
    pub(super) connection: Connection,
    /// The next datagram to send, if it was requested already.
    out: Vec<u8>,
    has_out: bool,
}

impl fmt::Debug for Quic {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Quic").finish_non_exhaustive()
    }
}

impl Quic {
    pub(super) fn start(client: &Client, server: SocketAddr, clock: Clock) -> io::Result<Self> {
        let now = clock.instant(clock.now());
        let (endpoint, handle, connection) = client.connect(server, now)?;
        Ok(Self {
            clock,
            endpoint,
            handle,
            server,
            connection,
            out: Vec::new(),
            has_out: false,
        })
    }

    /// Takes a received datagram.
    pub(super) fn take(&mut self, datagram: &[u8], now: Nanos) {
        let now = self.clock.instant(now);
        let datagram = BytesMut::from(datagram);
        let mut answer = Vec::new();
        let event = self
            .endpoint
            .handle(now, self.server, None, None, datagram, &mut answer);
        // A datagram that is not for this connection is ignored.
        if let Some(DatagramEvent::ConnectionEvent(_, event)) = event {
            self.connection.handle_event(event);
        }
    }

    /// The next event.
    pub(super) fn event(&mut self) -> Option<Event> {
        while let Some(event) = self.connection.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(self.handle, event) {
                self.connection.handle_event(event);
            }
        }
        self.connection.poll()
    }

    /// The next datagram to send, the same until `sent` is called.
    pub(super) fn datagram(&mut self) -> Option<&[u8]> {
        if !self.has_out {
            self.out.clear();
            let now = self.clock.instant(self.clock.now());
            self.has_out = self
                .connection
                .poll_transmit(now, 1, &mut self.out)
                .is_some();
        }
        if !self.has_out {
            return None;
        }
        Some(&self.out)
    }

    pub(super) fn sent(&mut self) {
        self.has_out = false;
    }

    /// The next time at which there is something to do without a datagram.
    pub(super) fn moment(&mut self) -> Option<Nanos> {
        let moment = self.connection.poll_timeout()?;
        Some(self.clock.nanos(moment))
    }

    /// Does what is due.
    pub(super) fn wake(&mut self, now: Nanos) {
        self.connection.handle_timeout(self.clock.instant(now));
    }

    /// Tells the server that the connection ends.
    pub(super) fn close(&mut self, code: u32, why: &'static str) {
        let now = self.clock.instant(self.clock.now());
        let why = Bytes::from_static(why.as_bytes());
        self.connection.close(now, VarInt::from_u32(code), why);
    }

    /// The number of concurrent requests that the server allows.
    pub(super) fn most_streams(&self) -> Option<u32> {
        let (most, _) = variable(&self.parameter(MAX_STREAMS)?)?;
        Some(most.min(u64::from(u32::MAX)) as u32)
    }

    /// A transport parameter of the server's handshake, by its id.
    fn parameter(&self, wanted: u64) -> Option<Vec<u8>> {
        let session = self.connection.crypto_session();
        let parameters = session.transport_parameters().ok().flatten()?;
        // They are private; only their encoding is accessible.
        let mut sent = Vec::new();
        parameters.write(&mut sent);
        let mut rest = sent.as_slice();
        while let Some((name, tail)) = variable(rest) {
            let (length, tail) = variable(tail)?;
            let (own, tail) = tail.split_at_checked(length as usize)?;
            rest = tail;
            if name == wanted {
                return Some(own.to_vec());
            }
        }
        None
    }

    /// The smoothed round-trip time (RFC 9002 §5.3).
    pub(super) fn round_trip(&self) -> Nanos {
        self.connection.rtt().as_nanos() as Nanos
    }

    /// The counts of its datagrams.
    pub(super) fn datagrams(&self) -> Datagrams {
        let stats = self.connection.stats();
        Datagrams {
            sent: stats.udp_tx.datagrams,
            received: stats.udp_rx.datagrams,
            lost_packets: stats.path.lost_packets,
            ..Datagrams::default()
        }
    }
}

/// The failure of the requests on a lost connection. `stands`: true after its handshake.
pub(super) fn lost(reason: &ConnectionError, stands: bool) -> Lost {
    /// The error code with which an HTTP/3 server ends a connection without an error (RFC 9114
    /// §8.1).
    const H3_NO_ERROR: u32 = 0x100;
    let why = || {
        let text: String = reason.to_string();
        Some(text.chars().take(LONGEST_REASON_CHARACTERS).collect())
    };
    let (failure, why) = match reason {
        ConnectionError::TimedOut | ConnectionError::LocallyClosed if stands => {
            (Failure::Empty, None)
        }
        ConnectionError::ApplicationClosed(close)
            if close.error_code == VarInt::from_u32(H3_NO_ERROR) && stands =>
        {
            (Failure::Empty, None)
        }
        ConnectionError::Reset if stands => (Failure::Reset, None),
        _ if stands => (Failure::Reset, why()),
        ConnectionError::TimedOut => (Failure::ConnectTimeout, why()),
        _ => (Failure::Tls, why()),
    };
    Lost { failure, why }
}
