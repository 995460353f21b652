//! A request class during a run: its arrivals, connections and records.

use std::collections::VecDeque;
use std::time::Instant;

use crate::ballast::{FIRST_PAUSE, MOST_DOUBLINGS, MOST_HANDSHAKES};
use crate::bodies::{Bodies, Compared};
use crate::chance::{Chance, Purpose};
use crate::clock::{Clock, NEVER, Nanos, nanos};
use crate::error::Error;
use crate::exchange::Exchange;
use crate::failure::Failure;
use crate::paths::Picker;
use crate::plan::{self, Endpoint, Keepalive, Plan, ProxyProtocol};
use crate::pool::Pool;
use crate::recorder::Recorder;
use crate::request::{Reached, Request};
use crate::response::{NotHttp, Response};
use crate::source::Source;
use crate::spoken::Client;

/// A request class during a run.
#[derive(Debug)]
pub struct Class<'p> {
    /// The class in the plan.
    pub plan: &'p plan::Class,
    /// The address of its server.
    pub endpoint: Endpoint,
    /// The PROXY protocol header that its connections send first.
    pub proxy_protocol: Option<ProxyProtocol>,
    /// Makes its connections and writes its requests.
    pub client: Client,
    /// The results of its requests.
    pub recorder: Recorder,
    /// Its connections with room for a request.
    pub pool: Pool,
    /// Connections in their handshake without a request, opened in advance.
    pub spares: Vec<u32>,
    /// The earliest time to open another connection in advance.
    pub next_spare: Nanos,
    /// The number of failures in a row to open one in advance.
    pub spare_failures: u32,
    /// The number of connections, including those in their handshake.
    pub open: usize,
    /// The number of these connections on which the server accepts no more requests. Others replace
    /// them.
    pub leaving: usize,
    /// The index of the class whose connections carry its requests, mostly itself.
    pub owner: usize,
    /// Other classes whose requests its own connections carry.
    pub guests: Vec<usize>,
    /// The number of requests on connections.
    pub in_flight: usize,
    /// Requests that wait for a connection.
    pub pending: VecDeque<Request>,
    /// The time limit of a request, from its intended start.
    pub timeout: Nanos,
    /// A lower bound on the next deadline of a request.
    pub next_deadline: Nanos,
    users: usize,
    source: Source,
    picker: Picker<'p>,
    /// Decides which connections to close after a response.
    closing: Chance,
    /// Samples bodies to compare with files.
    bodies: Option<Bodies<'p>>,
    /// The result of the comparison with files; `None` if the plan names none.
    pub compared: Option<Compared>,
    /// The reason why the first answer that was not HTTP was rejected.
    pub not_http: Option<NotHttp>,
    /// The numbers of good and failed requests since they were last taken.
    pub this_second: (u64, u64),
}

impl<'p> Class<'p> {
    /// The class at an index of a plan, before its first request.
    ///
    /// # Errors
    /// `Error::Plan` if its manifest or its certificates cannot be read.
    pub fn new(plan: &'p Plan, index: usize) -> Result<Self, Error> {
        let class = &plan.classes[index];
        let mut picker = Picker::new(class, plan.seed)?;
        let users = plan.stripe.share(class.arrivals.users());
        let recorder = Recorder::new(plan.window());
        let target = plan.target_of(class);
        let of_it = |&other: &usize| other != index && plan.owner_of(other) == index;
        Ok(Self {
            plan: class,
            client: Client::new(plan, index)?,
            recorder,
            users,
            pool: Pool::new(class, users),
            spares: Vec::new(),
            next_spare: 0,
            spare_failures: 0,
            open: 0,
            leaving: 0,
            owner: plan.owner_of(index),
            guests: (0..plan.classes.len()).filter(of_it).collect(),
            in_flight: 0,
            pending: VecDeque::new(),
            timeout: nanos(class.timeout_seconds),
            next_deadline: NEVER,
            source: Source::new(class, plan, &mut picker).map_err(Error::Plan)?,
            picker,
            endpoint: target.endpoint.clone(),
            proxy_protocol: target.proxy_protocol,
            closing: Chance::new(plan.seed, &class.name, Purpose::Close),
            bodies: Bodies::new(class, plan.seed),
            compared: None,
            not_http: None,
            this_second: (0, 0),
        })
    }

    /// The number of this load host's users in a closed loop.
    pub fn users(&self) -> usize {
        self.users
    }

    /// Whether arrivals follow a schedule.
    pub fn is_open_loop(&self) -> bool {
        self.source.is_open_loop()
    }

    /// The next request that is due by `now`; arrivals end at `stop_at`.
    ///
    /// # Errors
    /// A message, if reading the manifest fails.
    pub fn take_due(
        &mut self,
        now: Nanos,
        stop_at: Nanos,
        clock: Clock,
    ) -> Result<Option<Request>, String> {
        let due = self
            .source
            .take_due(now, stop_at, clock, &mut self.picker)?;
        if let Some(request) = &due {
            if self.source.is_open_loop() {
                self.recorder.arrived(request.intended, clock.now());
            } else {
                self.recorder.started(request.intended);
            }
        }
        Ok(due)
    }

    /// The time at which the next request is due.
    pub fn next_release(&self, stop_at: Nanos) -> Nanos {
        self.source.next_release(stop_at)
    }

    /// Whether there will be no further requests.
    pub fn has_ended(&self) -> bool {
        self.source.has_ended()
    }

    /// Whether all its connections are opened in advance, so that requests wait for one with room.
    pub fn holds_all(&self) -> bool {
        self.plan.streams().is_some()
    }

