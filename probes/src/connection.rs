//! One client connection and the exchange that it carries.

use std::io::{self, Write as _};
use std::net::TcpStream;

use crate::carrier::Carrier;
use crate::clock::{NEVER, Nanos};
use crate::exchange::Exchange;
use crate::http3::Multiplex;
use crate::plan::{Endpoint, ProxyProtocol};
use crate::request::{Reached, Request};
use crate::sys;
use crate::tls::Session;

/// Where a connection stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Its request waits for the handshake of TCP.
    Connecting,
    /// Its request waits for the handshake of TLS, or of QUIC.
    Securing,
    /// Nothing is asked.
    Idle,
    /// Its request was sent and is not answered yet.
    Busy,
    /// It carries any number of requests, each a stream.
    Carrying,
}

/// What a connection is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// To carry a request, or it has carried one.
    Request,
    /// To be held: it is in its handshake and carries nothing.
    Spare,
}

/// What a connection goes over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// TCP.
    Tcp,
    /// A unix socket, where the kernel discards and stamps nothing.
    Unix,
    /// UDP: what QUIC does beneath the streams, TLS among it, is theirs.
    Udp,
}

/// Of so many answers on a connection the first is one at which its round trip is looked at.
const ANSWERS_A_LOOK: u64 = 16;

/// What TLS encrypts at once.
const RECORD_BYTES: usize = 16 * 1024;

/// One client connection.
#[derive(Debug)]
pub struct Connection {
    /// The socket.
    pub stream: TcpStream,
    /// What encrypts; none is cleartext.
    pub tls: Option<Session>,
    /// What it goes over.
    pub transport: Transport,
    /// When it was opened.
    pub opened: Nanos,
    /// The class that it belongs to.
    pub class: usize,
    /// Where it stands.
    pub phase: Phase,
    /// The request that it carries, unless it is idle or a spare one, and the response.
    pub exchange: Exchange,
    /// Its streams, where it carries many requests at once.
    pub carried: Option<Carrier>,
    /// Whether the poller tells when the socket takes more of what they have to send.
    pub has_rest: bool,
    /// When its windows are given back next, by their pace; `NEVER` where none has one.
    pub goes_on: Nanos,
    /// What it was opened for.
    pub purpose: Purpose,
    /// Whether the kernel stamps what arrives.
    pub is_stamped: bool,
    /// Whether its receive buffer was made as large as its responses want it.
    pub is_roomy: bool,
    /// Requests answered on it so far.
    pub served: u64,
    /// The place of the worker that answers on it, once known.
    pub worker: Option<u32>,
    /// The same as classes know it that are guests on it.
    guest_workers: Vec<(usize, Option<u32>)>,
    /// The end of a request that the socket did not take yet.
    unsent: Vec<u8>,
}

impl Connection {
    /// A connection whose handshake is under way.
    pub fn new(
        stream: TcpStream,
        tls: Option<Session>,
        class: usize,
        request: Request,
        purpose: Purpose,
        opened: Nanos,
    ) -> Self {
        Self {
            stream,
            tls,
            transport: Transport::Tcp,
            opened,
            class,
            phase: Phase::Connecting,
            exchange: Exchange::new(request),
            carried: None,
            has_rest: false,
            goes_on: NEVER,
            purpose,
            is_stamped: false,
            is_roomy: false,
            served: 0,
            worker: None,
            guest_workers: Vec::new(),
            unsent: Vec::new(),
        }
    }

    /// Says whose connection it is, before all else.
    ///
    /// # Errors
    /// Of the socket. What is said fits into any send buffer that is still empty.
    pub fn introduce(&mut self, protocol: ProxyProtocol, endpoint: &Endpoint) -> io::Result<()> {
        introduce(&mut self.stream, protocol, endpoint)
    }

    /// Sends a rendered request; whether all of it is on its way.
    pub fn send(&mut self, bytes: &[u8]) -> io::Result<bool> {
        if let Some(tls) = &mut self.tls {
            return tls.send(&mut self.stream, bytes);
        }
        let sent = write_some(&mut self.stream, bytes)?;
        self.unsent.clear();
        self.unsent.extend_from_slice(&bytes[sent..]);
        Ok(self.unsent.is_empty())
    }

    /// Sends more of what the socket did not take; whether all of it is on its way.
    pub fn send_rest(&mut self) -> io::Result<bool> {
        if let Some(tls) = &mut self.tls {
            return tls.flush(&mut self.stream);
        }
        let sent = write_some(&mut self.stream, &self.unsent)?;
        self.unsent.drain(..sent);
        Ok(self.unsent.is_empty())
    }

