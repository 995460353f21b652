//! A server whose behaviour is known to the byte and to the millisecond, and runs against it.

pub mod quic;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use nginx_tune_probe::sys::raise_descriptor_limit;
use serde_json::{Value, json};

/// What a handler makes of a request.
pub struct Ask<'a> {
    pub stream: &'a mut TcpStream,
    pub path: &'a str,
    pub head: &'a str,
    /// Requests on this connection before this one.
    pub earlier: u64,
    /// Since the server started.
    pub at: Duration,
}

/// What becomes of the connection afterwards.
#[derive(PartialEq)]
pub enum Then {
    Keep,
    Close,
    /// Close at once with a reset.
    Reset,
    /// Close when the next request has come, without reading it.
    CloseUnread,
}

type Handler = dyn Fn(Ask<'_>) -> Then + Send + Sync;

/// A server on a free port of 127.0.0.1, with a thread for each connection.
pub struct Server {
    pub address: SocketAddr,
    pub connections: Arc<AtomicU64>,
    /// Paths in the order in which they came.
    pub asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub fn start(handler: impl Fn(Ask<'_>) -> Then + Send + Sync + 'static) -> Self {
        // All servers of all tests are in one process.
        raise_descriptor_limit(8192).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            connections: Arc::default(),
            asked: Arc::default(),
        };
        let (connections, asked) = (server.connections.clone(), server.asked.clone());
        let handler: Arc<Handler> = Arc::new(handler);
        let start = Instant::now();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { break };
                connections.fetch_add(1, Ordering::Relaxed);
                let (handler, asked) = (handler.clone(), asked.clone());
                thread::spawn(move || serve(stream, &*handler, &asked, start));
            }
        });
        server
    }

    /// A server that gives every request the same bytes.
    pub fn answering(response: impl Into<Vec<u8>>) -> Self {
        let response = response.into();
        Self::start(move |ask| {
            ask.stream.write_all(&response).ok();
            Then::Keep
        })
    }

    /// The same, and the connection is closed afterwards.
    pub fn answering_and_closing(response: impl Into<Vec<u8>>) -> Self {
        let response = response.into();
        Self::start(move |ask| {
            ask.stream.write_all(&response).ok();
            Then::Close
        })
    }

    pub fn asked(&self) -> Vec<String> {
        self.asked.lock().unwrap().clone()
    }

    pub fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

fn serve(mut stream: TcpStream, handler: &Handler, asked: &Mutex<Vec<String>>, start: Instant) {
    stream.set_nodelay(true).unwrap();
    let mut buffer = Vec::new();
    for earlier in 0.. {
        let end = loop {
            if let Some(at) = find(&buffer, b"\r\n\r\n") {
                break at + 4;
            }
            let mut piece = [0; 4096];
            match stream.read(&mut piece) {
                Ok(count) if count > 0 => buffer.extend_from_slice(&piece[..count]),
                _ => return,
            }
        };
        let head = String::from_utf8(buffer.drain(..end).collect()).unwrap();
        let path = head.split(' ').nth(1).unwrap().to_owned();
        asked.lock().unwrap().push(path.clone());
        let then = handler(Ask {
            stream: &mut stream,
            path: &path,
            head: &head,
            earlier,
            at: start.elapsed(),
        });
        match then {
            Then::Keep => {}
            Then::Close => return,
            Then::Reset => return reset(&stream),
            Then::CloseUnread => {
                stream.peek(&mut [0]).ok();
                return;
            }
        }
    }
}

/// Has the close of a connection send a reset: `SO_LINGER` of zero seconds.
fn reset(stream: &TcpStream) {
    use std::os::fd::AsRawFd as _;
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    #[allow(unsafe_code)]
    // SAFETY: the option's value is a live linger of the length that is told.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            std::ptr::from_ref(&linger).cast(),
            size_of::<libc::linger>() as libc::socklen_t,
        )
    };
    assert_eq!(result, 0);
}

fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    bytes.windows(what.len()).position(|window| window == what)
}

/// A whole 200 with a body of so many bytes.
pub fn ok(bytes: usize) -> Vec<u8> {
    let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").into_bytes();
    response.resize(response.len() + bytes, b'x');
    response
}

/// A plan for one class named `c`: 100 constant arrivals a second for 0.3 s, unless changed.
pub fn plan(server: &Server) -> Value {
    let port = server.address.port();
    json!({
        "schema": "nginx-tune/loadplan/1",
        "target": {"address": "127.0.0.1", "port": port},
        "classes": [class("c")],
        "duration_seconds": 0.3,
        "drain_seconds": 10,
        "permit": {"ports": [port]},
    })
}

