//! The header blocks that HTTP/2 and HTTP/3 share.

mod block;
mod head;
mod huffman;
mod literals;

pub use self::block::{Block, Coding};
pub(crate) use self::head::{Head, Malformed, TooMany, read_head};
pub(crate) use self::literals::{Broken, integer, string};