    /// Sends what its streams have to send; whether all of it is on its way.
    pub fn send_carried(&mut self) -> io::Result<bool> {
        let carried = match &mut self.carried {
            None => return Ok(true),
            Some(Carrier::Http2(carried)) => carried,
            Some(Carrier::Http3(carried)) => return send_datagrams(&mut self.stream, carried),
        };
        if let Some(tls) = &mut self.tls {
            // A session takes no more than its buffer holds.
            while tls.flush(&mut self.stream)? && !carried.unsent().is_empty() {
                let out = carried.unsent();
                let count = out.len().min(RECORD_BYTES);
                tls.send(&mut self.stream, &out[..count])?;
                carried.sent(count);
            }
            return Ok(carried.unsent().is_empty() && !tls.has_unsent());
        }
        if carried.unsent().is_empty() {
            return Ok(true);
        }
        let sent = write_some(&mut self.stream, carried.unsent())?;
        carried.sent(sent);
        Ok(carried.unsent().is_empty())
    }

    /// Its round trip now, where this is an answer at which that is looked at.
    pub fn round_trip(&self) -> Option<Nanos> {
        if self.served % ANSWERS_A_LOOK != 1 {
            return None;
        }
        match (&self.carried, self.transport) {
            (Some(Carrier::Http3(carried)), _) => Some(carried.round_trip()),
            (_, Transport::Tcp) => sys::round_trip(&self.stream).ok(),
            (_, Transport::Udp | Transport::Unix) => None,
        }
    }

    /// The place of the worker that answers on it, among those that a class knows.
    pub fn worker_of(&mut self, class: usize) -> &mut Option<u32> {
        if class == self.class {
            return &mut self.worker;
        }
        let mut known = self.guest_workers.iter();
        let at = known.position(|&(guest, _)| guest == class);
        let at = at.unwrap_or_else(|| {
            self.guest_workers.push((class, None));
            self.guest_workers.len() - 1
        });
        &mut self.guest_workers[at].1
    }

    /// Whether streams are under way on it.
    pub fn carries_streams(&self) -> bool {
        let streams = self.carried.as_ref().map(Carrier::exchanges);
        streams.is_some_and(|mut them| them.next().is_some())
    }

    /// Whether a request of its own is under way on it.
    pub fn carries_request(&self) -> bool {
        !matches!(self.phase, Phase::Idle | Phase::Carrying) && self.purpose == Purpose::Request
    }

    /// How far its request came.
    pub fn reached(&self) -> Reached {
        if self.phase == Phase::Busy {
            self.exchange.reached()
        } else {
            Reached::NOT_SENT
        }
    }

    /// Whether a part of the request is still to be sent.
    pub fn has_unsent(&self) -> bool {
        !self.unsent.is_empty() || self.tls.as_ref().is_some_and(Session::has_unsent)
    }

    /// Whether the failure of an unanswered request can be the race of a kept connection: the
    /// server closed it, being idle, before it could see the request.
    ///
    /// A server that *took* the request and closed without a word (as nginx does when a thread
    /// pool overflows) has acknowledged it; one that had closed before answers it with a reset.
    pub fn lost_a_race(&self) -> bool {
        self.served > 0
            && !self.exchange.response.has_started()
            && (!matches!(self.stream.take_error(), Ok(None))
                || sys::unacknowledged_bytes(&self.stream).unwrap_or(0) > 0)
    }
}

/// Says on a fresh connection whose it is.
///
/// # Errors
/// Of the socket.
pub fn introduce(
    stream: &mut TcpStream,
    protocol: ProxyProtocol,
    endpoint: &Endpoint,
) -> io::Result<()> {
    let own = (!endpoint.is_unix())
        .then(|| stream.local_addr())
        .transpose()?;
    stream.write_all(&protocol.header(own, endpoint))
}

/// Sends what there is to send; whether the socket took all of it.
fn send_datagrams(stream: &mut TcpStream, carried: &mut Multiplex) -> io::Result<bool> {
    while let Some(datagram) = carried.datagram() {
        match stream.write(datagram) {
            Ok(_) => carried.sent(),
            Err(error) if sys::is_temporary(&error) => return Ok(false),
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

fn write_some(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
    match stream.write(bytes) {
        Err(error) if sys::is_temporary(&error) => Ok(0),
        result => result,
    }
}
