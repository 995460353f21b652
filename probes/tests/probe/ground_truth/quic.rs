//! A server of QUIC on a socket of its own, which does to a client what it is told, right or wrong.

#![allow(dead_code, unreachable_pub, missing_docs)]

use std::collections::HashMap;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    Connection, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig, Event,
    RandomConnectionIdGenerator, ServerConfig, StreamId, TransportConfig, VarInt,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

#[path = "certificate.rs"]
mod certificate;

/// How long it waits for datagrams at most before it looks around.
const PATIENCE: Duration = Duration::from_millis(20);

/// What a server lets a client send.
#[derive(Clone, Copy)]
pub struct Grant {
    pub streams: u32,
    pub stream_bytes: u32,
    pub connection_bytes: u32,
}

impl Default for Grant {
    fn default() -> Self {
        Self {
            streams: 128,
            stream_bytes: 1 << 16,
            connection_bytes: 1 << 20,
        }
    }
}

/// What a server does; nothing but QUIC itself unless it says so.
pub trait Peer: Send + 'static {
    fn grant(&self) -> Grant {
        Grant::default()
    }

    /// Before anything is read: a server may stand still here.
    fn pause(&mut self) {}

    /// Datagrams that are said in place of what QUIC would.
    fn instead(&mut self, _datagram: &[u8]) -> Option<Vec<Vec<u8>>> {
        None
    }

    /// Whether each first datagram is answered by the wish for another (Retry).
    fn retries(&self) -> bool {
        false
    }

    /// Whether all that is known of connections is forgotten now.
    fn forgets(&mut self) -> bool {
        false
    }

    /// Whether nothing is read and nothing said any more.
    fn is_dead(&self) -> bool {
        false
    }

    /// A handshake is over.
    fn begun(&mut self, connection: &mut Connection) {
        control(connection, b"\0\x04\0");
    }

    /// A request has come.
    fn asked(&mut self, _connection: &mut Connection, _stream: StreamId) {}

    /// Again and again, of each connection; whether there is more to do at once.
    fn turn(&mut self, _connection: &mut Connection) -> bool {
        false
    }
}

/// Opens a stream on which a server speaks of itself, and says something there.
pub fn control(connection: &mut Connection, bytes: &[u8]) -> Option<StreamId> {
    let id = connection.streams().open(Dir::Uni)?;
    connection.send_stream(id).write(bytes).ok();
    Some(id)
}

/// Answers a request with these bytes; `end`: and with no more.
pub fn answer(connection: &mut Connection, stream: StreamId, bytes: &[u8], end: bool) {
    let mut rest = bytes;
    while let Ok(count) = connection.send_stream(stream).write(rest) {
        rest = &rest[count..];
        if rest.is_empty() {
            break;
        }
    }
    if end {
        connection.send_stream(stream).finish().ok();
    }
}

/// Status 200 and a body of four bytes, whole.
pub const GOOD: &[u8] = b"\x01\x06\0\0\xd9\x54\x014\x00\x04good";

/// A server that runs until this is dropped.
pub struct Quic {
    pub address: SocketAddr,
    pub handshakes: Arc<AtomicU64>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Quic {
    pub fn start(peer: impl Peer) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut own = Self {
            address: socket.local_addr().unwrap(),
            handshakes: Arc::default(),
            ended: Arc::default(),
            thread: None,
        };
        let (ended, handshakes) = (own.ended.clone(), own.handshakes.clone());
        own.thread = Some(thread::spawn(move || {
            let mut server = Server::new(socket, peer, handshakes);
            while !ended.load(Ordering::Relaxed) {
                server.turn();
            }
        }));
        own
    }
}

impl Drop for Quic {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let result = thread.join();
            assert!(result.is_ok() || thread::panicking(), "the server panicked");
        }
    }
}

struct Open {
    connection: Connection,
    from: SocketAddr,
    has_begun: bool,
}

struct Server<P> {
    socket: UdpSocket,
    peer: P,
    config: Arc<EndpointConfig>,
    terms: Arc<ServerConfig>,
    endpoint: Endpoint,
    open: HashMap<ConnectionHandle, Open>,
    handshakes: Arc<AtomicU64>,
    is_busy: bool,
}

impl<P: Peer> Server<P> {
    fn new(socket: UdpSocket, peer: P, handshakes: Arc<AtomicU64>) -> Self {
        let mut config = EndpointConfig::default();
        // Numbers that are taken for its own after it has forgotten them.
        config.cid_generator(|| Box::new(RandomConnectionIdGenerator::new(8)));
        let config = Arc::new(config);
        let terms = server_config(peer.grant());
        let endpoint = Endpoint::new(config.clone(), Some(terms.clone()), false, None);
        Self {
            socket,
            peer,
            config,
            terms,
            endpoint,
            open: HashMap::new(),
            handshakes,
            is_busy: false,
        }
    }

