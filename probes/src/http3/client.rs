//! The making of QUIC connections: the probe's parameters and its trust.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{
    ClientConfig, Connection, ConnectionHandle, Endpoint, EndpointConfig, TransportConfig, VarInt,
};

use rustls::Tls13CipherSuite;

use crate::error::Error;
use crate::multiplexed::{Block, Coding};
use crate::plan::{Plan, Streams};
use crate::tls;

/// The largest accepted datagram: what fits into an Ethernet packet. Over loopback, a server would
/// otherwise send larger ones than any network carries.
pub(super) const MOST_DATAGRAM_BYTES: u16 = 1472;

/// The most concurrent streams that a server may open: three are used, and others may be tried.
const MOST_INCOMING: u8 = 16;

/// Makes the connections of a class.
pub struct Client {
    endpoint: Arc<EndpointConfig>,
    config: ClientConfig,
    name: String,
    pub(super) plan: Streams,
    pub(crate) block: Block,
}

impl fmt::Debug for Client {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Client").finish_non_exhaustive()
    }
}

impl Client {
    /// The client of the class at an index of a plan.
    ///
    /// # Errors
    /// `Error::Plan` if its certificates cannot be read, or its configuration does not allow QUIC.
    pub fn new(plan: &Plan, index: usize, streams: Streams) -> Result<Self, Error> {
        let class = &plan.classes[index];
        let target = plan.target_of(class);
        let tls = tls::Client::of_newest(target, super::ALPN)?;
        Self::of(&tls, streams, Block::new(Coding::Qpack, class, target))
    }

    /// The client with the TLS configuration of `tls`.
    pub(super) fn of(tls: &tls::Client, plan: Streams, block: Block) -> Result<Self, Error> {
        let refused = |what: &str| Error::Plan(format!("target.tls: {what}"));
        // Initial packets are always encrypted with this suite, whatever is negotiated for later
        // ones.
        let suite = rustls::crypto::ring::cipher_suite::TLS13_AES_128_GCM_SHA256;
        let initial = suite.tls13().and_then(Tls13CipherSuite::quic_suite);
        let initial = initial.ok_or_else(|| refused("no cipher suite for QUIC"))?;
        let crypto = QuicClientConfig::with_initial(tls.config(), initial)
            .map_err(|error| refused(&error.to_string()))?;
        let mut transport = TransportConfig::default();
        transport
            .max_concurrent_bidi_streams(0_u8.into())
            .max_concurrent_uni_streams(MOST_INCOMING.into())
            .stream_receive_window(VarInt::from_u32(plan.stream_window_bytes))
            .receive_window(VarInt::from_u32(plan.connection_window_bytes))
            // The server decides how long an idle connection lasts.
            .max_idle_timeout(None)
            .datagram_receive_buffer_size(None)
            .enable_segmentation_offload(false)
            .mtu_discovery_config(None);
        let mut config = ClientConfig::new(Arc::new(crypto));
        config.transport_config(Arc::new(transport));
        let mut endpoint = EndpointConfig::default();
        endpoint
            .max_udp_payload_size(MOST_DATAGRAM_BYTES)
            .map_err(|error| refused(&error.to_string()))?;
        Ok(Self {
            endpoint: Arc::new(endpoint),
            config,
            name: tls.name(),
            plan,
            block,
        })
    }

    /// A connection before its handshake, and its endpoint.
    pub(super) fn connect(
        &self,
        server: SocketAddr,
        now: Instant,
    ) -> io::Result<(Endpoint, ConnectionHandle, Connection)> {
        let mut endpoint = Endpoint::new(self.endpoint.clone(), None, false, None);
        let (handle, connection) = endpoint
            .connect(now, self.config.clone(), server, &self.name)
            .map_err(io::Error::other)?;
        Ok((endpoint, handle, connection))
    }
}
