//! The size of an object and the requested part of it, from the fields of a line.

use super::format::{Fields, Format};
use super::plan::Slot;
use super::values::{content_range, milliseconds, requested_range};

/// One PiB; no response is larger.
pub(crate) const MOST_BYTES: i64 = 1 << 50;
const UNKNOWN: i64 = -1;

/// The size of an object and its requested part.
#[derive(Debug)]
pub(crate) struct Extent {
    /// The full size in bytes; -1 if unknown.
    pub(crate) size: i64,
    pub(crate) at_least: i64,
    pub(crate) range: Option<(i64, i64)>,
}

impl Extent {
    /// The extent from the fields of a line with a body of `sent` bytes.
    pub(crate) fn of(fields: &Fields, format: &Format, status: Option<usize>, sent: i64) -> Self {
        if status != Some(206) {
            let ratio = milliseconds(fields.or_empty(Slot::GzipRatio)).filter(|&ratio| ratio > 0);
            let size = ratio.map_or(sent, |ratio| {
                let size = i128::from(sent) * i128::from(ratio) / 1000;
                size.min(i128::from(MOST_BYTES)) as i64
            });
            return Self {
                size,
                at_least: size,
                range: None,
            };
        }
        let answered = content_range(&format.text(fields.or_empty(Slot::ContentRange)));
        if let Some((answered, last)) = answered.and_then(|it| it.last.map(|last| (it, last))) {
            let total = answered.total.unwrap_or(UNKNOWN);
            return Self {
                size: total,
                at_least: total.max(last + 1),
                range: Some((answered.first, last)),
            };
        }
        let Some(asked) = requested_range(&format.text(fields.or_empty(Slot::Range))) else {
            return Self {
                size: UNKNOWN,
                at_least: sent,
                range: None,
            };
        };
        let last = asked.last.unwrap_or(asked.first + sent - 1);
        Self {
            size: UNKNOWN,
            at_least: asked.first + sent,
            range: (last >= asked.first).then_some((asked.first, last)),
        }
    }
}

impl Default for Extent {
    fn default() -> Self {
        Self {
            size: UNKNOWN,
            at_least: 0,
            range: None,
        }
    }
}
