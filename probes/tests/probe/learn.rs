//! The reader of access logs as its caller runs it; what it counts is held against
//! arithmetic in Python by `tests/learn/test_learn_tally.py`.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};

fn learn(plan: &Value, lines: &[u8]) -> Output {
    let path =
        std::env::temp_dir().join(format!("learn-plan-{}-{}", std::process::id(), lines.len()));
    std::fs::write(&path, plan.to_string()).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_nginx-tune-probe"))
        .arg("learn")
        .arg(&path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let _ = child.stdin.take().unwrap().write_all(lines);
    let output = child.wait_with_output().unwrap();
    std::fs::remove_file(&path).unwrap();
    output
}

fn plan() -> Value {
    json!({
        "schema": "nginx-tune/learnplan/1",
        "format": {
            "escape": "default",
            "segments": [
                {"before": "", "slot": "msec", "is_list": false},
                {"before": " \"", "slot": "request", "is_list": false},
                {"before": "\" ", "slot": "status", "is_list": false},
                {"before": " ", "slot": "bytes", "is_list": false},
            ],
            "after": "",
            "keys": [],
        },
        "with_query": false,
        "most_objects": 2,
        "most_lines": 2,
        "most_seconds": 64,
        "most_requests": 1,
        "most_places": 0,
        "keeps_paths": false,
        "key": "000102030405060708090a0b0c0d0e0f",
    })
}

#[test]
fn lines_become_counts_within_their_bounds() {
    let mut lines = String::new();
    for n in 0..100 {
        let (second, object) = (1_790_000_000 + n, n % 50);
        writeln!(lines, "{second}.000 \"GET /{object} HTTP/1.1\" 200 {n}").unwrap();
    }
    let lines = format!("{lines}nonsense");
    let frames = [frame(b'L', b""), frame(b'B', lines.as_bytes())].concat();
    let output = learn(&plan(), &frames);
    assert!(output.status.success(), "{output:?}");
    let reading: Value = serde_json::from_slice(&output.stdout).unwrap();
    let tally = &reading["tally"];
    assert_eq!(tally["counts"]["lines"], 101);
    assert_eq!(tally["counts"]["requests"], 100);
    assert_eq!(tally["counts"]["refused"], json!({"format": 1}));
    assert_eq!(reading["first_lines"], json!({"format": [[0, 101]]}));
    assert!(tally["seconds"]["level"].as_u64().unwrap() > 0);
    assert!(tally["objects"]["level"].as_u64().unwrap() > 0);
    assert!(tally["objects"]["gaps"].as_array().unwrap().len() <= 2);
    assert!(tally["manifest"]["requests"].as_array().unwrap().len() <= 1);

    let added = learn(&plan(), &frame(b'T', &output.stdout));
    let sum: Value = serde_json::from_slice(&added.stdout).unwrap();
    assert_eq!(&sum["tally"], tally);
    let words = String::from_utf8(output.stdout).unwrap();
    let broken = words.replacen("\"gaps\":[", "\"gaps\":[0,0,", 1);
    let refused = learn(&plan(), &frame(b'T', broken.as_bytes()));
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
}

fn frame(kind: u8, data: &[u8]) -> Vec<u8> {
    let length = u32::try_from(data.len()).unwrap().to_le_bytes();
    [&[kind], &length[..], data].concat()
}

#[test]
fn a_wrong_plan_is_named() {
    let mut wrong = plan();
    wrong["format"]["segments"][0]["slot"] = json!("weather");
    let output = learn(&wrong, b"");
    assert_eq!(output.status.code(), Some(2));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("unknown slot \"weather\""), "{said}");
}
