//! The requested objects in a plan.

use serde_json::Value;

use super::LONGEST_TEXT_BYTES;
use crate::error::Error;
use crate::fields::{Fields, Read};

/// The way to choose the path of each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PathKind {
    /// Always the same path.
    Fixed,
    /// Any path, with equal probability.
    Uniform,
    /// By popularity: the path of rank k has the weight k^-exponent.
    Zipf,
    /// Each path once in shuffled order, then over again.
    Once,
    /// The requests of a manifest in their order, then over again.
    Manifest,
}

/// The requested objects.
#[derive(Debug, Clone)]
pub struct Paths {
    /// The way to choose a path.
    pub kind: PathKind,
    /// The paths, by popularity for `Zipf`; empty for a manifest.
    pub paths: Vec<String>,
    /// The Zipf exponent.
    pub exponent: Option<f64>,
    /// The length of the whole object, by path.
    pub bytes: Option<Vec<u64>>,
    /// By path, the local file to compare some bodies with; empty for none.
    pub files: Option<Vec<String>>,
    /// The manifest, for the kind `Manifest`.
    pub manifest: Option<String>,
}

/// A part of an object, by its first and last byte.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ByteRange {
    /// The first byte.
    pub first: u64,
    /// The last byte.
    pub last: u64,
}

impl ByteRange {
    /// The number of bytes in it.
    pub fn bytes(self) -> u64 {
        self.last - self.first + 1
    }
}

/// The requested part of each object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ranges {
    /// Always the same.
    Fixed(ByteRange),
    /// A number of bytes at a random offset.
    Random {
        /// The number of bytes; a smaller object is requested whole.
        bytes: u64,
    },
}

impl Paths {
    /// Checks the paths; returns the fault.
    pub(super) fn check(&self, ranges: Option<Ranges>) -> Result<(), String> {
        let ensure = |good: bool, message: &str| {
            if good {
                Ok(())
            } else {
                Err(message.to_owned())
            }
        };
        let by_manifest = self.kind == PathKind::Manifest;
        ensure(
            by_manifest == self.manifest.is_some(),
            "needs a manifest for paths of kind manifest, and has none for other kinds",
        )?;
        ensure(
            by_manifest == self.paths.is_empty(),
            "has no paths, or has both paths and a manifest",
        )?;
        ensure(
            !by_manifest || ranges.is_none(),
            "has its ranges in the manifest and can have no others",
        )?;
        ensure(
            u32::try_from(self.paths.len()).is_ok(),
            "has too many paths",
        )?;
        ensure(
            self.kind != PathKind::Fixed || self.paths.len() == 1,
            "is of kind fixed and has more than one path",
        )?;
        if let Some(bad) = self.paths.iter().find(|path| !is_path(path)) {
            return Err(format!("has a path that cannot be sent as it is: {bad:?}"));
        }
        if self.kind == PathKind::Zipf {
            ensure(
                self.exponent.is_some_and(|s| (0.0..=20.0).contains(&s)),
                "is of kind zipf and needs an exponent of 0 to 20",
            )?;
        }
        for (name, length) in [
            ("length list (bytes)", self.bytes.as_ref().map(Vec::len)),
            ("list of files", self.files.as_ref().map(Vec::len)),
        ] {
            if length.is_some_and(|length| length != self.paths.len()) {
                return Err(format!("has a {name} that differs in size from its paths"));
            }
        }
        if let Some(Ranges::Random { .. }) = ranges {
            let sizes = self.bytes.as_deref().unwrap_or_default();
            ensure(
                !sizes.is_empty() && sizes.iter().all(|&size| size > 0),
                "asks for random ranges and needs the length (bytes) of each path, above 0",
            )?;
        }
        Ok(())
    }
}

/// Whether a text is in the origin form of RFC 9112 §3.2.1, already percent-encoded.
pub fn is_path(text: &str) -> bool {
    text.starts_with('/')
        && text.len() <= LONGEST_TEXT_BYTES
        && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl Read for Paths {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let kind: String = fields.required("kind")?;
        let paths = Self {
            kind: match kind.as_str() {
                "fixed" => PathKind::Fixed,
                "uniform" => PathKind::Uniform,
                "zipf" => PathKind::Zipf,
                "once" => PathKind::Once,
                "manifest" => PathKind::Manifest,
                _ => {
                    let kinds = "must be fixed, uniform, zipf, once or manifest";
                    return Err(fields.wrong("kind", kinds));
                }
            },
            paths: fields.or("paths", Vec::new())?,
            exponent: fields.optional("exponent")?,
            bytes: fields.optional("bytes")?,
            files: fields.optional("files")?,
            manifest: fields.optional("manifest")?,
        };
        fields.end()?;
        Ok(paths)
    }
}

impl Read for Ranges {
    fn read(value: Value, place: &str) -> Result<Self, Error> {
        let mut fields = Fields::of(value, place)?;
        let kind: String = fields.required("kind")?;
        let first: Option<u64> = fields.optional("first")?;
        let last: Option<u64> = fields.optional("last")?;
        let bytes: Option<u64> = fields.optional("bytes")?;
        let ranges = match (kind.as_str(), first, last, bytes) {
            ("fixed", first, Some(last), None) if first.unwrap_or(0) <= last => {
                Self::Fixed(ByteRange {
                    first: first.unwrap_or(0),
                    last,
                })
            }
            ("fixed", ..) => return Err(fields.wrong("last", "must be at least first")),
            ("random", None, None, Some(bytes)) if bytes > 0 => Self::Random { bytes },
            ("random", ..) => return Err(fields.wrong("bytes", "must be above 0")),
            _ => return Err(fields.wrong("kind", "must be fixed or random")),
        };
        fields.end()?;
        Ok(ranges)
    }
}
