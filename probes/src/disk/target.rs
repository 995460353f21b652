//! The files to read: opened past the page cache, and laid end to end to choose offsets.

use std::fs::{File, OpenOptions};
use std::io::{self, Seek as _, SeekFrom};
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, OpenOptionsExt as _};
use std::time::Instant;

use super::buffer::Buffer;
use super::plan::{ALIGNMENT_BYTES, Plan};
use crate::error::Error;
use crate::sys;

/// Descriptors reserved for everything but the files.
const SPARE_DESCRIPTORS: u64 = 64;

/// A size below which the data may fit into the disk's own cache.
const SMALL_BYTES: u64 = 256 << 20;

/// File systems in memory: since Linux 6.6 they accept `O_DIRECT`, but still read from memory.
const MEMORY_FILE_SYSTEMS: [(i64, &str); 3] = [
    (0x0102_1994, "tmpfs"),
    (0x8584_58f6, "ramfs"),
    (0x9584_58f6, "hugetlbfs"),
];

/// The files, the largest first.
#[derive(Debug)]
pub struct Target {
    files: Vec<(File, u64)>,
    asked: usize,
    late: bool,
    first_error: Option<String>,
}

/// An offset in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The index of the file.
    pub file: usize,
    /// The offset at which the read begins.
    pub offset: u64,
}

impl Target {
    /// Opens the plan's files that can be read past the page cache.
    ///
    /// # Errors
    /// `Error::Unreadable` if there is none, with the reason for the first file.
    pub fn open(plan: &Plan) -> Result<Self, Error> {
        let limit = sys::raise_descriptor_limit(plan.paths.len() as u64 + SPARE_DESCRIPTORS)
            .map_err(|error| Error::System("limit of open files", error))?;
        let most = limit.saturating_sub(SPARE_DESCRIPTORS) as usize;
        let started = Instant::now();
        let mut target = Self {
            files: Vec::new(),
            asked: plan.paths.len(),
            late: false,
            first_error: None,
        };
        for path in plan.paths.iter().take(most) {
            match open(path) {
                Ok(opened) => target.files.push(opened),
                Err(reason) => {
                    target
                        .first_error
                        .get_or_insert(format!("{path}: {reason}"));
                }
            }
            if started.elapsed().as_secs_f64() > plan.open_seconds && !target.files.is_empty() {
                target.late = true;
                break;
            }
        }
        if target.files.is_empty() {
            let reason = target
                .first_error
                .unwrap_or_else(|| "no file may be opened".into());
            return Err(Error::Unreadable(reason));
        }
        target
            .files
            .sort_by_key(|&(_, bytes)| std::cmp::Reverse(bytes));
        Ok(target)
    }

    /// The number of files.
    pub fn files(&self) -> usize {
        self.files.len()
    }

    /// The size of all files in bytes.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|&(_, bytes)| bytes).sum()
    }

    /// Flags about the files.
    pub fn flags(&self) -> Vec<String> {
        let mut flags = Vec::new();
        if self.files() < self.asked {
            let reason = match &self.first_error {
                Some(error) => format!(" ({error})"),
                None if self.late => " (the time for opening ran out)".into(),
                None => " (limit of open files)".into(),
            };
            let left = self.asked - self.files();
            flags.push(format!("left_out: {left} of {} files{reason}", self.asked));
        }
        if self.bytes() < SMALL_BYTES {
            flags.push(format!(
                "small: {} MiB are read over and over: a cache of the disk may answer",
                self.bytes() >> 20
            ));
        }
        flags
    }

    /// The possible offsets of reads of a size.
    pub fn places(&self, read_bytes: u64) -> Places {
        let mut end = 0;
        let ends = self.files.iter().map(|&(_, bytes)| {
            end += bytes.div_ceil(read_bytes);
            end
        });
        Places {
            ends: ends.collect(),
            read_bytes,
        }
    }

    /// Reads at an offset; returns the number of bytes, which is smaller at the end of a file.
    pub fn read(&self, place: Place, into: &mut [u8]) -> io::Result<usize> {
        self.files[place.file].0.read_at(into, place.offset)
    }
}

/// All possible offsets of reads of one size, numbered over all files.
#[derive(Debug)]
pub struct Places {
    ends: Vec<u64>,
    read_bytes: u64,
}

impl Places {
    /// The number of offsets, at least 1.
    pub fn count(&self) -> u64 {
        self.ends.last().copied().unwrap_or(0)
    }

    /// The offset with a number below the count.
    pub fn place(&self, number: u64) -> Place {
        let file = self.ends.partition_point(|&end| end <= number);
        let before = if file == 0 { 0 } else { self.ends[file - 1] };
        Place {
            file,
            offset: (number - before) * self.read_bytes,
        }
    }
}

/// Opens a file past the page cache; returns it with its size, or the reason for the failure.
fn open(path: &str) -> Result<(File, u64), String> {
    let file = open_direct(path).map_err(|error| match error.raw_os_error() {
        Some(libc::EINVAL) => "its file system refuses reads past the page cache".into(),
        Some(libc::ELOOP) => "a symbolic link".into(),
        _ => reason(&error),
    })?;
    let kind = file.metadata().map_err(|error| reason(&error))?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return Err("neither a regular file nor a block device".into());
    }
    let magic = sys::filesystem_magic(&file).map_err(|error| reason(&error))?;
    let in_memory = MEMORY_FILE_SYSTEMS
        .iter()
        .find(|&&(number, _)| number == magic);
    if let Some((_, name)) = in_memory.filter(|_| kind.is_file()) {
        return Err(format!("{name} keeps its files in memory"));
    }
    // For a block device, the metadata says 0.
    let bytes = (&file)
        .seek(SeekFrom::End(0))
        .map_err(|error| reason(&error))?;
    if bytes < ALIGNMENT_BYTES {
        return Err("too small to be read in blocks".into());
    }
    let mut buffer = Buffer::new(ALIGNMENT_BYTES as usize);
    match file.read_at(buffer.first(usize::MAX), 0) {
        Ok(0) => Err("empty".into()),
        Ok(_) => Ok((file, bytes)),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
            Err("its file system refuses reads past the page cache".into())
        }
        Err(error) => Err(reason(&error)),
    }
}

fn open_direct(path: &str) -> io::Result<File> {
    // Non-blocking: opening a FIFO would wait for a writer.
    let flags = libc::O_DIRECT | libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_NOCTTY;
    let open = |flags| OpenOptions::new().read(true).custom_flags(flags).open(path);
    match open(flags | libc::O_NOATIME) {
        // A process can open only its own files without updating access times.
        Err(error) if error.raw_os_error() == Some(libc::EPERM) => open(flags),
        opened => opened,
    }
}

/// The system's text for an error, without the number.
fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::{Place, Places};

    #[test]
    fn places_run_through_all_files() {
        // Two reads in the first file, none in the second, three in the third.
        let places = Places {
            ends: vec![2, 2, 5],
            read_bytes: 4096,
        };
        assert_eq!(places.count(), 5);
        let all: Vec<_> = (0..5).map(|number| places.place(number)).collect();
        let place = |file, block: u64| Place {
            file,
            offset: block * 4096,
        };
        assert_eq!(
            all,
            [
                place(0, 0),
                place(0, 1),
                place(2, 0),
                place(2, 1),
                place(2, 2)
            ]
        );
    }
}
