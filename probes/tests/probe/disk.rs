//! The disk probe as a process: what it reads and counts, what it refuses, how it ends.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::ground_truth::await_that;

const PROBE: &str = env!("CARGO_BIN_EXE_nginx-tune-probe");

/// A directory on a disk that is removed with its files.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        // Cargo's own: /tmp may be in memory.
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("disk-{name}"));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn file(&self, name: &str, bytes: usize) -> String {
        let path = self.0.join(name);
        let mut file = fs::File::create(&path).unwrap();
        file.write_all(&vec![7; bytes]).unwrap();
        file.sync_all().unwrap();
        path.to_str().unwrap().to_owned()
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn plan(paths: &[String], steps: &Value) -> Value {
    json!({"schema": "nginx-tune/diskplan/1", "paths": paths, "steps": steps})
}

fn random(depth: u64, seconds: f64) -> Value {
    json!({"read_bytes": 4096, "depth": depth, "seconds": seconds, "warmup_seconds": 0.05})
}

fn spawn(plan: &Value) -> Child {
    let mut child = Command::new(PROBE)
        .arg("disk")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = child.stdin.take().unwrap();
    input.write_all(plan.to_string().as_bytes()).unwrap();
    child
}

fn output(plan: &Value) -> Output {
    spawn(plan).wait_with_output().unwrap()
}

#[track_caller]
fn run(plan: &Value) -> Value {
    let output = output(plan);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    serde_json::from_slice(&output.stdout).unwrap()
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

#[test]
fn what_is_counted_adds_up() {
    let directory = Directory::new("counts");
    let paths = [directory.file("a", 1 << 20), directory.file("b", 300_000)];
    let steps = json!([
        {"kind": "sequential", "read_bytes": 65536, "seconds": 0.2},
        random(1, 0.4),
        random(4, 0.4),
    ]);
    let run = run(&plan(&paths, &steps));
    assert_eq!(run["schema"], "nginx-tune/diskrun/1");
    assert_eq!(
        (&run["files"], &run["file_bytes"]),
        (&json!(2), &json!(1_348_576))
    );
    // Past the page cache: what was read came from the device, to the end of the last block.
    let fetched = number(&run["device_bytes"]) / number(&run["bytes"]);
    assert!((1.0..1.1).contains(&fetched), "{fetched}");
    let flags = run["flags"].to_string();
    assert!(
        flags.contains("small: 1 MiB are read over and over"),
        "{flags}"
    );
    for (step, depth) in run["steps"].as_array().unwrap().iter().zip([1, 1, 4]) {
        assert_eq!(step["depth"], depth);
        assert_eq!(
            (&step["errors"], &step["unfinished"]),
            (&json!(0), &json!(0))
        );
        let (reads, seconds) = (number(&step["reads"]), number(&step["seconds"]));
        assert!((number(&step["reads_per_second"]) - reads / seconds).abs() < 0.001);
        let rates = step["interval_reads_per_second"].as_array().unwrap();
        assert_eq!(rates.len(), 4);
        let mean = rates.iter().map(number).sum::<f64>() / 4.0;
        assert!((mean * seconds - reads).abs() < 0.5, "{mean} {reads}");
        let latency = &step["latency_seconds"];
        // Those that start inside, and those that end inside: up to the depth apart.
        assert!((number(&latency["count"]) - reads).abs() <= f64::from(depth));
        assert!(number(&latency["p50"]) <= number(&latency["p99"]));
        assert!(number(&latency["p99"]) <= number(&latency["max"]));
        // Little's law holds for a closed loop: depth = rate × mean latency. A read that starts
        // inside may end after it, so that each of the depth's places has up to one latency more.
        let under_way = number(&latency["count"]) / seconds * number(&latency["mean"]);
        let most = f64::from(depth) * (1.0 + number(&latency["max"]) / seconds);
        assert!(under_way < 1.01 * most, "{under_way} {most}");
    }
}

#[test]
fn holes_are_not_taken_for_the_disk() {
    let directory = Directory::new("holes");
    let hole = directory.file("hole", 0);
    fs::OpenOptions::new()
        .write(true)
        .open(&hole)
        .unwrap()
        .set_len(1 << 20)
        .unwrap();
    let run = run(&plan(&[hole], &json!([random(1, 0.1)])));
    assert!(number(&run["bytes"]) > 0.0);
    assert_eq!(run["device_bytes"], 0);
}

#[test]
fn what_cannot_be_read_past_the_page_cache_is_refused() {
    let directory = Directory::new("refused");
    let path = |name: &str| directory.0.join(name).to_str().unwrap().to_owned();
    let file = directory.file("file", 1 << 20);
    directory.file("small", 4095);
    std::os::unix::fs::symlink(&file, path("link")).unwrap();
    let pipe = Command::new("mkfifo").arg(path("pipe")).status().unwrap();
    assert!(pipe.success());
    let memory = format!("/dev/shm/nginx-tune-probe-{}", std::process::id());
    let mut cases = vec![
        (path("gone"), "No such file"),
        (path("link"), "a symbolic link"),
        (path("small"), "too small"),
        (path("pipe"), ""),
        (directory.0.to_str().unwrap().to_owned(), ""),
        ("/dev/null".to_owned(), ""),
    ];
    if fs::write(&memory, vec![7; 1 << 20]).is_ok() {
        cases.push((memory.clone(), "tmpfs keeps its files in memory"));
    }
    for (path, words) in &cases {
        let output = output(&plan(std::slice::from_ref(path), &json!([random(1, 0.1)])));
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(4), "{path}: {errors}");
        assert!(errors.contains(words), "{errors:?} lacks {words:?}");
        assert!(errors.contains(path.as_str()), "{errors}");
        assert_eq!(errors.lines().count(), 1);
        assert!(output.stdout.is_empty());
    }
    let all: Vec<_> = cases
        .iter()
        .map(|(path, _)| path.clone())
        .chain([file])
        .collect();
    let run = run(&plan(&all, &json!([random(1, 0.1)])));
    assert_eq!(run["files"], 1);
    let flags = run["flags"].to_string();
    assert!(flags.contains("left_out: "), "{flags}");
    let _ = fs::remove_file(memory);
}

#[test]
fn a_wrong_plan_is_refused() {
    for (text, words) in [
        ("{}", "nginx-tune/diskplan/1"),
        ("", "not a disk plan"),
        (
            r#"{"schema": "nginx-tune/loadplan/1"}"#,
            "nginx-tune/diskplan/1",
        ),
    ] {
        let plan = serde_json::from_str(text).unwrap_or(Value::String(text.into()));
        let output = output(&plan);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(words));
    }
}

