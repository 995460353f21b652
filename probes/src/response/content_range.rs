//! The part of an object in a response: `Content-Range` of RFC 9110 §14.4.

use crate::plan::ByteRange;

/// `bytes first-last/size`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContentRange {
    range: ByteRange,
    /// The size of the whole object; `None` for `*`.
    size: Option<u64>,
}

impl ContentRange {
    /// Parses a header's value; `None` if it is not a range of bytes.
    pub(super) fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?.trim();
        let (range, size) = text.strip_prefix("bytes ")?.split_once('/')?;
        let (first, last) = range.split_once('-')?;
        let range = ByteRange {
            first: number(first)?,
            last: number(last)?,
        };
        let size = if size == "*" {
            None
        } else {
            Some(number(size)?)
        };
        let possible = range.first <= range.last && size.is_none_or(|size| range.last < size);
        possible.then_some(Self { range, size })
    }

    /// Whether it answers a request for a range of an object: it must be that range, up to the
    /// object's end.
    pub(super) fn answers(self, asked: ByteRange, size: Option<u64>) -> bool {
        if let (Some(told), Some(known)) = (self.size, size) {
            if told != known {
                return false;
            }
        }
        let end = self
            .size
            .or(size)
            .map_or(asked.last, |size| size.saturating_sub(1));
        self.range.first == asked.first && self.range.last == asked.last.min(end)
    }

    /// The number of bytes in the part.
    pub(super) fn bytes(self) -> u64 {
        self.range.bytes()
    }
}

fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

#[cfg(test)]
mod tests {
    use super::ContentRange;
    use crate::plan::ByteRange;

    fn answers(value: &str, first: u64, last: u64, size: Option<u64>) -> bool {
        ContentRange::parse(value.as_bytes())
            .is_some_and(|got| got.answers(ByteRange { first, last }, size))
    }

    #[test]
    fn the_part_that_was_asked_for_is_the_answer() {
        assert!(answers("bytes 5-9/100", 5, 9, None));
        assert!(answers("bytes 5-9/100", 5, 9, Some(100)));
        assert!(answers("bytes 5-9/*", 5, 9, None));
        // A range beyond the end of the object gets the existing part.
        assert!(answers("bytes 90-99/100", 90, 200, None));
        assert!(answers("bytes 90-99/100", 90, 200, Some(100)));
    }

    #[test]
    fn another_part_is_not() {
        for (value, first, last, size) in [
            ("bytes 5-9/100", 5, 10, None),
            ("bytes 5-9/100", 4, 9, None),
            ("bytes 5-9/100", 5, 9, Some(101)),
            ("bytes 90-98/100", 90, 200, None),
            ("bytes 9-5/100", 9, 5, None),
            ("bytes 5-100/100", 5, 100, None),
            ("items 5-9/100", 5, 9, None),
            ("bytes +5-9/100", 5, 9, None),
            ("bytes */100", 5, 9, None),
            ("bytes 5-9", 5, 9, None),
            ("bytes 5-99999999999999999999/*", 5, 9, None),
        ] {
            assert!(!answers(value, first, last, size), "{value}");
        }
    }
}
