//! What a class says of how urgent its answers are.

use serde_json::Value;

use super::Class;
use crate::error::Error;
use crate::fields::{Fields, Read};

/// Weights of a stream (RFC 7540 §5.3.2), and urgencies (RFC 9218 §4.1).
const WEIGHTS: std::ops::RangeInclusive<u16> = 1..=256;
const MOST_URGENCY: u16 = 7;

/// How urgent the answers to a class's requests are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priority {
    /// Where its streams stand in the tree of the connection's; none says nothing of it.
    pub tree: Option<Tree>,
    /// What the header `priority` says; none sends none.
    pub header: Option<String>,
}

/// A place in the tree of a connection's streams (RFC 7540 §5.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// Its part beside others that depend on the same.
    pub weight: u16,
    /// Classes of which the newest stream that is under way is the one that it depends on; where there
    /// is none it depends on no stream.
    pub depends_on: Vec<String>,
    /// Whether what had depended on that depends on this stream from then on.
    pub exclusive: bool,
    /// Whether it is said in a frame of its own behind HEADERS, not inside them.
    pub apart: bool,
}

impl Priority {
    /// Whether it goes with the rest of its class.
    pub(super) fn check(&self, class: &Class) -> Result<(), String> {
        let Some(tree) = &self.tree else {
            return Ok(());
        };
        if !class.speaks.has_tree() {
            return Err("has priority.weight, which only http2 has".into());
        }
        if !WEIGHTS.contains(&tree.weight) {
            return Err("needs priority.weight from 1 to 256".into());
        }
        Ok(())
    }
}

impl Read for Priority {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let weight: Option<u16> = fields.optional("weight")?;
        let depends_on: Vec<String> = fields.or("depends_on", Vec::new())?;
        let exclusive = fields.or("exclusive", false)?;
        let frame: String = fields.or("frame", "headers".into())?;
        let urgency: Option<u16> = fields.optional("urgency")?;
        let incremental = fields.or("incremental", false)?;
        let apart = match frame.as_str() {
            "headers" => false,
            "priority" => true,
            _ => return Err(fields.wrong("frame", "must be headers or priority")),
        };
        if weight.is_none() && (exclusive || apart || !depends_on.is_empty()) {
            return Err(fields.wrong("weight", "is missing"));
        }
        if urgency.is_some_and(|it| it > MOST_URGENCY) {
            return Err(fields.wrong("urgency", "must lie between 0 and 7"));
        }
        if incremental && urgency.is_none() {
            return Err(fields.wrong("urgency", "is missing"));
        }
        if weight.is_none() && urgency.is_none() {
            return Err(fields.wrong("weight", "is missing, and so is urgency"));
        }
        fields.end()?;
        Ok(Self {
            tree: weight.map(|weight| Tree {
                weight,
                depends_on,
                exclusive,
                apart,
            }),
            header: urgency.map(|it| format!("u={it}{}", if incremental { ", i" } else { "" })),
        })
    }
}
