//! `nginx-tune-probe`: reads a load plan, runs it, prints the measurement.

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::os::fd::RawFd;
use std::process::{self, ExitCode};

use nginx_tune_probe::disk;
use nginx_tune_probe::engine::{Engine, run_side_by_side};
use nginx_tune_probe::error::Error;
use nginx_tune_probe::guard::{self, Place};
use nginx_tune_probe::learn;
use nginx_tune_probe::plan::Plan;
use nginx_tune_probe::progress::Progress;
use nginx_tune_probe::receive::{Receiver, kernel_discards};
use nginx_tune_probe::report::measurement;
use nginx_tune_probe::sys::{self, Poller};
use serde_json::Value;

const HELP: &str = "\
Usage: nginx-tune-probe [--progress-fd N] [PLAN]
       nginx-tune-probe disk [--progress-fd N] [PLAN]
       nginx-tune-probe learn PLAN

Runs one load plan (JSON document nginx-tune/loadplan/1) and prints one measurement
(nginx-tune/measurement/1). Without PLAN, or with -, the plan is read from standard input.
With the word disk: one disk plan (nginx-tune/diskplan/1), read-only and past the page cache,
and one nginx-tune/diskrun/1.
With the word learn: reads lines of access logs from standard input as a file says
(nginx-tune/learnplan/1) and prints what they tell (nginx-tune/reading/1).

Only servers whose ports the plan permits are asked, and no request has a body. The probe
ends with the process that started it. SIGINT and SIGTERM end the run within a second; the result up to then
is printed.

Options:
  --progress-fd N  one JSON line a second (or step) on this open descriptor
  -h, --help       this text
  -V, --version    name and version

Exit status: 0 measured, 2 wrong call, plan or target (nothing was sent),
4 the system refused what the run needs, 130 interrupted (the result is printed).
";

/// The largest plan in bytes.
const LARGEST_PLAN_BYTES: u64 = 256 * 1024 * 1024;

/// A command line that requests a run.
#[derive(Debug, Default)]
struct Call {
    disk: bool,
    learn: bool,
    plan: Option<String>,
    progress: Option<RawFd>,
}

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("nginx-tune-probe: {error}");
            ExitCode::from(error.status())
        }
    }
}

fn run() -> Result<ExitCode, Error> {
    let Some(call) = read_call()? else {
        return Ok(ExitCode::SUCCESS);
    };
    // First of all, so that a parent that dies during the setup ends the probe too.
    let orphaned = !sys::die_with_parent().map_err(|error| Error::System("prctl", error))?;
    if orphaned {
        return Err(Error::Usage("the parent process has gone".into()));
    }
    let progress = call
        .progress
        .map(sys::inherited)
        .transpose()
        .map_err(|error| Error::Usage(format!("--progress-fd: {error}")))?;
    if call.learn && call.plan.as_deref().is_none_or(|plan| plan == "-") {
        return Err(Error::Usage("learn needs a plan in a file".into()));
    }
    let plan = read_plan(call.plan.as_deref())?;
    if call.learn {
        let plan = learn::Plan::parse(&plan)?;
        let mut output = io::BufWriter::new(io::stdout().lock());
        learn::run(&plan, &mut io::stdin().lock(), &mut output)?;
        return Ok(ExitCode::SUCCESS);
    }
    if call.disk {
        return probe_disk(&plan, Progress::new(progress));
    }
    let plan = Plan::parse(&plan)?;
    let place = guard::check(&plan)?;
    if !plan.cpus.is_empty() {
        sys::pin(&plan.cpus)
            .map_err(|error| Error::Plan(format!("cpus {:?}: {error}", plan.cpus)))?;
    }
    if plan.realtime {
        // If it is not allowed, the lateness shows that.
        let _ = sys::run_in_realtime();
    }
    sys::set_timer_slack_to_one_nanosecond()
        .map_err(|error| Error::System("timer slack", error))?;
    let discards = kernel_discards();
    let receiver = || Receiver::new(discards, place == Place::Here);
    let progress = Progress::new(progress);
    let plans: Vec<_>;
    let outcome = if plan.threads > 1 {
        plans = (0..plan.threads).map(|n| plan.of_thread(n)).collect();
        run_side_by_side(&plans, receiver, progress)?
    } else {
        let poller = Poller::new(true).map_err(|error| Error::System("epoll", error))?;
        let engine = Engine::new(&plan, poller, receiver(), progress)?;
        sys::hold_memory();
        engine.run()?
    };
    print(&measurement(&plan, &outcome))?;
    Ok(ExitCode::from(if outcome.interrupted { 130 } else { 0 }))
}

fn probe_disk(plan: &[u8], mut progress: Progress) -> Result<ExitCode, Error> {
    let plan = disk::Plan::parse(plan)?;
    let outcome = disk::run(&plan, &mut progress)?;
    print(&disk::document(&plan, &outcome))?;
    // Exits here, since a read that never ended still occupies its thread.
    process::exit(if outcome.interrupted { 130 } else { 0 });
}

/// The command line's request; `None` if it was answered already.
fn read_call() -> Result<Option<Call>, Error> {
    let mut call = Call::default();
    let mut arguments = std::env::args().skip(1);
    let mut first = true;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "-h" | "--help" => {
                print!("{HELP}");
                return Ok(None);
            }
            "-V" | "--version" => {
                println!("nginx-tune-probe {}", env!("CARGO_PKG_VERSION"));
                return Ok(None);
            }
            "--progress-fd" => {
                let number = arguments.next().and_then(|text| text.parse().ok());
                call.progress = Some(number.filter(|&fd| fd >= 0).ok_or_else(|| {
                    Error::Usage("--progress-fd needs the number of an open descriptor".into())
                })?);
            }
            "disk" if first => call.disk = true,
            "learn" if first => call.learn = true,
            option if option.starts_with('-') && option != "-" => {
                return Err(Error::Usage(format!("unknown option {option:?}")));
            }
            _ if call.plan.is_some() => {
                return Err(Error::Usage("more than one load plan".into()));
            }
            _ => call.plan = Some(argument),
        }
        first = false;
    }
    Ok(Some(call))
}

fn read_plan(path: Option<&str>) -> Result<Vec<u8>, Error> {
    let mut plan = Vec::new();
    let read = match path {
        None | Some("-") => io::stdin()
            .lock()
            .take(LARGEST_PLAN_BYTES)
            .read_to_end(&mut plan),
        Some(path) => fs::File::open(path)
            .and_then(|file| file.take(LARGEST_PLAN_BYTES).read_to_end(&mut plan)),
    };
    let name = path.unwrap_or("standard input");
    read.map_err(|error| Error::Usage(format!("{name}: {error}")))?;
    Ok(plan)
}

fn print(measurement: &Value) -> Result<(), Error> {
    let mut output = io::stdout().lock();
    serde_json::to_writer(&mut output, measurement)
        .map_err(io::Error::from)
        .and_then(|()| output.write_all(b"\n"))
        .and_then(|()| output.flush())
        .map_err(|error| Error::System("printing the result", error))
}