/// A class: 100 constant arrivals a second for `/`.
pub fn class(name: &str) -> Value {
    json!({
        "name": name,
        "arrivals": {"kind": "constant", "rate_per_second": 100},
        "paths": {"kind": "fixed", "paths": ["/"]},
        "connections": 50,
    })
}

pub fn closed(users: u64) -> Value {
    json!({"kind": "closed", "users": users})
}

/// The probe, given a plan on standard input.
pub fn run_raw(plan: &Value) -> Output {
    run_by(&mut command(), plan)
}

/// What a command that runs the probe prints, given a plan.
pub fn run_by(command: &mut Command, plan: &Value) -> Output {
    start(command, plan).wait_with_output().unwrap()
}

/// The same, as it begins: the plan is written, and nothing more will be.
pub fn start(command: &mut Command, plan: &Value) -> Child {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(plan.to_string().as_bytes()).unwrap();
    child
}

pub fn command() -> Command {
    Command::new(env!("CARGO_BIN_EXE_nginx-tune-probe"))
}

/// The measurement of a run that must go well.
pub fn run(plan: &Value) -> Value {
    let output = run_raw(plan);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    assert_eq!(errors, "");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The part of class `c`.
pub fn run_class(plan: &Value) -> Value {
    run(plan)["classes"]["c"].take()
}

/// A count or another number of a document.
pub fn number(value: &Value, path: &str) -> f64 {
    value
        .pointer(&format!("/{}", path.replace('.', "/")))
        .and_then(Value::as_f64)
        .unwrap_or_else(|| panic!("{path} in {value}"))
}

/// The longest wait of a test for what a busy machine delays.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// Tries again and again what a busy machine may spoil, of which no bound holds on all machines: how soon
/// something is at the latest. Panics with the last reason.
pub fn in_a_calm_moment(mut attempt: impl FnMut() -> Result<(), String>) {
    let began = Instant::now();
    while let Err(reason) = attempt() {
        assert!(began.elapsed() < PATIENCE, "for {PATIENCE:?}: {reason}");
    }
}

/// Waits until something holds that is under way.
#[track_caller]
pub fn await_that(mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "not in {PATIENCE:?}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A reason, unless something holds.
pub fn unless(holds: bool, reason: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(reason()) }
}

/// A file that is gone afterwards.
pub struct Temporary(pub PathBuf);

impl Temporary {
    pub fn new(name: &str, bytes: impl AsRef<[u8]>) -> Self {
        let file = format!("nginx-tune-test-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(file);
        fs::write(&path, bytes).unwrap();
        Self(path)
    }

    pub fn name(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        fs::remove_file(&self.0).ok();
    }
}

/// Runs 30 requests and asserts that all of them count as this one failure.
#[track_caller]
pub fn assert_all_fail(plan: &Value, kind: &str) -> Value {
    let class = run_class(plan);
    assert_eq!(class["errors"], json!({kind: 30}), "{class}");
    assert_eq!(class["requests"], 0);
    // What failed because its time was up is in the latency at its age; nothing else is.
    let by_time = kind == "timeout" || kind == "connect_timeout";
    let bounds = if by_time { 30 } else { 0 };
    assert_eq!(class["response_seconds"]["count"], bounds);
    assert_eq!(class["ttfb_seconds"]["count"], bounds);
    assert_eq!(class["censored"], 0);
    assert_eq!(class["failed_seconds"]["count"], 30);
    class
}

/// Runs 30 requests and asserts that all of them are well answered.
#[track_caller]
pub fn assert_all_succeed(plan: &Value) -> Value {
    let class = run_class(plan);
    assert_eq!(class["errors"], json!({}), "{class}");
    assert_eq!(class["requests"], 30);
    assert_eq!(class["response_seconds"]["count"], 30);
    assert_eq!(class["censored"], 0);
    class
}

/// The plan with a single connection, however slow the machine is.
pub fn on_one_connection(server: &Server) -> Value {
    let mut plan = plan(server);
    plan["classes"][0]["connections"] = json!(1);
    plan
}

/// Judges whether 30 bodies of this size were counted. On a busy machine the last ones may come
/// after the measured time, and then they do not count.
#[track_caller]
pub fn judge_bytes(class: &Value, each: usize) -> Result<(), String> {
    let bodies = number(class, "bytes") / each.max(1) as f64;
    let most = if each == 0 { 0.0 } else { 30.0 };
    assert!(bodies <= most, "{bodies} bodies");
    unless(bodies >= 0.5 * most, || format!("{bodies} bodies"))
}
