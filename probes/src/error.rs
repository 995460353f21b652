//! Errors that keep the probe from measuring: one line for the user, and an exit status.

use std::fmt;
use std::io;

/// The reason for no measurement.
#[derive(Debug)]
pub enum Error {
    /// The command line is wrong.
    Usage(String),
    /// The plan is wrong or exceeds its own limits.
    Plan(String),
    /// The guard rails do not permit the target.
    Refused(String),
    /// No file can be read past the page cache.
    Unreadable(String),
    /// A system call that the run needs failed.
    System(&'static str, io::Error),
}

impl Error {
    /// The exit status: 2 for what the caller can correct, 4 for what could not be measured.
    pub fn status(&self) -> u8 {
        match self {
            Self::Usage(_) | Self::Plan(_) | Self::Refused(_) => 2,
            Self::Unreadable(_) | Self::System(..) => 4,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(message)
            | Self::Plan(message)
            | Self::Refused(message)
            | Self::Unreadable(message) => formatter.write_str(message),
            Self::System(what, error) => write!(formatter, "{what}: {error}"),
        }
    }
}

impl std::error::Error for Error {}
