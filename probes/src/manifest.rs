//! A recorded stream of requests, read line by line while it is replayed.
//!
//! The format is JSON Lines: a head with the schema, then one request per line, sorted by time.
//! However long the file is, only requests without an answer are in memory.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _};

use serde_json::Value;

use crate::clock::{Nanos, nanos};
use crate::error::Error;
use crate::fields::{Fields, Read};
use crate::plan::{ByteRange, is_path};

/// The schema in the first line.
pub const SCHEMA: &str = "nginx-tune/manifest/1";

/// The longest line in bytes.
const LONGEST_LINE_BYTES: u64 = 32 * 1024;

/// The bytes to read from the disk at a time.
const BUFFER_BYTES: usize = 256 * 1024;

/// A recorded request.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// The time since the start of the recording.
    pub offset: Nanos,
    /// The requested path.
    pub path: String,
    /// The length of the whole object, if it is known.
    pub bytes: Option<u64>,
    /// The requested part.
    pub range: Option<ByteRange>,
}

/// A manifest that is being read.
#[derive(Debug)]
pub struct Manifest {
    name: String,
    lines: BufReader<File>,
    line: Vec<u8>,
    line_number: u64,
    last_offset: Nanos,
    records: u64,
}

impl Manifest {
    /// Opens the manifest in a file, before its first request.
    ///
    /// # Errors
    /// `Error::Plan` if the file cannot be read or is not a manifest.
    pub fn open(name: &str) -> Result<Self, Error> {
        let file =
            File::open(name).map_err(|error| Error::Plan(format!("manifest {name}: {error}")))?;
        let mut manifest = Self {
            name: name.to_owned(),
            lines: BufReader::with_capacity(BUFFER_BYTES, file),
            line: Vec::new(),
            line_number: 0,
            last_offset: 0,
            records: 0,
        };
        manifest.read_head().map_err(Error::Plan)?;
        Ok(manifest)
    }

    /// The next request; `None` at the end.
    ///
    /// # Errors
    /// A message that names the line.
    pub fn read_next(&mut self) -> Result<Option<Record>, String> {
        while self.read_line()? {
            if self.line.trim_ascii().is_empty() {
                continue;
            }
            let record = Record::parse(&self.line).map_err(|what| self.wrong(&what))?;
            if record.offset < self.last_offset {
                return Err(self.wrong("is earlier than the line before"));
            }
            self.last_offset = record.offset;
            self.records += 1;
            return Ok(Some(record));
        }
        Ok(None)
    }

    /// Returns to the first request.
    ///
    /// # Errors
    /// A message, if there is no request or if the file has changed.
    pub fn rewind(&mut self) -> Result<(), String> {
        if self.records == 0 {
            return Err(format!("manifest {}: holds no request", self.name));
        }
        self.lines
            .rewind()
            .map_err(|error| self.wrong(&error.to_string()))?;
        self.line_number = 0;
        self.last_offset = 0;
        self.read_head()
    }

    /// An error about the current line.
    pub fn wrong(&self, what: &str) -> String {
        format!("manifest {}, line {}: {what}", self.name, self.line_number)
    }

    fn read_head(&mut self) -> Result<(), String> {
        self.read_line()?;
        let head: Option<Value> = serde_json::from_slice(&self.line).ok();
        match head.as_ref().and_then(|head| head["schema"].as_str()) {
            Some(SCHEMA) => Ok(()),
            found => Err(self.wrong(&format!(
                "expected the schema {SCHEMA}, found {:?}",
                found.unwrap_or("none")
            ))),
        }
    }

    fn read_line(&mut self) -> Result<bool, String> {
        self.line.clear();
        self.line_number += 1;
        let read = self
            .lines
            .by_ref()
            .take(LONGEST_LINE_BYTES)
            .read_until(b'\n', &mut self.line);
        match read {
            Err(error) => Err(self.wrong(&error.to_string())),
            Ok(count) if count as u64 == LONGEST_LINE_BYTES && !self.line.ends_with(b"\n") => {
                Err(self.wrong("is too long"))
            }
            Ok(count) => Ok(count > 0),
        }
    }
}

impl Record {
    fn parse(line: &[u8]) -> Result<Self, String> {
        let value = serde_json::from_slice(line).map_err(|_| "is not JSON".to_owned())?;
        let record = Self::read(value, "").map_err(|error| error.to_string())?;
        if !is_path(&record.path) {
            return Err(format!(
                "has a path that cannot be sent as it is: {:?}",
                record.path
            ));
        }
        Ok(record)
    }
}