    /// Whether another connection may be opened for a request.
    pub fn has_room(&self) -> bool {
        !self.holds_all() && self.open < self.plan.connections
    }

    /// Whether pauses inside its responses may be delayed acknowledgements.
    pub fn counts_stalls(&self) -> bool {
        !self.client.takes_datagrams() && self.plan.read_bytes_per_second.is_none()
    }

    /// Adds the records of another thread for the same class.
    pub fn add(&mut self, other: &Self) {
        self.recorder.add(&other.recorder);
        self.users += other.users;
        self.not_http = self.not_http.or(other.not_http);
        if let Some(theirs) = other.compared {
            self.compared.get_or_insert_default().add(theirs);
        }
    }

    /// The earliest time to open another connection in advance; `NEVER` if none is missing.
    pub fn next_spare(&self) -> Nanos {
        if self.open - self.leaving < self.plan.held() && self.spares.len() < MOST_HANDSHAKES {
            self.next_spare
        } else {
            NEVER
        }
    }

    /// Records that a connection opened in advance was refused, or closed before its first request.
    pub fn spare_failed(&mut self, now: Nanos) {
        self.next_spare = now + (FIRST_PAUSE << self.spare_failures.min(MOST_DOUBLINGS));
        self.spare_failures += 1;
    }

    /// Whether a request would get a connection now.
    pub fn can_start(&self) -> bool {
        let can_take = !self.holds_all() && !self.spares.is_empty();
        self.pool.has_any() || can_take || self.has_room()
    }

    /// Whether no request is in progress or waiting.
    pub fn is_quiet(&self) -> bool {
        self.in_flight == 0 && self.pending.is_empty()
    }

    /// Queues a request that has to wait for a connection.
    pub fn wait(&mut self, request: Request) {
        self.pending.push_back(request);
        self.recorder.waits(&request, self.pending.len());
    }

    /// Lowers the next deadline to that of a request.
    pub fn await_deadline(&mut self, request: &Request) {
        let deadline = request.intended.saturating_add(self.timeout);
        self.next_deadline = self.next_deadline.min(deadline);
    }

    /// Writes a request into `buffer`, for a connection that has served `served` requests. Returns
    /// true if the connection closes after it.
    pub fn render(&self, request: &Request, served: u64, buffer: &mut Vec<u8>) -> bool {
        let is_last = self.is_last(request, served);
        self.client
            .render(&self.picker.object(request), is_last, buffer);
        is_last
    }

    /// Whether to close a connection that has served `served` requests after this one.
    fn is_last(&self, request: &Request, served: u64) -> bool {
        match self.plan.keepalive {
            Keepalive::Forever => false,
            Keepalive::None => true,
            Keepalive::Requests(most) => served + 1 >= most,
            Keepalive::Random(share) => self.closing.fraction(request.index) < share,
        }
    }

    /// The fault of a complete response; `None` if it has none.
    pub fn fault(&self, response: &Response, request: &Request) -> Option<Failure> {
        let object = self.picker.object(request);
        match object.range {
            None => response.fault(&self.plan.status, object.bytes),
            Some(range) => response.fault_of_range(&self.plan.status, range, object.bytes),
        }
    }

    /// Whether to compare the body of a response with the file.
    pub fn samples_body(&self, request: &Request) -> bool {
        let measured = self.recorder.measures(request.intended);
        self.bodies
            .as_ref()
            .is_some_and(|bodies| measured && bodies.wants(request))
    }

    /// Records a sampled body that had no other fault.
    pub fn note_body(&mut self, request: &Request, bytes: u64, checksum: u32) {
        let range = self.picker.object(request).range;
        if let Some(bodies) = &mut self.bodies {
            bodies.note(request.path, range, bytes, checksum);
        }
    }

    /// Compares the sampled bodies with the files until a deadline. Bodies that differ count as
    /// failed from then on.
    pub fn compare_bodies(&mut self, deadline: Instant) {
        let Some(bodies) = &self.bodies else { return };
        let compared = bodies.compare(deadline);
        self.recorder.differ(compared.differing);
        self.compared = Some(compared);
    }

    /// Records a complete response; returns its fault. `place` is the index of the worker that
    /// answers on the connection.
    pub fn judge(
        &mut self,
        exchange: &Exchange,
        place: Option<&mut Option<u32>>,
        now: Nanos,
    ) -> Option<Failure> {
        let Exchange {
            request, response, ..
        } = exchange;
        let fault = self.fault(response, request);
        self.recorder.answered(request, response.status());
        if let (Some(worker), Some(place)) = (response.worker(), place) {
            let good = fault.is_none();
            *place = self.recorder.attribute(request, worker, *place, good, now);
        }
        if let (Some(checksum), None) = (response.checksum(), fault) {
            self.note_body(request, response.body_bytes(), checksum);
        }
        fault
    }

    /// Records a request that was answered as expected.
    pub fn succeeded(&mut self, request: &Request, first_byte: Nanos, now: Nanos) {
        self.this_second.0 += 1;
        self.recorder.succeeded(request, first_byte, now);
        self.picker.release(request);
        self.source.answered(request.user, now);
    }

    /// Records a failed request.
    pub fn failed(&mut self, request: &Request, reached: Reached, failure: Failure, now: Nanos) {
        self.this_second.1 += 1;
        self.recorder.failed(request, reached, failure, now);
        self.picker.release(request);
        self.source.failed(request, now);
    }

    /// The numbers of good and failed requests since the last call.
    pub fn take_second(&mut self) -> (u64, u64) {
        std::mem::take(&mut self.this_second)
    }
}
