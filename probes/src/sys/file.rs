//! System calls on files.

use std::fs::File;
use std::io;
use std::mem;
use std::os::fd::AsRawFd as _;

use super::checked;

/// The magic number of a file's file system (statfs(2), `f_type`).
pub fn filesystem_magic(file: &File) -> io::Result<i64> {
    // SAFETY: fstatfs fills the one live statfs; zeroed is a valid value of it.
    let status = unsafe {
        let mut status: libc::statfs = mem::zeroed();
        checked(libc::fstatfs(file.as_raw_fd(), &raw mut status))?;
        status
    };
    #[allow(clippy::useless_conversion, clippy::unnecessary_cast)] // its type is the platform's
    Ok(status.f_type as i64)
}
