//! Buffers for `O_DIRECT` reads.

use super::plan::ALIGNMENT_BYTES;

/// A buffer with an aligned beginning.
#[derive(Debug)]
pub(super) struct Buffer {
    memory: Vec<u8>,
    start: usize,
    length: usize,
}

impl Buffer {
    /// A buffer of `length` bytes.
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

    /// The first `length` bytes.
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
