//! Memory that `O_DIRECT` reads into.

use super::plan::ALIGNMENT_BYTES;

/// A buffer that begins at a multiple of the alignment.
#[derive(Debug)]
pub(super) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// A buffer of so many bytes.
    pub(super) fn new(length: usize) -> Self {
        let alignment = ALIGNMENT_BYTES as usize;
        let memory = vec![0; length + alignment];
        // The vector is never grown, so its memory stays where it is.
        let start = memory.as_ptr().addr().next_multiple_of(alignment) - memory.as_ptr().addr();
        Self {
            memory,
            start,
            length,
        }
    }

    /// Its first bytes.
    pub(super) fn first(&mut self, length: usize) -> &mut [u8] {
        &mut self.memory[self.start..self.start + length.min(self.length)]
    }
}

#[cfg(test)]
mod tests {
    use super::Buffer;

    #[test]
    fn it_begins_where_direct_reads_may() {
        for length in [4096, 5000, 1 << 20] {
            let mut buffer = Buffer::new(length);
            let bytes = buffer.first(usize::MAX);
            assert_eq!((bytes.as_ptr().addr() % 4096, bytes.len()), (0, length));
        }
    }
}
