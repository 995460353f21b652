//! The probe as a process: what it refuses, how it ends, what it tells on the way.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::ground_truth::{
    Server, Then, await_that, closed, command, in_a_calm_moment, number, ok, plan, run, run_by,
    run_raw, start, unless,
};
use serde_json::{Value, json};

#[track_caller]
fn assert_refused(plan: &Value, words: &str) {
    let output = run_raw(plan);
    let errors = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{errors}");
    assert!(output.stdout.is_empty());
    assert!(errors.contains(words), "{errors}");
    assert_eq!(errors.lines().count(), 1);
}

#[test]
fn name_and_help() {
    let version = command().arg("--version").output().unwrap();
    let expected = format!("nginx-tune-probe {}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(version.stdout).unwrap(), expected);
    let help = command().arg("--help").output().unwrap();
    assert!(help.status.success());
    assert!(
        String::from_utf8(help.stdout)
            .unwrap()
            .contains("--progress-fd")
    );
    for wrong in [vec!["--what"], vec!["a", "b"], vec!["--progress-fd", "x"]] {
        let output = command()
            .args(&wrong)
            .stdin(Stdio::null())
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(2), "{wrong:?}");
    }
}

#[test]
fn a_target_that_is_not_permitted_gets_no_packet() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let server = Server {
        address: listener.local_addr().unwrap(),
        connections: std::sync::Arc::default(),
        asked: std::sync::Arc::default(),
    };
    let mut plan = plan(&server);
    plan["permit"] = json!({});
    assert_refused(&plan, "not a server that nginx-tune started");
    plan["permit"] = json!({"ports": [1], "hosts": ["127.0.0.1"]});
    assert_refused(&plan, "not a server that nginx-tune started");
    let nobody = listener.accept().unwrap_err();
    assert_eq!(nobody.kind(), std::io::ErrorKind::WouldBlock);
    for address in ["192.0.2.1", "169.254.169.254", "2001:db8::1"] {
        plan["target"]["address"] = json!(address);
        plan["permit"] = json!({"live": true, "ports": [server.address.port()]});
        assert_refused(&plan, "is not an address of this host");
    }
    plan["target"]["address"] = json!("0.0.0.0");
    assert_refused(&plan, "is not one server");
    plan["target"]["address"] = json!("127.0.0.1");
    plan["classes"][0]["target"] = json!({"address": "192.0.2.1", "port": 80});
    assert_refused(&plan, "is not an address of this host");
}

#[test]
fn a_plan_above_its_caps_is_refused() {
    let server = Server::answering(ok(1));
    for (change, words) in [
        (json!({"caps": {"seconds": 1}}), "above the cap of 1 s"),
        (
            json!({"caps": {"rate_per_second": 99}}),
            "above the cap of 99",
        ),
        (json!({"caps": {"connections": 49}}), "above the cap of 49"),
        (json!({"cpus": [100_000]}), "cpus"),
    ] {
        let mut plan = plan(&server);
        for (key, value) in change.as_object().unwrap() {
            plan[key] = value.clone();
        }
        assert_refused(&plan, words);
    }
    let mut many = plan(&server);
    many["classes"][0]["connections"] = json!(1_000_000);
    many["caps"] = json!({"connections": 10_000_000});
    let output = run_raw(&many);
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("1000000 connections"));
    assert_eq!(server.connections(), 0);
}

#[test]
fn the_caps_hold_during_the_run() {
    let server = Server::answering(ok(1));
    let mut plan = plan(&server);
    plan["caps"] = json!({"requests": 10});
    let measurement = run(&plan);
    // A busy server may read the last of them after the probe has gone.
    await_that(|| server.asked().len() >= 10);
    assert_eq!(server.asked().len(), 10);
    assert_eq!(measurement["flags"][0], "stopped: the cap of 10 requests");

    let server = Server::answering(ok(1_000_000));
    let mut plan = crate::ground_truth::plan(&server);
    plan["classes"][0]["arrivals"] = closed(3);
    plan["duration_seconds"] = json!(20);
    plan["caps"] = json!({"bytes": 30_000_000});
    let started = Instant::now();
    let measurement = run(&plan);
    assert!(started.elapsed() < Duration::from_secs(18));
    let bytes = number(&measurement, "classes.c.bytes");
    assert!((29_000_000.0..=30_100_000.0).contains(&bytes), "{bytes}");
    let flags = measurement["flags"].to_string();
    assert!(
        flags.contains("stopped: the cap of 30000000 bytes"),
        "{flags}"
    );
}

