//! Tests of valid and invalid plans.

use crate::mutations::Mutations;

use super::{Arrivals, Keepalive, Plan, Stripe};
use serde_json::{Value, json};

fn plan() -> Value {
    json!({
        "schema": "nginx-tune/loadplan/1",
        "target": {"address": "127.0.0.1", "port": 8080, "host": "localhost"},
        "classes": [{
            "name": "hot",
            "arrivals": {"kind": "closed", "rate_per_second": null, "users": 4},
            "paths": {"kind": "fixed", "paths": ["/a"], "exponent": null, "bytes": null},
            "connections": 4,
        }],
        "duration_seconds": 1,
    })
}

fn error(change: impl FnOnce(&mut Value)) -> String {
    let mut value = plan();
    change(&mut value);
    Plan::parse(value.to_string().as_bytes())
        .unwrap_err()
        .to_string()
}

#[test]
fn a_small_plan_is_filled_with_defaults() {
    let plan = Plan::parse(plan().to_string().as_bytes()).unwrap();
    assert_eq!(plan.classes[0].status, [200]);
    assert_eq!(plan.classes[0].keepalive, Keepalive::Forever);
    assert_eq!(plan.seed, 1);
    assert!(matches!(
        plan.classes[0].arrivals,
        Arrivals::Closed { users: 4, .. }
    ));
}

#[test]
fn mutated_plans_are_read_or_refused() {
    let seeds = [plan().to_string()];
    let mut some = Mutations::of("load plans", 5_000);
    let mut read = 0;
    while some.again() {
        read += u32::from(Plan::parse(&some.mutated(&seeds)).is_ok());
    }
    assert!(read > 10 || some.is_alone());
}

type Case = (&'static str, Box<dyn Fn(&mut Value)>);

#[test]
#[allow(clippy::too_many_lines)] // one table
fn what_is_wrong_is_named() {
    let cases: Vec<Case> = vec![
        (
            "expected a document of schema",
            Box::new(|p| p["schema"] = json!("other/1")),
        ),
        (
            "surprise is unknown",
            Box::new(|p| p["surprise"] = json!(1)),
        ),
        (
            "classes[0].method must be GET or HEAD",
            Box::new(|p| p["classes"][0]["method"] = json!("DELETE")),
        ),
        (
            "target.address must be an IP address",
            Box::new(|p| p["target"]["address"] = json!("example.org")),
        ),
        ("at least one class", Box::new(|p| p["classes"] = json!([]))),
        (
            "classes[0].arrivals.users is missing",
            Box::new(|p| p["classes"][0]["arrivals"]["users"] = json!(null)),
        ),
        (
            "more users than",
            Box::new(|p| p["classes"][0]["connections"] = json!(3)),
        ),
        (
            "cannot be sent",
            Box::new(|p| p["classes"][0]["paths"]["paths"] = json!(["/a b"])),
        ),
        (
            "cannot be sent",
            Box::new(|p| p["classes"][0]["paths"]["paths"] = json!(["/\r\n"])),
        ),
        (
            "more than one path",
            Box::new(|p| {
                p["classes"][0]["paths"]["paths"] = json!(["/a", "/b"]);
            }),
        ),
        (
            "length list",
            Box::new(|p| p["classes"][0]["paths"]["bytes"] = json!([1, 2])),
        ),
        (
            "exponent",
            Box::new(|p| p["classes"][0]["paths"]["kind"] = json!("zipf")),
        ),
        (
            "control characters",
            Box::new(|p| {
                p["classes"][0]["headers"] = json!({"X-A": "a\r\nX-B: b"});
            }),
        ),
        (
            "not a token",
            Box::new(|p| p["classes"][0]["headers"] = json!({"X A": "a"})),
        ),
        (
            "itself sets",
            Box::new(|p| {
                p["classes"][0]["headers"] = json!({"Connection": "upgrade"});
            }),
        ),
        (
            "duration_seconds",
            Box::new(|p| p["duration_seconds"] = json!(0)),
        ),
        (
            "above the cap of 600 s",
            Box::new(|p| p["duration_seconds"] = json!(601)),
        ),
        (
            "above the cap of 4096",
            Box::new(|p| p["classes"][0]["connections"] = json!(5000)),
        ),
        (
            "above the cap of 200000",
            Box::new(|p| {
                p["classes"][0]["arrivals"] =
                    json!({"kind": "poisson", "rate_per_second": 2e5 + 1.0});
            }),
        ),
        (
            "rate_per_second must be above 0",
            Box::new(|p| {
                p["classes"][0]["arrivals"] = json!({"kind": "constant", "rate_per_second": -1});
            }),
        ),
        (
            "appears twice",
            Box::new(|p| {
                let class = p["classes"][0].clone();
                p["classes"].as_array_mut().unwrap().push(class);
            }),
        ),
    ];
    for (words, change) in cases {
        let message = error(&*change);
        assert!(message.contains(words), "{message:?} lacks {words:?}");
    }
    let junk = Plan::parse(b"{").unwrap_err().to_string();
    assert!(junk.contains("not a load plan"), "{junk}");
}

#[test]
fn users_are_dealt_out_completely() {
    for users in [3, 10, 11] {
        let dealt: usize = (0..3).map(|index| Stripe::of(index, 3).share(users)).sum();
        assert_eq!(dealt, users);
    }
}