impl Read for Record {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let offset: f64 = fields.required("offset_seconds")?;
        if !(0.0..1e9).contains(&offset) {
            return Err(fields.wrong("offset_seconds", "must be at least 0"));
        }
        let range: Option<Vec<u64>> = fields.optional("range")?;
        // Fields of later versions are ignored: the request is the same.
        Ok(Self {
            offset: nanos(offset),
            path: fields.required("path")?,
            bytes: fields.optional("bytes")?,
            range: match range.as_deref() {
                None => None,
                Some(&[first, last]) if first <= last => Some(ByteRange { first, last }),
                Some(_) => return Err(fields.wrong("range", "must be [first, last]")),
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{Manifest, Record};
    use crate::clock::SECOND;
    use crate::mutations::Mutations;
    use crate::plan::ByteRange;
    use std::fs;
    use std::path::PathBuf;

    struct Temporary(PathBuf);

    impl Drop for Temporary {
        fn drop(&mut self) {
            fs::remove_file(&self.0).ok();
        }
    }

    fn written(name: &str, text: &str) -> Temporary {
        let file = format!("nginx-tune-manifest-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(file);
        fs::write(&path, text).unwrap();
        Temporary(path)
    }

    const HEAD: &str = r#"{"schema":"nginx-tune/manifest/1","requests":null,"paths":"kept"}"#;

    #[test]
    fn requests_come_in_their_order_and_again_after_a_rewind() {
        let lines = [
            HEAD,
            r#"{"offset_seconds":0.5,"path":"/a","bytes":10}"#,
            "",
            r#"{"offset_seconds":2,"path":"/b","bytes":null,"range":[5,9],"status":206}"#,
        ];
        let file = written("order", &lines.join("\n"));
        let mut manifest = Manifest::open(file.0.to_str().unwrap()).unwrap();
        for _ in 0..2 {
            let first = manifest.read_next().unwrap().unwrap();
            assert_eq!(
                first,
                Record {
                    offset: SECOND / 2,
                    path: "/a".into(),
                    bytes: Some(10),
                    range: None
                }
            );
            let second = manifest.read_next().unwrap().unwrap();
            assert_eq!(second.range, Some(ByteRange { first: 5, last: 9 }));
            assert_eq!((second.offset, second.bytes), (2 * SECOND, None));
            assert_eq!(manifest.read_next(), Ok(None));
            manifest.rewind().unwrap();
        }
    }

    #[test]
    fn mutated_manifests_are_read_or_refused() {
        let seeds = [
            format!("{HEAD}\n{{\"offset_seconds\":0.5,\"path\":\"/a\",\"bytes\":10}}\n"),
            format!("{HEAD}\n{{\"offset_seconds\":2,\"path\":\"/b\",\"range\":[5,9]}}\n\n"),
        ];
        let file = written("mutated", HEAD);
        let name = file.0.to_str().unwrap();
        let mut some = Mutations::of("manifests", 300);
        let mut read = 0;
        while some.again() {
            fs::write(&file.0, some.mutated(&seeds)).unwrap();
            let Ok(mut manifest) = Manifest::open(name) else {
                continue;
            };
            while let Ok(Some(record)) = manifest.read_next() {
                assert!(record.path.starts_with('/'));
                read += 1;
            }
            let _ = manifest.rewind();
        }
        assert!(read > 10 || some.is_alone());
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (name, line, words) in [
            ("json", "{", "line 2: is not JSON"),
            (
                "path",
                r#"{"offset_seconds":0,"path":"a b"}"#,
                "cannot be sent",
            ),
            ("missing", r#"{"path":"/"}"#, "offset_seconds is missing"),
            (
                "negative",
                r#"{"offset_seconds":-1,"path":"/"}"#,
                "at least 0",
            ),
            (
                "range",
                r#"{"offset_seconds":0,"path":"/","range":[2,1]}"#,
                "must be [first, last]",
            ),
            (
                "order",
                "{\"offset_seconds\":1,\"path\":\"/\"}\n{\"offset_seconds\":0.5,\"path\":\"/\"}",
                "line 3: is earlier",
            ),
            ("long", &"x".repeat(40_000), "line 2: is too long"),
        ] {
            let file = written(name, &format!("{HEAD}\n{line}\n"));
            let mut manifest = Manifest::open(file.0.to_str().unwrap()).unwrap();
            let error = loop {
                match manifest.read_next() {
                    Ok(Some(_)) => {}
                    Ok(None) => panic!("{name}: read to its end"),
                    Err(error) => break error,
                }
            };
            assert!(error.contains(words), "{error}");
        }
    }

    #[test]
    fn what_is_no_manifest_is_refused_when_opened() {
        let other = written("other", "{\"schema\":\"nginx-tune/facts/1\"}\n");
        let error = Manifest::open(other.0.to_str().unwrap()).unwrap_err();
        assert!(error.to_string().contains("found \"nginx-tune/facts/1\""));
        assert!(Manifest::open("/no/such/manifest").is_err());
        let empty = written("empty", &format!("{HEAD}\n"));
        let mut manifest = Manifest::open(empty.0.to_str().unwrap()).unwrap();
        assert_eq!(manifest.read_next(), Ok(None));
        assert!(manifest.rewind().unwrap_err().contains("holds no request"));
    }
}