fn spawn(plan: &Value) -> Child {
    start(&mut command(), plan)
}

fn signal(child: &Child, name: &str) {
    let status = Command::new("kill")
        .args([name, &child.id().to_string()])
        .status();
    assert!(status.unwrap().success());
}

#[test]
fn a_signal_ends_the_run_though_requests_wait_and_the_result_is_printed() {
    for name in ["-INT", "-TERM"] {
        // Answers most, and lets some wait: those must not hold the end up.
        let server = Server::start(|ask| {
            if ask.earlier % 10 == 9 {
                thread::sleep(Duration::from_secs(30));
            }
            ask.stream.write_all(&ok(1)).ok();
            Then::Keep
        });
        let mut plan = plan(&server);
        plan["duration_seconds"] = json!(60);
        plan["drain_seconds"] = json!(30);
        let child = spawn(&plan);
        await_that(|| server.asked().len() >= 50);
        let asked = Instant::now();
        signal(&child, name);
        let output = child.wait_with_output().unwrap();
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(25), "{took:?}");
        assert_eq!(output.status.code(), Some(130));
        let measurement: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(measurement["flags"][0], "interrupted");
        let class = &measurement["classes"]["c"];
        assert!(number(class, "requests") >= 20.0);
        assert!(number(&measurement, "duration_seconds") < 50.0);
        let accounted = number(class, "requests") + number(class, "censored");
        assert_eq!(accounted, number(class, "intended"));
    }
}