    fn turn(&mut self) {
        let mut buffer = [0; 2048];
        let now = Instant::now();
        let timers = self.open.values_mut();
        let next = timers.filter_map(|it| it.connection.poll_timeout()).min();
        let wait = next.map_or(PATIENCE, |at| {
            at.saturating_duration_since(now).min(PATIENCE)
        });
        self.socket.set_nonblocking(self.is_busy).unwrap();
        let wait = wait.max(Duration::from_micros(100));
        self.socket.set_read_timeout(Some(wait)).unwrap();
        for _ in 0..256 {
            let received = self.socket.recv_from(&mut buffer);
            self.socket.set_nonblocking(true).unwrap();
            match received {
                Ok((count, from)) => {
                    self.peer.pause();
                    if !self.peer.is_dead() {
                        self.take(&buffer[..count], from);
                    }
                }
                Err(error) => {
                    let is_nothing = matches!(
                        error.kind(),
                        ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::ConnectionRefused
                    );
                    assert!(is_nothing, "{error}");
                    break;
                }
            }
        }
        if self.peer.is_dead() {
            return;
        }
        self.serve();
        if self.peer.forgets() {
            self.open.clear();
            self.endpoint =
                Endpoint::new(self.config.clone(), Some(self.terms.clone()), false, None);
        }
    }

    fn take(&mut self, datagram: &[u8], from: SocketAddr) {
        if let Some(said) = self.peer.instead(datagram) {
            for datagram in said {
                self.say(&datagram, from);
            }
            return;
        }
        if self.peer.retries() {
            // One that has forgotten what it gave asks for it again, for ever.
            let server = server_config(self.peer.grant());
            self.endpoint = Endpoint::new(self.config.clone(), Some(server), false, None);
        }
        let now = Instant::now();
        let mut said = Vec::new();
        let datagram = BytesMut::from(datagram);
        let event = self
            .endpoint
            .handle(now, from, None, None, datagram, &mut said);
        match event {
            Some(DatagramEvent::NewConnection(incoming)) if self.peer.retries() => {
                assert!(self.endpoint.retry(incoming, &mut said).is_ok());
                self.say(&said, from);
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                if let Ok((handle, connection)) =
                    self.endpoint.accept(incoming, now, &mut said, None)
                {
                    let open = Open {
                        connection,
                        from,
                        has_begun: false,
                    };
                    self.open.insert(handle, open);
                } else {
                    self.say(&said, from);
                }
            }
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(open) = self.open.get_mut(&handle) {
                    open.connection.handle_event(event);
                }
            }
            Some(DatagramEvent::Response(_)) => self.say(&said, from),
            None => {}
        }
    }

    fn serve(&mut self) {
        let now = Instant::now();
        let (peer, endpoint) = (&mut self.peer, &mut self.endpoint);
        self.is_busy = false;
        for (handle, open) in &mut self.open {
            let connection = &mut open.connection;
            if connection.poll_timeout().is_some_and(|at| at <= now) {
                connection.handle_timeout(now);
            }
            while let Some(event) = connection.poll_endpoint_events() {
                if let Some(event) = endpoint.handle_event(*handle, event) {
                    connection.handle_event(event);
                }
            }
            while let Some(event) = connection.poll() {
                if let Event::Connected = event {
                    open.has_begun = true;
                    self.handshakes.fetch_add(1, Ordering::Relaxed);
                    peer.begun(connection);
                }
            }
            // What the client says of itself has room in the first window.
            while connection.streams().accept(Dir::Uni).is_some() {}
            while let Some(id) = connection.streams().accept(Dir::Bi) {
                drain(connection, id);
                peer.asked(connection, id);
            }
            if open.has_begun && !connection.is_closed() {
                self.is_busy |= peer.turn(connection);
            }
            let mut datagram = Vec::new();
            while connection.poll_transmit(now, 1, &mut datagram).is_some() {
                // One that has gone, or whose buffer is full: QUIC sends it again.
                self.socket.send_to(&datagram, open.from).ok();
                datagram.clear();
            }
        }
        self.open.retain(|_, open| !open.connection.is_drained());
    }

    fn say(&self, datagram: &[u8], to: SocketAddr) {
        self.socket.send_to(datagram, to).ok();
    }
}

/// Reads a request: what it says does not matter.
fn drain(connection: &mut Connection, id: StreamId) {
    if let Ok(mut chunks) = connection.recv_stream(id).read(true) {
        while let Ok(Some(_)) = chunks.next(usize::MAX) {}
        let _ = chunks.finalize();
    }
}

fn server_config(grant: Grant) -> Arc<ServerConfig> {
    let decoded = |text: &str| STANDARD.decode(text).unwrap();
    let chain = vec![CertificateDer::from(decoded(certificate::CERTIFICATE))];
    let key = PrivateKeyDer::try_from(decoded(certificate::KEY)).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain, key)
        .unwrap();
    tls.alpn_protocols = vec![b"h3".to_vec()];
    let crypto = QuicServerConfig::try_from(tls).unwrap();
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    let mut transport = TransportConfig::default();
    transport
        .max_concurrent_bidi_streams(VarInt::from_u32(grant.streams))
        .stream_receive_window(VarInt::from_u32(grant.stream_bytes))
        .receive_window(VarInt::from_u32(grant.connection_bytes))
        .mtu_discovery_config(None);
    config.transport_config(Arc::new(transport));
    Arc::new(config)
}
