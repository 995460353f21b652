//! The tally as JSON, `nginx-tune/tally/1`.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::names::Names;
use super::reader::Reader;

/// Prints the tally, the large lists row by row.
pub(crate) fn write(reader: Reader, output: &mut impl Write) -> io::Result<()> {
    let refused: BTreeMap<_, Value> = reader
        .refused
        .iter()
        .map(|(reason, r)| {
            (
                *reason,
                json!({"lines": r.lines, "first_lines": r.first_lines}),
            )
        })
        .collect();
    let head = json!({
        "lines": reader.lines,
        "refused": refused,
        "requests": reader.requests,
        "unreadable_requests": reader.unreadable,
        "methods": names(&reader.methods),
        "statuses": statuses(&reader.statuses),
        "protocols": names(&reader.protocols),
        "tls": names(&reader.tls),
        "cache_statuses": names(&reader.cache),
        "upstream_requests": reader.upstream,
        "sent_bytes": reader.sent,
        "data_requests": reader.data_requests,
        "data_bytes": reader.data_bytes,
        "partial_requests": reader.partial,
        "timeline": reader.timeline.finish(),
        "connections": {
            "level": reader.connections.level,
            "distinct": reader.connections.len(),
            "numbered": reader.numbered,
            "nth_requests": trimmed(&reader.nth),
            "later_requests": reader.later,
        },
        "round_trips": reader.round_trips.rows(),
    });
    output.write_all(br#"{"schema":"nginx-tune/tally/1""#)?;
    if let Value::Object(parts) = head {
        for (name, part) in parts {
            write!(output, r#","{name}":"#)?;
            serde_json::to_writer(&mut *output, &part)?;
        }
    }
    let [sampled, heavy] = reader.objects.rows();
    let (level, error) = (reader.objects.level, reader.objects.heavy_error);
    write!(
        output,
        r#","objects":{{"level":{level},"heavy_error":{error},"sampled":"#
    )?;
    serde_json::to_writer(&mut *output, &sampled)?;
    output.write_all(br#","heavy":"#)?;
    serde_json::to_writer(&mut *output, &heavy)?;
    output.write_all(br#"},"manifest":"#)?;
    reader.manifest.write(output)?;
    output.write_all(br#","places":"#)?;
    reader.places.write(output)?;
    output.write_all(b"}\n")?;
    output.flush()
}

fn names(counts: &Names) -> Value {
    json!(counts)
}

fn statuses(counts: &[u64]) -> BTreeMap<String, u64> {
    let seen = counts.iter().enumerate().filter(|(_, count)| **count > 0);
    seen.map(|(code, &count)| (format!("{code:03}"), count))
        .collect()
}

/// The counts up to the last that is not 0.
fn trimmed(counts: &[u64]) -> &[u64] {
    let last = counts.iter().rposition(|&count| count > 0);
    &counts[..last.map_or(0, |last| last + 1)]
}