#[test]
fn the_caps_hold() {
    let directory = Directory::new("caps");
    let paths = [directory.file("a", 1 << 20)];
    let mut plan = plan(&paths, &json!([random(2, 20.0), random(4, 20.0)]));
    plan["caps"] = json!({"bytes": 400_000});
    let started = Instant::now();
    let run = run(&plan);
    assert!(started.elapsed() < Duration::from_secs(10));
    let bytes = number(&run["bytes"]);
    assert!(
        (400_000.0..=400_000.0 + 2.0 * 4096.0).contains(&bytes),
        "{bytes}"
    );
    assert_eq!(run["steps"].as_array().unwrap().len(), 1);
    assert!(
        run["flags"]
            .to_string()
            .contains("stopped: the cap of 400000 bytes")
    );
}

#[test]
fn progress_is_a_line_a_step_on_its_own_descriptor() {
    let directory = Directory::new("progress");
    let paths = [directory.file("a", 1 << 20)];
    let plan = plan(&paths, &json!([random(1, 0.1), random(2, 0.1)]));
    let file = directory.0.join("plan.json");
    fs::write(&file, plan.to_string()).unwrap();
    let output = Command::new("sh")
        .args([
            "-c",
            "exec \"$0\" disk --progress-fd 3 \"$1\" 3>&1 >/dev/null",
        ])
        .arg(PROBE)
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success());
    let lines: Vec<Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    for (index, line) in lines.iter().enumerate() {
        assert_eq!(
            (&line["step"], &line["steps"]),
            (&json!(index + 1), &json!(2))
        );
        assert!(number(&line["reads_per_second"]) > 0.0);
    }
}

#[test]
fn a_signal_ends_the_run_long_before_its_time_and_the_result_is_printed() {
    let directory = Directory::new("signal");
    let paths = [directory.file("a", 1 << 20)];
    for name in ["-INT", "-TERM"] {
        let plan = plan(
            &paths,
            &json!([random(1, 0.2), random(8, 25.0), random(16, 25.0)]),
        );
        let child = spawn(&plan);
        // The step of eight reads at once.
        let threads = Path::new("/proc").join(child.id().to_string()).join("task");
        await_that(|| fs::read_dir(&threads).map_or(0, Iterator::count) > 8);
        thread::sleep(Duration::from_millis(500));
        let asked = Instant::now();
        let kill = Command::new("kill")
            .args([name, &child.id().to_string()])
            .status();
        assert!(kill.unwrap().success());
        let output = child.wait_with_output().unwrap();
        let took = asked.elapsed();
        assert!(took < Duration::from_secs(20), "{took:?}");
        assert_eq!(output.status.code(), Some(130));
        let run: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            run["flags"].as_array().unwrap().last().unwrap(),
            "interrupted"
        );
        let steps = run["steps"].as_array().unwrap();
        assert_eq!(steps.len(), 2);
        let cut = &steps[1];
        let seconds = number(&cut["seconds"]);
        assert!((0.05..20.0).contains(&seconds), "{seconds}");
        let rate = number(&cut["reads"]) / seconds;
        assert!((number(&cut["reads_per_second"]) - rate).abs() < 0.001 * rate);
    }
}

#[test]
fn it_ends_with_its_parent() {
    let directory = Directory::new("parent");
    let paths = [directory.file("a", 1 << 20)];
    let file = directory.0.join("plan.json");
    fs::write(&file, plan(&paths, &json!([random(4, 50.0)])).to_string()).unwrap();
    // A shell that starts the probe beside itself, tells its number and waits to be killed.
    let mut shell = Command::new("sh")
        .args(["-c", "\"$0\" disk \"$1\" & echo $!; wait", PROBE])
        .arg(&file)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut number = String::new();
    BufReader::new(shell.stdout.take().unwrap())
        .read_line(&mut number)
        .unwrap();
    let process = Path::new("/proc").join(number.trim());
    let threads = || fs::read_dir(process.join("task")).map_or(0, Iterator::count);
    await_that(|| threads() >= 5);
    shell.kill().unwrap();
    shell.wait().unwrap();
    let killed = Instant::now();
    let stat = process.join("stat");
    while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
        assert!(killed.elapsed() < Duration::from_secs(30), "still running");
        thread::sleep(Duration::from_millis(10));
    }
}
