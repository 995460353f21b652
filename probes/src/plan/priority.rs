//! The priority of a class's requests.

use serde_json::Value;

use super::Class;
use crate::error::Error;
use crate::fields::{Fields, Read};

/// The valid weights of a stream (RFC 7540 §5.3.2), and urgencies (RFC 9218 §4.1).
const WEIGHTS: std::ops::RangeInclusive<u16> = 1..=256;
const MOST_URGENCY: u16 = 7;

/// The priority of a class's requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Priority {
    /// The place of its streams in the connection's tree; `None` to send none.
    pub tree: Option<Tree>,
    /// The value of the header `priority`; `None` to send none.
    pub header: Option<String>,
}

/// A place in the tree of a connection's streams (RFC 7540 §5.3).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// The stream's share among its siblings.
    pub weight: u16,
    /// The stream depends on the newest stream in progress of these classes, if there is one.
    pub depends_on: Vec<String>,
    /// True if this stream becomes the parent of the other streams that depend on the same stream.
    pub exclusive: bool,
    /// True to send the priority in a PRIORITY frame after HEADERS, not within HEADERS.
    pub apart: bool,
}

impl Priority {
    /// Checks that the priority fits the rest of its class.
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
