//! Strict parsing of a plan from JSON.

use std::collections::BTreeMap;

use serde_json::Value;

use super::{
    Caps, Class, ConnectionUse, Keepalive, Method, PaceOf, Permit, Plan, SCHEMA, Speaks, Stripe,
};
use crate::error::Error;
use crate::fields::{Fields, Read};

impl Read for Plan {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let Value::Object(_) = value else {
            return Err(Error::Plan("not a load plan: no JSON object".into()));
        };
        let digest = digest(&value);
        let mut fields = Fields::of(value, place)?;
        let schema: String = fields.or("schema", "none".into())?;
        if schema != SCHEMA {
            return Err(Error::Plan(format!(
                "expected a document of schema {SCHEMA}, found {schema:?}"
            )));
        }
        let plan = Self {
            target: fields.required("target")?,
            classes: fields.required("classes")?,
            duration_seconds: fields.required("duration_seconds")?,
            warmup_seconds: fields.or("warmup_seconds", 0.0)?,
            drain_seconds: fields.or("drain_seconds", 5.0)?,
            seed: fields.or("seed", 1)?,
            stripe: fields.or("stripe", Stripe::default())?,
            threads: fields.or("threads", 1)?,
            cpus: fields.or("cpus", Vec::new())?,
            realtime: fields.or("realtime", false)?,
            precise: fields.or("precise", false)?,
            second_histograms: fields.or("second_histograms", false)?,
            abort_error_ratio: fields.optional("abort_error_ratio")?,
            idle_connections: fields.or("idle_connections", 0)?,
            start_at_unix_seconds: fields.optional("start_at_unix_seconds")?,
            caps: fields.or("caps", Caps::default())?,
            permit: fields.or("permit", Permit::default())?,
            digest,
        };
        fields.end()?;
        Ok(plan)
    }
}

/// A digest of the load without its seed and stripe. Measurements of plans with the same digest can
/// be added.
fn digest(plan: &Value) -> String {
    let parts = ["classes", "duration_seconds", "warmup_seconds"].map(|name| &plan[name]);
    let text = parts.map(ToString::to_string).join("\n");
    // 64-bit FNV-1a, since nobody gains by a collision.
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

impl Read for Class {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let mut class = Self {
            name: fields.required("name")?,
            target: fields.optional("target")?,
            arrivals: fields.required("arrivals")?,
            paths: fields.required("paths")?,
            connections: fields.required("connections")?,
            connections_of: fields.optional("connections_of")?,
            connection_use: fields.or("connection_use", ConnectionUse::default())?,
            held_connections: fields.optional("held_connections")?,
            method: fields.or("method", Method::Get)?,
            headers: fields.or("headers", BTreeMap::new())?,
            status: fields.or("status", vec![200])?,
            timeout_seconds: fields.or("timeout_seconds", 30.0)?,
            keepalive: keepalive(&mut fields)?,
            ranges: fields.optional("range")?,
            read_bytes_per_second: fields.optional("read_bytes_per_second")?,
            read_pace_of: fields.or("read_pace_of", PaceOf::default())?,
            receive_buffer_bytes: fields.optional("receive_buffer_bytes")?,
            hash_ratio: fields.or("hash_ratio", 0.01)?,
            speaks: Speaks::read(&mut fields)?,
            priority: fields.optional("priority")?,
        };
        fields.end()?;
        let mut headers = class.headers.keys();
        let has_own = headers.any(|it| it.eq_ignore_ascii_case("priority"));
        if let Some(text) = class.priority.as_ref().and_then(|it| it.header.clone()) {
            if has_own {
                return Err(Error::Plan(format!(
                    "{place} has both priority.urgency and a header Priority, and can send only one"
                )));
            }
            class.headers.insert("priority".into(), text);
        }
        Ok(class)
    }
}

fn keepalive(fields: &mut Fields) -> Result<Keepalive, Error> {
    let kept: bool = fields.or("keepalive", true)?;
    let requests: Option<u64> = fields.optional("keepalive_requests")?;
    let probability: Option<f64> = fields.optional("close_probability")?;
    match (kept, requests, probability) {
        (false, None, None) => Ok(Keepalive::None),
        (true, None, None) => Ok(Keepalive::Forever),
        (true, Some(0), None) => Err(fields.wrong("keepalive_requests", "must be above 0")),
        (true, Some(requests), None) => Ok(Keepalive::Requests(requests)),
        (true, None, Some(share)) if share > 0.0 && share <= 1.0 => Ok(Keepalive::Random(share)),
        (true, None, Some(_)) => {
            Err(fields.wrong("close_probability", "must be above 0 and at most 1"))
        }
        _ => Err(fields.wrong(
            "keepalive",
            "false, keepalive_requests and close_probability exclude each other",
        )),
    }
}

impl Read for PaceOf {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        match value.as_str() {
            Some("stream") => Ok(Self::Stream),
            Some("connection") => Ok(Self::Connection),
            _ => Err(Error::Plan(format!("{place} must be stream or connection"))),
        }
    }
}

impl Read for ConnectionUse {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        match value.as_str() {
            Some("latest") => Ok(Self::Latest),
            Some("turns") => Ok(Self::Turns),
            _ => Err(Error::Plan(format!("{place} must be latest or turns"))),
        }
    }
}

impl Read for Method {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        match value.as_str() {
            Some("GET") => Ok(Self::Get),
            Some("HEAD") => Ok(Self::Head),
            _ => Err(Error::Plan(format!("{place} must be GET or HEAD"))),
        }
    }
}

impl Read for Caps {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let default = Self::default();
        let mut fields = Fields::of(value, place)?;
        let caps = Self {
            seconds: fields.or("seconds", default.seconds)?,
            bytes: fields.or("bytes", default.bytes)?,
            requests: fields.or("requests", default.requests)?,
            connections: fields.or("connections", default.connections)?,
            rate_per_second: fields.or("rate_per_second", default.rate_per_second)?,
        };
        fields.end()?;
        Ok(caps)
    }
}

impl Read for Permit {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let hosts: Vec<String> = fields.or("hosts", Vec::new())?;
        let permit = Self {
            ports: fields.or("ports", Vec::new())?,
            live: fields.or("live", false)?,
            hosts: hosts
                .iter()
                .map(|host| host.parse())
                .collect::<Result<_, _>>()
                .map_err(|_| fields.wrong("hosts", "must contain IP addresses"))?,
            sockets: fields.or("sockets", Vec::new())?,
        };
        fields.end()?;
        Ok(permit)
    }
}

impl Read for Stripe {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let stripe = Self::of(fields.or("index", 0)?, fields.or("count", 1)?);
        fields.end()?;
        Ok(stripe)
    }
}
