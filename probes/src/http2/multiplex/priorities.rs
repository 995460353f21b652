//! The priorities of streams as the tree of RFC 7540 (§5.3, §6.3). RFC 9113 deprecates it, but
//! nginx still sorts its frames by it.

use super::Multiplex;
use crate::http2::frame;
use crate::http2::manner::Place;

impl Multiplex {
    /// The five bytes of the priority of a stream that is opened now.
    pub(super) fn written(&self, place: &Place) -> [u8; 5] {
        let streams = self.streams.iter();
        let of_them = streams.filter(|it| place.depends_on.contains(&it.exchange.class));
        let newest = of_them.map(|it| it.number).max().unwrap_or(0);
        let [a, b, c, d] = (newest | (u32::from(place.exclusive) << 31)).to_be_bytes();
        [a, b, c, d, (place.weight - 1) as u8]
    }

    /// Sends the priority in a separate frame.
    pub(super) fn prioritise(&mut self, number: u32, said: [u8; 5]) {
        frame::begin(5, frame::PRIORITY, 0, number, &mut self.out);
        self.out.extend_from_slice(&said);
    }
}
