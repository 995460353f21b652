//! The fields of one header block, bounded in what they may come to.

/// Bytes of all fields of a block. A small block can come to megabytes.
const MOST_BYTES: usize = 64 * 1024;

/// Fields of a block.
pub(crate) const MOST_FIELDS: usize = 128;

/// More fields, or longer ones, than are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

/// The fields are no head of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The decompressed fields of one block.
#[derive(Debug, Default)]
pub(crate) struct Head {
    /// Names and values; a coder writes behind them.
    pub(crate) text: Vec<u8>,
    /// Where the name and the value of each end.
    ends: Vec<(usize, usize)>,
}

impl Head {
    /// Name and value of each field, in order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut begin = 0;
        self.ends.iter().map(move |&(name, value)| {
            let field = (&self.text[begin..name], &self.text[name..value]);
            begin = value;
            field
        })
    }

    /// Whether it has no field yet.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// The text of the field that was written last.
    pub(crate) fn last(&self) -> (&[u8], &[u8]) {
        let &(name, value) = self.ends.last().unwrap_or(&(0, 0));
        let begin = self.ends.iter().rev().nth(1).map_or(0, |&(_, end)| end);
        (&self.text[begin..name], &self.text[name..value])
    }

    /// Takes what was written since the last field for one whose name ends at `name`.
    pub(crate) fn end_field(&mut self, name: usize) -> Result<(), TooMany> {
        self.ends.push((name, self.text.len()));
        if self.text.len() > MOST_BYTES || self.ends.len() > MOST_FIELDS {
            return Err(TooMany);
        }
        Ok(())
    }
}

type Headers<'h> = [httparse::Header<'h>; MOST_FIELDS];

/// The status and the other fields of a response's head, and how many these are.
pub(crate) fn read_head(head: &Head) -> Result<(u16, Headers<'_>, usize), Malformed> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let (mut status, mut count) = (None, 0);
    for (name, value) in head.fields() {
        let name = std::str::from_utf8(name).map_err(|_| Malformed)?;
        if let Some(pseudo) = name.strip_prefix(':') {
            // One, and before all others (RFC 9113 §8.3, RFC 9114 §4.3).
            if pseudo != "status" || status.is_some() || count > 0 {
                return Err(Malformed);
            }
            let digits = std::str::from_utf8(value)
                .ok()
                .filter(|text| text.len() == 3);
            let number = digits.and_then(|text| text.parse::<u16>().ok());
            status = Some(number.filter(|&it| it >= 100).ok_or(Malformed)?);
        } else {
            headers[count] = httparse::Header { name, value };
            count += 1;
        }
    }
    Ok((status.ok_or(Malformed)?, headers, count))
}
