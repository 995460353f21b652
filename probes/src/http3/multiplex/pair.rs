//! A scripted QUIC server in memory, with the probe's end of the connection, for tests.

#[path = "../../../tests/probe/ground_truth/certificate.rs"]
mod certificate;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use quinn_proto::crypto::rustls::QuicServerConfig;
use quinn_proto::{
    Connection, ConnectionError, ConnectionHandle, DatagramEvent, Dir, Endpoint, EndpointConfig,
    Event, ServerConfig, StreamEvent, StreamId, TransportConfig, VarInt, WriteError,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use self::certificate::{CERTIFICATE, KEY};
use crate::clock::Clock;
use crate::exchange::Exchange;
use crate::http3::fault::Fault;
use crate::http3::{Client, Multiplex};
use crate::multiplexed::Block;
use crate::plan::{Endpoint as Place, Method, Streams, Target, Tls, TlsVersion};
use crate::protocol::{Ended, Protocol as _};
use crate::request::Request;
use crate::tls;

/// The next action of a server.
#[derive(Debug, Clone)]
pub(super) enum Say {
    /// Sends bytes on a stream, given by the index of its request.
    Bytes(u64, Vec<u8>),
    /// Ends the stream of a request.
    End(u64),
    Reset(u64, u32),
    /// Sends bytes on its control stream, which it opens first if necessary.
    Control(Vec<u8>),
    Close(u32),
}

/// Both ends of a connection.
pub(super) struct Pair {
    pub(super) client: Multiplex,
    pub(super) ended: Vec<Ended>,
    clock: Clock,
    endpoint: Endpoint,
    server: Option<(ConnectionHandle, Connection)>,
    control: Option<StreamId>,
    /// Bytes that flow control has not let the server send yet, by stream.
    unsent: Vec<(StreamId, Vec<u8>)>,
    /// The bytes that the client sent, by stream.
    pub(super) requests: Vec<(StreamId, Vec<u8>)>,
    /// The reasons why the client stopped reading streams.
    pub(super) stopped: Vec<u32>,
    pub(super) closed: Option<u32>,
}

fn addresses() -> [SocketAddr; 2] {
    [4433, 50_000].map(|port| SocketAddr::from(([127, 0, 0, 1], port)))
}

fn client(plan: Streams) -> Client {
    let tls = Tls {
        verify: false,
        ca_file: None,
        server_name: None,
        resumption: true,
        oldest: TlsVersion::V1_2,
        newest: TlsVersion::V1_3,
        ciphers: Vec::new(),
        certificate_file: None,
        key_file: None,
    };
    let target = Target {
        endpoint: Place::Internet(addresses()[0]),
        host: "localhost".into(),
        tls: Some(tls),
        proxy_protocol: None,
    };
    let tls = tls::Client::of_newest(&target, b"h3").expect("a client of TLS");
    Client::of(&tls, plan, Block::default()).expect("a client of QUIC")
}

fn server(most_streams: u8, protocol: &[u8]) -> Endpoint {
    let decoded = |text: &str| STANDARD.decode(text).expect("base64");
    let chain = vec![CertificateDer::from(decoded(CERTIFICATE))];
    let key = PrivateKeyDer::try_from(decoded(KEY)).expect("a key");
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut tls = rustls::ServerConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .and_then(|tls| tls.with_no_client_auth().with_single_cert(chain, key))
        .expect("a server of TLS");
    tls.alpn_protocols = vec![protocol.to_vec()];
    let crypto = QuicServerConfig::try_from(tls).expect("a server of QUIC");
    let mut config = ServerConfig::with_crypto(Arc::new(crypto));
    let mut transport = TransportConfig::default();
    transport.max_concurrent_bidi_streams(most_streams.into());
    config.transport_config(Arc::new(transport));
    Endpoint::new(
        Arc::new(EndpointConfig::default()),
        Some(Arc::new(config)),
        false,
        None,
    )
}

impl Pair {
    /// A server that allows `most_streams` concurrent requests and a client after their handshake.
    pub(super) fn new(most_streams: u8, plan: Streams, protocol: &[u8]) -> Self {
        let clock = Clock::start();
        let [at, _] = addresses();
        let mut pair = Self {
            client: Multiplex::start(&client(plan), at, clock).expect("a connection"),
            ended: Vec::new(),
            clock,
            endpoint: server(most_streams, protocol),
            server: None,
            control: None,
            unsent: Vec::new(),
            requests: Vec::new(),
            stopped: Vec::new(),
            closed: None,
        };
        // A failed handshake shows in the client.
        let _ = pair.talk();
        pair
    }

    /// Sends `count` requests.
    pub(super) fn ask(&mut self, count: u64) {
        for number in 0..count {
            let mut exchange = Exchange::new(Request::new(0, number, 0));
            exchange.response.expect(Method::Get);
            assert!(self.client.has_room(), "of {count}, {number}");
            self.client.ask(exchange, b"\0\0\xd1\xd7\x50\x01a\xc1");
        }
    }

    /// Performs actions of the server, and delivers all datagrams.
    pub(super) fn say(&mut self, says: &[Say]) -> Result<u64, Fault> {
        let (_, server) = self.server.as_mut().expect("a connection");
        for say in says {
            send(server, &mut self.unsent);
            let id = |number: u64| StreamId::new(quinn_proto::Side::Client, Dir::Bi, number);
            match say {
                Say::Bytes(number, bytes) => self.unsent.push((id(*number), bytes.clone())),
                Say::End(number) => drop(server.send_stream(id(*number)).finish()),
                Say::Reset(number, code) => {
                    let _ = server.send_stream(id(*number)).reset((*code).into());
                }
                Say::Control(bytes) => {
                    self.control = self.control.or_else(|| server.streams().open(Dir::Uni));
                    // There is none after the end of the connection.
                    if let Some(id) = self.control {
                        let _ = server.send_stream(id).write(bytes);
                    }
                }
                Say::Close(code) => {
                    server.close(Instant::now(), VarInt::from_u32(*code), Bytes::new());
                }
            }
        }
        self.talk()
    }

    /// Delivers datagrams until there are none; returns the number of body bytes.
    pub(super) fn talk(&mut self) -> Result<u64, Fault> {
        let [at, from] = addresses();
        let (mut bytes, mut fault) = (0, None);
        loop {
            let mut moved = false;
            while let Some(datagram) = self.client.datagram() {
                let datagram = BytesMut::from(datagram);
                self.client.sent();
                moved = true;
                let now = Instant::now();
                let mut answer = Vec::new();
                match self
                    .endpoint
                    .handle(now, from, None, None, datagram, &mut answer)
                {
                    Some(DatagramEvent::NewConnection(incoming)) => {
                        match self.endpoint.accept(incoming, now, &mut answer, None) {
                            Ok(server) => self.server = Some(server),
                            Err(_) => self.client.take(&answer, self.clock.now()),
                        }
                    }
                    Some(DatagramEvent::ConnectionEvent(_, event)) => {
                        if let Some((_, server)) = &mut self.server {
                            server.handle_event(event);
                        }
                    }
                    _ => {}
                }
            }
            self.serve();
            if let Some((_, server)) = &mut self.server {
                let mut datagram = Vec::new();
                while server
                    .poll_transmit(Instant::now(), 1, &mut datagram)
                    .is_some()
                {
                    moved = true;
                    self.client.take(&datagram, self.clock.now());
                    datagram.clear();
                }
            }
            if fault.is_none() {
                match self.client.advance(self.clock.now(), &mut self.ended) {
                    Ok(count) => bytes += count,
                    Err(found) => fault = Some(found),
                }
            }
            if !moved {
                break;
            }
        }
        assert_eq!(self.client.datagram(), None, "nothing more to say to {at}");
        fault.map_or(Ok(bytes), Err)
    }

    /// Processes pending events of the server.
    fn serve(&mut self) {
        let Some((handle, server)) = &mut self.server else {
            return;
        };
        while let Some(event) = server.poll_endpoint_events() {
            if let Some(event) = self.endpoint.handle_event(*handle, event) {
                server.handle_event(event);
            }
        }
        while let Some(event) = server.poll() {
            match event {
                Event::Stream(StreamEvent::Stopped { error_code, .. }) => {
                    self.stopped.push(error_code.into_inner() as u32);
                }
                Event::ConnectionLost {
                    reason: ConnectionError::ApplicationClosed(close),
                } => self.closed = Some(close.error_code.into_inner() as u32),
                _ => {}
            }
        }
        // Its timers delay acknowledgements and detect losses.
        let now = Instant::now();
        if server.poll_timeout().is_some_and(|due| due <= now) {
            server.handle_timeout(now);
        }
        send(server, &mut self.unsent);
        for dir in [Dir::Uni, Dir::Bi] {
            while let Some(id) = server.streams().accept(dir) {
                self.requests.push((id, Vec::new()));
            }
        }
        for (id, bytes) in &mut self.requests {
            if let Ok(mut chunks) = server.recv_stream(*id).read(true) {
                while let Ok(Some(chunk)) = chunks.next(usize::MAX) {
                    bytes.extend_from_slice(&chunk.bytes);
                }
                let _ = chunks.finalize();
            }
        }
    }
}

/// Sends as much as flow control allows; bytes for ended streams are dropped.
fn send(server: &mut Connection, unsent: &mut Vec<(StreamId, Vec<u8>)>) {
    unsent.retain_mut(|(id, bytes)| {
        loop {
            match server.send_stream(*id).write(bytes) {
                Ok(count) => drop(bytes.drain(..count)),
                Err(error) => return error == WriteError::Blocked,
            }
            if bytes.is_empty() {
                return false;
            }
        }
    });
}