#[test]
fn it_ends_with_its_parent() {
    let server = Server::answering(ok(1));
    let mut plan = plan(&server);
    plan["duration_seconds"] = json!(60);
    let file = std::env::temp_dir().join(format!("nginx-tune-probe-{}.json", std::process::id()));
    fs::write(&file, plan.to_string()).unwrap();
    // A shell that starts the probe beside itself, tells its number and waits to be killed.
    let mut shell = Command::new("sh")
        .args(["-c", "\"$0\" \"$1\" & echo $!; wait"])
        .args([command().get_program(), file.as_os_str()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut number = String::new();
    let mut output = BufReader::new(shell.stdout.take().unwrap());
    output.read_line(&mut number).unwrap();
    await_that(|| !server.asked().is_empty());
    shell.kill().unwrap();
    shell.wait().unwrap();
    // A probe that lived on would run for a minute.
    let killed = Instant::now();
    let stat = Path::new("/proc").join(number.trim()).join("stat");
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(killed.elapsed() < Duration::from_secs(30), "still running");
        thread::sleep(Duration::from_millis(10));
    }
    fs::remove_file(file).unwrap();
}

#[test]
fn progress_is_a_line_a_second_on_its_own_descriptor() {
    let server = Server::answering(ok(1));
    let mut plan = plan(&server);
    plan["duration_seconds"] = json!(2.5);
    in_a_calm_moment(|| {
        let output = run_by(
            Command::new("sh")
                .args(["-c", "exec \"$0\" --progress-fd 3 3>&1 >/dev/null"])
                .arg(command().get_program()),
            &plan,
        );
        assert!(output.status.success());
        let lines: Vec<Value> = String::from_utf8(output.stdout)
            .unwrap()
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        let told: Vec<_> = lines.iter().map(|line| &line["second"]).collect();
        let requests = lines.iter().map(|line| number(line, "classes.c.requests"));
        unless(
            told == [1, 2] && requests.min_by(f64::total_cmp) > Some(50.0),
            || format!("{lines:?}"),
        )
    });
    let closed = command().args(["--progress-fd", "77"]).output().unwrap();
    assert_eq!(closed.status.code(), Some(2));
}

#[test]
fn a_run_in_which_nearly_all_fails_is_aborted_where_asked() {
    let server = Server::start(|_| Then::Close);
    let mut plan = plan(&server);
    plan["duration_seconds"] = json!(30);
    plan["abort_error_ratio"] = json!(0.2);
    let measurement = run(&plan);
    let flag = measurement["flags"][0].as_str().unwrap();
    assert!(flag.starts_with("aborted: "), "{flag}");
    let seconds = number(&measurement, "duration_seconds");
    assert!((2.9..25.0).contains(&seconds), "{seconds}");
}

#[test]
fn its_memory_stays_small() {
    let server = Server::answering(ok(1000));
    let mut plan = plan(&server);
    plan["classes"][0]["arrivals"] = closed(50);
    plan["duration_seconds"] = json!(1);
    let rss = number(&run(&plan), "generator.max_rss_bytes");
    assert!(rss < 20e6, "{rss}");
}

/// Has a child find no `epoll_pwait2`, as on kernels before 5.11 and in strict containers.
fn without_pwait2(command: &mut Command) -> &mut Command {
    use std::os::unix::process::CommandExt as _;
    const fn step(code: u32, yes: u8, no: u8, value: u32) -> libc::sock_filter {
        libc::sock_filter {
            code: code as u16,
            jt: yes,
            jf: no,
            k: value,
        }
    }
    let refuse = || {
        let mut filter = [
            // The number of the call stands first.
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
            step(
                libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K,
                0,
                1,
                libc::SYS_epoll_pwait2 as u32,
            ),
            step(
                libc::BPF_RET | libc::BPF_K,
                0,
                0,
                libc::SECCOMP_RET_ERRNO | libc::ENOSYS as u32,
            ),
            step(libc::BPF_RET | libc::BPF_K, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let program = libc::sock_fprog {
            len: filter.len() as u16,
            filter: filter.as_mut_ptr(),
        };
        #[allow(unsafe_code)]
        // SAFETY: the program and its steps live across the calls, which only read them.
        let results = unsafe {
            [
                libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
                libc::prctl(
                    libc::PR_SET_SECCOMP,
                    libc::SECCOMP_MODE_FILTER,
                    &raw const program,
                ),
            ]
        };
        if results == [0, 0] {
            Ok(())
        } else {
            Err(std::io::Error::last_os_error())
        }
    };
    #[allow(unsafe_code)]
    // SAFETY: between fork and exec it makes two system calls and allocates nothing.
    unsafe {
        command.pre_exec(refuse)
    }
}

#[test]
fn a_kernel_without_pwait2_measures_as_well() {
    let server = Server::answering(ok(100));
    let mut plan = plan(&server);
    plan["classes"][0]["arrivals"] = json!({"kind": "poisson", "rate_per_second": 500});
    let output = run_by(without_pwait2(&mut command()), &plan);
    assert!(output.status.success());
    let measurement: Value = serde_json::from_slice(&output.stdout).unwrap();
    let class = &measurement["classes"]["c"];
    assert_eq!(class["errors"], json!({}));
    assert_eq!(class["requests"], class["intended"]);
    assert!(number(class, "requests") > 90.0);
}

#[test]
fn a_precise_run_on_one_cpu_is_refused() {
    let server = Server::answering(ok(1));
    let mut plan = plan(&server);
    plan["precise"] = json!(true);
    let cpu = first_allowed_cpu();
    let output = run_by(
        Command::new("taskset").args(["-c", &cpu, env!("CARGO_BIN_EXE_nginx-tune-probe")]),
        &plan,
    );
    assert_eq!(output.status.code(), Some(2));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(
        errors.contains("precise needs a CPU of its own"),
        "{errors}"
    );
}

fn first_allowed_cpu() -> String {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    let first = list.unwrap().trim().split([',', '-']).next();
    first.unwrap().to_owned()
}
