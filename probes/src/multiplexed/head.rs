//! The fields of a header block, with bounds on their size.

/// The most bytes of all fields of a block; a small block can expand to megabytes.
const MOST_BYTES: usize = 64 * 1024;

/// The most fields of a block.
pub(crate) const MOST_FIELDS: usize = 128;

/// The error for more or longer fields than allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct TooMany;

/// The error for fields that are not a valid response head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The decompressed fields of a block.
#[derive(Debug, Default)]
pub(crate) struct Head {
    /// Names and values, to which a decoder appends.
    pub(crate) text: Vec<u8>,
    /// The end of the name and of the value of each field.
    ends: Vec<(usize, usize)>,
}

impl Head {
    /// The name and value of each field, in order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut begin = 0;
        self.ends.iter().map(move |&(name, value)| {
            let field = (&self.text[begin..name], &self.text[name..value]);
            begin = value;
            field
        })
    }

    /// Whether it has no fields.
    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn clear(&mut self) {
        self.text.clear();
        self.ends.clear();
    }

    /// The last field.
    pub(crate) fn last(&self) -> (&[u8], &[u8]) {
        let &(name, value) = self.ends.last().unwrap_or(&(0, 0));
        let begin = self.ends.iter().rev().nth(1).map_or(0, |&(_, end)| end);
        (&self.text[begin..name], &self.text[name..value])
    }

    /// Ends a field, whose name ends at `name` in the text written since the previous field.
    pub(crate) fn end_field(&mut self, name: usize) -> Result<(), TooMany> {
        self.ends.push((name, self.text.len()));
        if self.text.len() > MOST_BYTES || self.ends.len() > MOST_FIELDS {
            return Err(TooMany);
        }
        Ok(())
    }
}

type Headers<'h> = [httparse::Header<'h>; MOST_FIELDS];

/// The status, the other fields, and their number.
pub(crate) fn read_head(head: &Head) -> Result<(u16, Headers<'_>, usize), Malformed> {
    let mut headers = [httparse::EMPTY_HEADER; MOST_FIELDS];
    let (mut status, mut count) = (None, 0);
    for (name, value) in head.fields() {
        let name = std::str::from_utf8(name).map_err(|_| Malformed)?;
        if let Some(pseudo) = name.strip_prefix(':') {
            // Exactly one, before all other fields (RFC 9113 §8.3, RFC 9114 §4.3).
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
