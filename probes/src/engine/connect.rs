//! The opening of connections: TCP, then TLS, until a connection can carry requests.

use std::io;
use std::net::{SocketAddr, TcpStream};

use super::Engine;
use crate::clock::{MILLISECOND, Nanos};
use crate::connection::{Connection, Phase};
use crate::failure::Failure;
use crate::protocol::Protocol as _;
use crate::request::{Reached, Request};
use crate::socket::{Socket, Transport, introduce};
use crate::sources;
use crate::sys::{self, Dial, Event};
use crate::tls::Client;

/// The duration from which a handshake must have had a repeated SYN: the kernel waits a second.
const FIRST_SYN_RETRY: Nanos = 900 * MILLISECOND;

impl Engine<'_> {
    /// Opens a connection for a request.
    pub(super) fn open(&mut self, class: usize, request: Request) {
        match self.dial(class, Some(request)) {
            Ok(slot) => {
                self.dispatched(class, &request);
                if let Err(error) = self.watch(slot) {
                    self.lose(slot, Failure::from(&error));
                }
            }
            Err(error) => {
                self.classes[class].recorder.dispatched(&request);
                self.fail(class, &request, Reached::NOT_SENT, Failure::from(&error));
            }
        }
    }

    /// Starts the handshake of a new connection, which is not watched yet; without a request the
    /// connection is opened in advance.
    pub(super) fn dial(&mut self, class: usize, request: Option<Request>) -> io::Result<u32> {
        let (stream, server) = self.connect(class)?;
        let owner = &self.classes[class];
        let transport = if owner.client.takes_datagrams() {
            Transport::Udp
        } else if owner.endpoint.is_unix() {
            Transport::Unix
        } else {
            Transport::Tcp
        };
        let socket = Socket {
            stream,
            tls: owner.client.tls().map(Client::session).transpose()?,
            transport,
            is_stamped: false,
            has_rest: false,
        };
        let spoken = owner.client.begin(server, self.clock)?;
        let opened = self.clock.now();
        let mut connection = Connection::new(socket, spoken, class, request, opened);
        if transport == Transport::Udp {
            // The protocol makes the handshake itself.
            connection.phase = Phase::Open;
        }
        let owner = &mut self.classes[class];
        owner.open += 1;
        owner.recorder.connections_opened += 1;
        Ok(self.sockets.insert(connection))
    }

    /// Has the poller report the end of a connection's handshake.
    pub(super) fn watch(&mut self, slot: u32) -> io::Result<()> {
        if let Some(connection) = self.sockets.get(slot) {
            if connection.socket.transport == Transport::Udp {
                let class = &mut self.classes[connection.class];
                let deadline = connection.opened.saturating_add(class.timeout);
                class.next_deadline = class.next_deadline.min(deadline);
                self.sockets.unflushed.push(slot);
            }
        }
        self.sockets.arm(slot)
    }

    /// Starts a connect, from another local address if the current one has no free port. Over UDP,
    /// also returns the server's address.
    fn connect(&mut self, class: usize) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        let mut tries = 1;
        loop {
            let owner = &self.classes[class];
            let dial = Dial {
                source: self.sources.current(),
                receive_buffer_bytes: owner.plan.receive_buffer_bytes(),
            };
            let opened = if owner.client.takes_datagrams() {
                let opened = owner.endpoint.connect_udp(dial);
                opened.map(|(stream, server)| (stream, Some(server)))
            } else {
                owner.endpoint.connect(dial).map(|stream| (stream, None))
            };
            match opened {
                Err(error)
                    if Failure::from(&error) == Failure::LocalPorts
                        && tries < sources::TRIES
                        && self.sources.advance() =>
                {
                    tries += 1;
                }
                result => return result,
            }
        }
    }

    /// Handles an event of a connection in its handshake.
    pub(super) fn connected(&mut self, slot: u32, event: Event) {
        let Some(connection) = self.sockets.get(slot) else {
            return;
        };
        let error = if event.is_broken() {
            connection.socket.stream.take_error()
        } else {
            Ok(None)
        };
        let failed = match error {
            Ok(None) if event.is_writable() => self.established(slot).err(),
            Ok(None) => None,
            Ok(Some(error)) | Err(error) => Some(error),
        };
        if let Some(error) = failed {
            self.lose(slot, Failure::from(&error));
        }
    }

    /// Continues after the TCP handshake: with TLS, or with the protocol.
    fn established(&mut self, slot: u32) -> io::Result<()> {
        let now = self.clock.now();
        let Some(connection) = self.sockets.get(slot) else {
            return Ok(());
        };
        let took = now - connection.opened;
        let (intended, class) = (connection.intended(), &mut self.classes[connection.class]);
        let socket = &mut connection.socket;
        class.recorder.connected(intended, took);
        if took >= FIRST_SYN_RETRY {
            class.recorder.syn_retries += sys::retransmits(&socket.stream).unwrap_or(0);
        }
        if let Some(protocol) = class.proxy_protocol {
            introduce(&mut socket.stream, protocol, &class.endpoint)?;
        }
        if let Some(tls) = &mut socket.tls {
            connection.phase = Phase::Securing;
            tls.flush(&mut socket.stream)?;
            return self.sockets.arm(slot);
        }
        // If it fails, only a diagnosis is missing.
        socket.is_stamped = class.client.takes_stamps()
            && socket.transport == Transport::Tcp
            && sys::stamp_arrivals(&socket.stream).is_ok();
        self.ready(slot);
        Ok(())
    }

    /// Continues a TLS handshake.
    pub(super) fn secure(&mut self, slot: u32) {
        let Some(connection) = self.sockets.get(slot) else {
            return;
        };
        let (socket, mut early) = (&mut connection.socket, Vec::new());
        let mut secured = socket.secure(&mut self.receiver.buffer, &mut early);
        if let (Ok(true), Some(session)) = (&secured, &socket.tls) {
            // A server that speaks first may have done so in the same packet.
            if let Err(why) = connection.spoken.secured(session, &early) {
                secured = Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
        }
        match secured {
            Ok(true) => {
                let took = self.clock.now() - connection.opened;
                let recorder = &mut self.classes[connection.class].recorder;
                recorder.secured(connection.intended(), took);
                if let Some(session) = &connection.socket.tls {
                    recorder.agreed(session);
                }
                self.ready(slot);
            }
            Ok(false) => {}
            Err(error) => {
                let failure = Failure::from(&error);
                if failure == Failure::Tls {
                    let faults = &mut self.accounts.faults;
                    faults.entry("tls").or_insert_with(|| error.to_string());
                }
                self.lose(slot, failure);
            }
        }
    }

    /// Continues once the protocol can send: sends the waiting request, or puts the connection into
    /// the pool.
    fn ready(&mut self, slot: u32) {
        let Some(connection) = self.sockets.get(slot) else {
            return;
        };
        connection.phase = Phase::Open;
        let index = connection.class;
        if let Err(error) = self.sockets.arm(slot) {
            return self.lose(slot, Failure::from(&error));
        }
        let waiting = self.sockets.get(slot).and_then(|it| it.waiting.take());
        if let Some(request) = waiting {
            return self.put_on(slot, index, request);
        }
        let token = self.sockets.token(slot);
        self.flush(slot);
        if self.sockets.find(token).is_some() {
            self.settle(slot);
            self.relist(slot);
        }
        self.proceed(index);
        self.flush_all();
    }

    /// Makes a connection available for requests, after the server's first message.
    pub(super) fn settle(&mut self, slot: u32) {
        let Some(connection) = self.sockets.get(slot) else {
            return;
        };
        let is_ready = connection.phase == Phase::Open && connection.spoken.is_settled();
        if !connection.is_spare || !is_ready {
            return;
        }
        connection.is_spare = false;
        let class = &mut self.classes[connection.class];
        if connection.socket.transport == Transport::Udp {
            let took = self.clock.now() - connection.opened;
            class.recorder.secured(connection.opened, took);
        }
        class.spares.retain(|&other| other != slot);
        if class.spares.is_empty() && class.open >= class.plan.held() {
            class.pool.stand();
        }
    }
}
