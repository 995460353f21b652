//! What HTTP/2 and HTTP/3 share: requests on streams of connections that carry many at once.

mod block;
mod carriers;
mod ended;
mod head;
mod huffman;
mod literals;
mod tally;

pub use self::block::{Block, Coding};
pub use self::carriers::Carriers;
pub use self::ended::{End, Ended, Known, cut_short};
pub(crate) use self::head::{Head, Malformed, TooMany, read_head};
pub(crate) use self::literals::{Broken, integer, string};
pub use self::tally::Tally;
