//! From the wish for a connection to one that can carry requests: TCP, then TLS.

use std::io;
use std::net::{SocketAddr, TcpStream};

use super::traffic::ANSWERS;
use super::{Engine, Slot, token};
use crate::carrier::Carrier;
use crate::clock::{MILLISECOND, Nanos};
use crate::connection::{Connection, Phase, Purpose, Transport};
use crate::failure::Failure;
use crate::request::{Reached, Request};
use crate::sources;
use crate::sys::{self, Dial, Event, WRITABLE};
use crate::tls::Client;
use crate::{http2, http3};

/// A handshake that takes so long was asked for more than once: a kernel waits for a second.
const FIRST_SYN_RETRY: Nanos = 900 * MILLISECOND;

impl Engine<'_> {
    /// Opens a connection for a request.
    pub(super) fn open(&mut self, class: usize, request: Request) {
        self.classes[class].recorder.dispatched(&request);
        match self.dial(class, request, Purpose::Request) {
            Ok(slot) => {
                self.classes[class].in_flight += 1;
                self.total_sent += 1;
                if let Err(error) = self.watch(slot) {
                    self.lose(slot, Failure::from(&error));
                }
            }
            Err(error) => self.fail(class, &request, Reached::NOT_SENT, Failure::from(&error)),
        }
    }

    /// A new connection in its handshake, not watched yet; a spare one carries no request.
    pub(super) fn dial(
        &mut self,
        class: usize,
        request: Request,
        purpose: Purpose,
    ) -> io::Result<u32> {
        let (stream, server) = self.connect(class)?;
        let owner = &self.classes[class];
        let session = owner.tls.as_ref().map(Client::session).transpose()?;
        let opened = self.clock.now();
        let mut connection = Connection::new(stream, session, class, request, purpose, opened);
        if let (Some(client), Some(server)) = (&owner.quic, server) {
            let streams = http3::Multiplex::start(client, server, self.clock)?;
            connection.carried = Some(Carrier::Http3(Box::new(streams)));
            connection.transport = Transport::Udp;
            connection.phase = Phase::Securing;
        } else if let Some(streams) = owner.plan.http2 {
            let streams = http2::Multiplex::new(streams, owner.family.windows);
            connection.carried = Some(Carrier::Http2(Box::new(streams)));
        }
        if owner.endpoint.is_unix() {
            connection.transport = Transport::Unix;
        }
        let slot = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot::default());
            self.slots.len() as u32 - 1
        });
        self.slots[slot as usize].connection = Some(connection);
        let owner = &mut self.classes[class];
        owner.open += 1;
        owner.recorder.connections_opened += 1;
        Ok(slot)
    }

    /// Has the poller tell when the handshake of a connection is settled.
    pub(super) fn watch(&mut self, slot: u32) -> io::Result<()> {
        let place = &self.slots[slot as usize];
        let Some(connection) = &place.connection else {
            return Ok(());
        };
        let token = token(slot, place.generation);
        let class = &mut self.classes[connection.class];
        if class.quic.is_some() {
            let deadline = connection.opened.saturating_add(class.timeout);
            class.next_deadline = class.next_deadline.min(deadline);
        }
        if connection.transport == Transport::Udp {
            self.poller.add(&connection.stream, token, ANSWERS)?;
            self.unflushed.push(slot);
            return Ok(());
        }
        self.poller
            .add(&connection.stream, token, ANSWERS | WRITABLE)
    }

    /// Starts a connect, from another address of this host where this one has no free port; of QUIC also
    /// to whom.
    fn connect(&mut self, class: usize) -> io::Result<(TcpStream, Option<SocketAddr>)> {
        let mut tries = 1;
        loop {
            let dial = Dial {
                source: self.sources.current(),
                receive_buffer_bytes: self.classes[class].plan.receive_buffer_bytes(),
            };
            let owner = &self.classes[class];
            let opened = if owner.quic.is_some() {
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

    /// The handshake of a connection is settled.
    pub(super) fn connected(&mut self, slot: u32, event: Event) {
        let Slot {
            generation,
            connection: Some(connection),
        } = &mut self.slots[slot as usize]
        else {
            return;
        };
        let error = if event.is_broken() {
            connection.stream.take_error()
        } else {
            Ok(None)
        };
        match error {
            Ok(None) if event.is_writable() => {
                let token = token(slot, *generation);
                match self.poller.modify(&connection.stream, token, ANSWERS) {
                    Ok(()) => self.established(slot),
                    Err(error) => self.lose(slot, Failure::from(&error)),
                }
            }
            Ok(None) => {}
            Ok(Some(error)) | Err(error) => self.lose(slot, Failure::from(&error)),
        }
    }

    /// The TCP connection stands: speak TLS first, or send the request.
    fn established(&mut self, slot: u32) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
            return;
        };
        let took = self.clock.now() - connection.opened;
        let recorder = &mut self.classes[connection.class].recorder;
        recorder.connected(&connection.exchange.request, took);
        if took >= FIRST_SYN_RETRY {
            recorder.syn_retries += sys::retransmits(&connection.stream).unwrap_or(0);
        }
        let class = &self.classes[connection.class];
        if let Some(protocol) = class.proxy_protocol {
            if let Err(error) = connection.introduce(protocol, &class.endpoint) {
                return self.lose(slot, Failure::from(&error));
            }
        }
        let Some(tls) = &mut connection.tls else {
            // Without it there is a diagnosis less, and no other harm.
            connection.is_stamped = connection.transport == Transport::Tcp
                && sys::stamp_arrivals(&connection.stream).is_ok();
            return self.ready(slot);
        };
        connection.phase = Phase::Securing;
        match tls.flush(&mut connection.stream) {
            Ok(_) => {}
            Err(error) => self.broke(slot, &error),
        }
    }

    /// Goes on with a TLS handshake.
    pub(super) fn secure(&mut self, slot: u32) {
        let Some(connection) = self.slots[slot as usize].connection.as_mut() else {
            return;
        };
        match self.receiver.secure(connection) {
            Ok(true) => {
                let took = self.clock.now() - connection.opened;
                let recorder = &mut self.classes[connection.class].recorder;
                if let Some(session) = &connection.tls {
                    recorder.secured(&connection.exchange.request, took, session);
                }
                self.ready(slot);
            }
            Ok(false) => {}
            Err(error) => {
                let failure = Failure::from(&error);
                if failure == Failure::Tls {
                    self.tls_fault.get_or_insert_with(|| error.to_string());
                }
                self.lose(slot, failure);
            }
        }
    }
}
