//! Strict reading of JSON objects, field by field: a missing or unknown field or a wrong type is an
//! error that names the field.
//!
//! Written by hand instead of with serde's derive: errors then name the field and what it must
//! contain, and the probe depends on few crates with macros.

use std::str::FromStr;

use serde_json::{Map, Value};

use crate::error::Error;

/// The fields of a JSON object that have not been read yet.
#[derive(Debug)]
pub struct Fields {
    place: String,
    left: Map<String, Value>,
}

impl Fields {
    /// The fields of a value, which must be an object. `place` is its name in errors.
    pub fn of(value: Value, place: &str) -> Result<Self, Error> {
        match value {
            Value::Object(left) => Ok(Self {
                place: place.to_owned(),
                left,
            }),
            _ => Err(Error::Plan(format!("{place} must be an object"))),
        }
    }

    /// The path of a field, for errors.
    pub fn place(&self, name: &str) -> String {
        if self.place.is_empty() {
            name.to_owned()
        } else {
            format!("{}.{name}", self.place)
        }
    }

    /// An error about a field.
    pub fn wrong(&self, name: &str, what: &str) -> Error {
        Error::Plan(format!("{} {what}", self.place(name)))
    }

    /// A field, if it exists and is not null.
    pub fn optional<T: Read>(&mut self, name: &str) -> Result<Option<T>, Error> {
        match self.left.remove(name) {
            None | Some(Value::Null) => Ok(None),
            Some(value) => T::read(value, &self.place(name)).map(Some),
        }
    }

    /// A field, or a default.
    pub fn or<T: Read>(&mut self, name: &str, default: T) -> Result<T, Error> {
        Ok(self.optional(name)?.unwrap_or(default))
    }

    /// A field that must exist.
    pub fn required<T: Read>(&mut self, name: &str) -> Result<T, Error> {
        self.optional(name)?
            .ok_or_else(|| self.wrong(name, "is missing"))
    }

    /// A field's text, parsed as another type.
    pub fn parsed<T: FromStr>(&mut self, name: &str, what: &str) -> Result<T, Error> {
        let text: String = self.required(name)?;
        text.parse()
            .map_err(|_| self.wrong(name, &format!("must be {what}, not {text:?}")))
    }

    /// Checks that every field was read.
    pub fn end(self) -> Result<(), Error> {
        match self.left.keys().next() {
            None => Ok(()),
            Some(name) => Err(self.wrong(name, "is unknown to this version of the probe")),
        }
    }
}

/// A type that can be read from a JSON value.
pub trait Read: Sized {
    /// Reads the value; `place` is its name in errors.
    fn read(value: Value, place: &str) -> Result<Self, Error>;
}

fn typed<T>(value: Option<T>, place: &str, what: &str) -> Result<T, Error> {
    value.ok_or_else(|| Error::Plan(format!("{place} must be {what}")))
}

impl Read for String {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        match value {
            Value::String(text) => Ok(text),
            _ => typed(None, place, "a text"),
        }
    }
}

impl Read for f64 {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        typed(value.as_f64(), place, "a number")
    }
}

impl Read for bool {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        typed(value.as_bool(), place, "true or false")
    }
}

impl Read for u64 {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        typed(value.as_u64(), place, "a whole number of 0 or more")
    }
}

impl Read for u16 {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let number = value.as_u64().and_then(|number| number.try_into().ok());
        typed(number, place, "a whole number of 0 to 65535")
    }
}

impl Read for usize {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let number = value.as_u64().and_then(|number| number.try_into().ok());
        typed(number, place, "a whole number of 0 or more")
    }
}

impl<T: Read> Read for Vec<T> {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let Value::Array(items) = value else {
            return typed(None, place, "a list");
        };
        items
            .into_iter()
            .enumerate()
            .map(|(number, item)| T::read(item, &format!("{place}[{number}]")))
            .collect()
    }
}

impl<T: Read> Read for std::collections::BTreeMap<String, T> {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let fields = Fields::of(value, place)?;
        fields
            .left
            .into_iter()
            .map(|(name, item)| Ok((name.clone(), T::read(item, &format!("{place}.{name}"))?)))
            .collect()
    }
}
