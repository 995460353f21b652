//! The parsing of lines: text between variables, or keys of a JSON object.

use std::borrow::Cow;

use memchr::memmem::Finder;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

use super::plan::{Escape, Plan, SLOTS, Segment, Slot};
use super::values::{code_unit, unescape_default, unescape_json};

/// The most brackets in a line of JSON, so that its nesting does not overflow the parser's stack.
const MOST_BRACKETS: usize = 500;

/// The fields of a line, as written in it.
#[derive(Debug)]
pub(crate) struct Fields<'a>([Option<&'a [u8]>; SLOTS]);

impl<'a> Fields<'a> {
    fn none() -> Self {
        Self([None; SLOTS])
    }

    /// The field of a slot, if the line has it.
    pub(crate) fn get(&self, slot: Slot) -> Option<&'a [u8]> {
        self.0[slot as usize]
    }

    /// The field of a slot, or an empty slice.
    pub(crate) fn or_empty(&self, slot: Slot) -> &'a [u8] {
        self.get(slot).unwrap_or_default()
    }
}

/// Finds the fields of lines.
#[derive(Debug)]
pub(crate) struct Format {
    first: Vec<u8>,
    variables: Vec<Variable>,
    keys: Vec<(String, Slot)>,
    escape: Escape,
}

/// A variable and the way to find its end.
#[derive(Debug)]
struct Variable {
    slot: Option<Slot>,
    end: End,
}

#[derive(Debug)]
enum End {
    /// The end of the line.
    Line,
    /// One byte.
    Byte(u8),
    /// A string of several bytes.
    Text(Box<Finder<'static>>),
    /// A space and the text after it; spaces in a list of upstreams do not count.
    List(Vec<u8>),
}

impl Format {
    pub(crate) fn new(plan: &Plan) -> Self {
        let afters = plan.segments.iter().skip(1).map(|segment| &segment.before);
        let variables =
            plan.segments
                .iter()
                .zip(afters.chain([&plan.after]))
                .map(|(segment, after)| Variable {
                    slot: segment.slot,
                    end: End::of(segment, after),
                });
        Self {
            first: plan
                .segments
                .first()
                .map_or_else(Vec::new, |s| s.before.clone()),
            variables: variables.collect(),
            keys: plan.keys.clone(),
            escape: plan.escape,
        }
    }

    /// Whether lines are JSON objects.
    pub(crate) fn is_json(&self) -> bool {
        !self.keys.is_empty()
    }

    /// The fields of a line of text; `None` if the line does not have the format.
    pub(crate) fn read_text<'a>(&self, line: &'a [u8]) -> Option<Fields<'a>> {
        let mut fields = Fields::none();
        let mut at = self.first.len();
        if !line.starts_with(&self.first) {
            return None;
        }
        for variable in &self.variables {
            let (end, next) = variable.end.find(line, at)?;
            if let Some(slot) = variable.slot {
                fields.0[slot as usize] = Some(&line[at..end]);
            }
            at = next;
        }
        (at == line.len() || line[at] == b' ').then_some(fields)
    }

    /// The fields of a line with a JSON object; `None` if it has none.
    ///
    /// Text before the object, such as that of syslog or of a container's log, is skipped.
    pub(crate) fn read_json<'a>(&self, line: &'a str) -> Option<Fields<'a>> {
        let (before, _) = line.split_once('{')?;
        if before.contains('"') {
            return None;
        }
        let line = &line[before.len()..];
        let brackets = line.bytes().filter(|byte| matches!(byte, b'[' | b'{'));
        if brackets.count() > MOST_BRACKETS || !has_whole_characters(line.as_bytes()) {
            return None;
        }
        let mut reader = serde_json::Deserializer::from_str(line);
        let values = reader.deserialize_map(Keys(&self.keys)).ok()?;
        reader.end().ok()?;
        let mut fields = Fields::none();
        for ((_, slot), value) in self.keys.iter().zip(values) {
            let place = &mut fields.0[*slot as usize];
            let Some(value) = value.filter(|_| place.is_none()) else {
                continue;
            };
            match value.as_bytes() {
                [b'"', text @ .., b'"'] => *place = Some(text),
                [b'[' | b'{' | b'n', ..] => {}
                plain => *place = Some(plain),
            }
        }
        Some(fields)
    }

    /// A field without the log's escapes.
    pub(crate) fn text<'a>(&self, value: &'a [u8]) -> Cow<'a, [u8]> {
        if !value.contains(&b'\\') {
            return Cow::Borrowed(value);
        }
        match self.escape {
            Escape::Default => Cow::Owned(unescape_default(value)),
            Escape::Json => Cow::Owned(unescape_json(value)),
            Escape::None => Cow::Borrowed(value),
        }
    }
}

impl End {
    fn of(segment: &Segment, after: &[u8]) -> Self {
        match after {
            [] => Self::Line,
            [b' ', ..] if segment.is_list => Self::List(after.to_vec()),
            [byte] => Self::Byte(*byte),
            text => Self::Text(Box::new(Finder::new(text).into_owned())),
        }
    }

    /// The end of the field that starts at `from`, and the start of the next one.
    fn find(&self, line: &[u8], from: usize) -> Option<(usize, usize)> {
        match self {
            Self::Line => Some((line.len(), line.len())),
            Self::Byte(byte) => {
                let end = from + memchr::memchr(*byte, &line[from..])?;
                Some((end, end + 1))
            }
            Self::Text(finder) => {
                let end = from + finder.find(&line[from..])?;
                Some((end, end + finder.needle().len()))
            }
            Self::List(after) => {
                let end = memchr::memchr_iter(b' ', &line[from..])
                    .map(|found| from + found)
                    .find(|&at| line[at..].starts_with(after) && !goes_on(line, at))?;
                Some((end, end + after.len()))
            }
        }
    }
}

/// Whether a space is part of a list: nginx writes `, ` between servers and ` : ` between groups.
fn goes_on(line: &[u8], at: usize) -> bool {
    let follows = at > 0 && matches!(line[at - 1], b',' | b':');
    follows || line[at..].starts_with(b" : ")
}

/// Whether a line of JSON has no escape that is half a surrogate pair. Values are not decoded, so
/// nothing else checks this.
fn has_whole_characters(line: &[u8]) -> bool {
    let mut rest = line;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let escape = &rest[at + 1..];
        rest = match code_unit(escape) {
            Some(0xd800..0xdc00) => match escape.get(5..).and_then(|next| next.strip_prefix(b"\\"))
            {
                Some(low) if matches!(code_unit(low), Some(0xdc00..0xe000)) => &low[5..],
                _ => return false,
            },
            Some(0xdc00..0xe000) => return false,
            _ => escape.get(1..).unwrap_or_default(),
        };
    }
    true
}

/// Reads the values of some keys of an object, as written.
struct Keys<'k>(&'k [(String, Slot)]);

impl<'de> Visitor<'de> for Keys<'_> {
    type Value = Vec<Option<&'de str>>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = vec![None; self.0.len()];
        while let Some(wanted) = map.next_key_seed(Key(self.0))? {
            match wanted {
                Some(at) => values[at] = Some(map.next_value::<&'de RawValue>()?.get()),
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(values)
    }
}

/// Reads a key; returns its slot if it is one of the wanted keys.
struct Key<'k>(&'k [(String, Slot)]);

impl<'de> DeserializeSeed<'de> for Key<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, key: D) -> Result<Self::Value, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for Key<'_> {
    type Value = Option<usize>;

    fn expecting(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|(wanted, _)| wanted == key))
    }
}
