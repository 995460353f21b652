use super::{Incoming, Peer};
use crate::http3::fault::Fault;
use crate::mutations::Mutations;

/// The result of streams that a server opens one after another.
fn heard(streams: &[&[u8]], piece: usize) -> Result<Peer, Fault> {
    let mut peer = Peer::default();
    for stream in streams {
        let mut incoming = Incoming::default();
        for part in stream.chunks(piece) {
            incoming.feed(part, &mut peer)?;
        }
    }
    Ok(peer)
}

const SETTINGS: &[u8] = b"\0\x04\x00";

#[test]
fn what_servers_say_is_heard_in_pieces_of_any_size() {
    // As nginx sends them: settings, then a GOAWAY; a stream of a reserved type; both streams of
    // QPACK.
    let control = b"\0\x04\x0a\x01\x50\x00\x07\x10\x06\x80\x01\x00\x00\x21\x02ab\x07\x02\x40\x08";
    for piece in 1..=control.len() {
        let peer = heard(
            &[control, b"\x21junk", b"\x02\x20", b"\x03\x44\x7f\x80\x01"],
            piece,
        );
        assert_eq!(peer.expect("all good").goaway, Some(8), "{piece}");
    }
    let less = [SETTINGS, b"\x07\x01\x08\x07\x01\x04"].concat();
    assert_eq!(heard(&[&less], 9).expect("good").goaway, Some(4));
}

#[test]
fn what_a_server_may_not_say_ends_the_connection() {
    let after = |frame: &[u8]| [SETTINGS, frame].concat();
    for (stream, fault) in [
        (b"\0\x07\x01\x00".to_vec(), Fault::MissingSettings),
        (b"\0\x21\x00".to_vec(), Fault::MissingSettings),
        (after(b"\x04\x00"), Fault::FrameUnexpected),
        (after(b"\x00\x01a"), Fault::FrameUnexpected),
        (after(b"\x01\x00"), Fault::FrameUnexpected),
        (after(b"\x05\x00"), Fault::FrameUnexpected),
        (after(b"\x0d\x01\x00"), Fault::FrameUnexpected),
        (after(b"\x06\x00"), Fault::FrameUnexpected),
        (after(b"\x03\x01\x00"), Fault::Id),
        (after(b"\x07\x01\x02"), Fault::Id),
        (after(b"\x07\x01\x04\x07\x01\x08"), Fault::Id),
        (after(b"\x07\x00"), Fault::Frame),
        (after(b"\x07\x02\x04\x04"), Fault::Frame),
        (b"\0\x04\x01\x01".to_vec(), Fault::Frame),
        (b"\0\x04\x02\x02\x00".to_vec(), Fault::Settings),
        (b"\0\x04\x04\x01\x00\x01\x00".to_vec(), Fault::Settings),
        (b"\0\x04\x80\x01\x00\x01".to_vec(), Fault::ExcessiveLoad),
        (after(&b"\x21\x00".repeat(10_001)), Fault::ExcessiveLoad),
        (b"\x01\x00".to_vec(), Fault::Id),
        (b"\x02\xc0\x01a".to_vec(), Fault::EncoderStream),
        (b"\x02\x3f\x01".to_vec(), Fault::EncoderStream),
        (b"\x03\x80".to_vec(), Fault::DecoderStream),
        (b"\x03\x01".to_vec(), Fault::DecoderStream),
    ] {
        let found = heard(&[&stream], 99).err();
        assert_eq!(
            found,
            Some(fault),
            "{:02x?}",
            &stream[..stream.len().min(20)]
        );
    }
    assert_eq!(
        heard(&[SETTINGS, SETTINGS], 9).err(),
        Some(Fault::StreamCreation)
    );
}

#[test]
fn the_streams_that_last_may_not_end() {
    for (stream, fault) in [
        (&b""[..], None),
        (b"\x21", None),
        (b"\0", Some(Fault::ClosedCriticalStream)),
        (b"\x02", Some(Fault::ClosedCriticalStream)),
        (b"\x03", Some(Fault::ClosedCriticalStream)),
    ] {
        let mut incoming = Incoming::default();
        incoming.feed(stream, &mut Peer::default()).expect("good");
        assert_eq!(incoming.end().err(), fault, "{stream:02x?}");
    }
}

#[test]
fn mutated_streams_never_panic() {
    let seeds: [&[u8]; 3] = [
        b"\0\x04\x0a\x01\x50\x00\x07\x10\x06\x80\x01\x00\x00\x21\x02ab\x07\x02\x40\x08\x07\x01\x04",
        b"\x03\x44\x7f\x80\x01",
        b"\x40\x21some bytes",
    ];
    let mut some = Mutations::of("streams of a server", 20_000);
    let (mut faults, mut good) = (0, 0);
    while some.again() {
        let stream = some.mutated(&seeds);
        let (mut incoming, mut peer) = (Incoming::default(), Peer::default());
        let heard = some
            .pieces(&stream)
            .into_iter()
            .try_for_each(|part| incoming.feed(part, &mut peer));
        match heard {
            Ok(()) => good += 1,
            Err(_) => faults += 1,
        }
        assert!(peer.goaway.is_none_or(|first| first % 4 == 0));
        assert!(incoming.kept_bytes() <= 65 * 1024, "{stream:02x?}");
    }
    assert!(faults > 100 && good > 100 || some.is_alone());
}
