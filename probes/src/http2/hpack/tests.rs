use super::{Decoder, ENTRY_BYTES, Head, TABLE_BYTES};
use crate::http2::fault::Fault;
use crate::mutations::Mutations;

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|digit| *digit != b' ').collect();
    digits
        .chunks(2)
        .map(|pair| {
            let text = std::str::from_utf8(pair).expect("digits");
            u8::from_str_radix(text, 16).expect("hex")
        })
        .collect()
}

fn text(head: &Head) -> String {
    let lines: Vec<String> = head
        .fields()
        .map(|(name, value)| {
            format!(
                "{}: {}",
                String::from_utf8_lossy(name),
                String::from_utf8_lossy(value)
            )
        })
        .collect();
    lines.join("\n")
}

#[test]
fn the_responses_of_the_rfc_come_back_one_after_another() {
    // RFC 7541 appendix C.6, with Huffman codes; appendix C.5 has the same without. Its table of
    // 256 bytes is set by the first block here.
    let first = "3fe101 48826402 5885aec3771a4b 6196d07abe941054d444a8200595040b8166e082a62d1bff \
                 6e919d29ad171863c78f0b97c8e9ae82ae43d3";
    let second = "4883640eff c1 c0 bf";
    let third = "88 c1 6196d07abe941054d444a8200595040b8166e084a62d1bff c0 5a839bd9ab \
                 77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007";
    let (mut decoder, mut head) = (Decoder::new(), Head::default());
    decoder.decode(&bytes(first), &mut head).expect("a block");
    assert_eq!(
        text(&head),
        ":status: 302\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:21 GMT\n\
         location: https://www.example.com"
    );
    assert_eq!(decoder.bytes, 222);
    decoder.decode(&bytes(second), &mut head).expect("a block");
    assert!(text(&head).starts_with(":status: 307\ncache-control: private\n"));
    assert_eq!(decoder.bytes, 222, "the oldest entry went");
    decoder.decode(&bytes(third), &mut head).expect("a block");
    assert_eq!(
        text(&head),
        ":status: 200\ncache-control: private\ndate: Mon, 21 Oct 2013 20:13:22 GMT\n\
         location: https://www.example.com\ncontent-encoding: gzip\n\
         set-cookie: foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1"
    );
    assert_eq!(decoder.bytes, 215);
}

#[test]
fn what_is_no_block_is_refused() {
    for hex in [
        "80",                // index 0
        "be",                // index 62 of an empty table
        "ff ff ff ff ff 7f", // an endless number
        "48 82 64",          // a truncated string
        "48 81 ff",          // wrong padding
        "40 83 61",
        "3f e2 1f", // a table of 4097 bytes
        "88 20",    // a size update after a field
    ] {
        let refused = Decoder::new().decode(&bytes(hex), &mut Head::default());
        assert_eq!(refused, Err(Fault::Compression), "{hex}");
    }
}

#[test]
fn a_small_block_that_comes_to_much_is_refused() {
    let mut block = bytes("40 01 61 7f a1 1e");
    block.extend_from_slice(&[b'x'; 4000]);
    let (mut decoder, mut head) = (Decoder::new(), Head::default());
    decoder
        .decode(&block, &mut head)
        .expect("an entry of 4000 bytes");
    for (count, fault) in [(16, None), (17, Some(Fault::TooManyFields))] {
        let bomb = vec![0xbe; count];
        assert_eq!(decoder.decode(&bomb, &mut head).err(), fault, "{count}");
    }
    let many = vec![0x88; 129];
    assert_eq!(decoder.decode(&many, &mut head), Err(Fault::TooManyFields));
}

#[test]
fn an_entry_larger_than_the_table_empties_it() {
    let (mut decoder, mut head) = (Decoder::new(), Head::default());
    decoder
        .decode(&bytes("40 01 61 01 62"), &mut head)
        .expect("a field");
    assert_eq!(decoder.table.len(), 1);
    let mut large = bytes("40 01 61 7f a1 1f");
    large.extend_from_slice(&[b'x'; 4128]);
    decoder.decode(&large, &mut head).expect("a field");
    assert_eq!((decoder.table.len(), decoder.bytes), (0, 0));
    assert_eq!(decoder.decode(&[0xbe], &mut head), Err(Fault::Compression));
}

/// The table never exceeds its size, and its size is that of its entries.
#[test]
fn mutated_blocks_break_nothing() {
    let mut seeds = vec![
        bytes(
            "3fe101 48826402 5885aec3771a4b 6196d07abe941054d444a8200595040b8166e082a62d1bff \
             6e919d29ad171863c78f0b97c8e9ae82ae43d3",
        ),
        bytes("4883640eff c1 c0 bf"),
        bytes("88 0f0d023130 40016101 62 be 20"),
        bytes("88 1061 7f01 6100 7fe11f"),
        bytes("88 be bf c0 c1 c2"),
    ];
    let mut large = bytes("40 01 61 7f a1 1e");
    large.extend_from_slice(&[b'x'; 4000]);
    large.extend_from_slice(&[0xbe; 12]);
    seeds.push(large);
    let mut head = Head::default();
    let (mut good, mut refused) = (0, 0);
    let mut some = Mutations::of("hpack", 10_000);
    while some.again() {
        let mut decoder = Decoder::new();
        for _ in 0..=some.below(8) {
            let block = some.mutated(&seeds);
            let result = decoder.decode(&block, &mut head);
            let kept = decoder.table.iter();
            let kept: usize = kept.map(|(a, b)| a.len() + b.len() + ENTRY_BYTES).sum();
            assert_eq!(kept, decoder.bytes);
            assert!(kept <= decoder.most_bytes && decoder.most_bytes <= TABLE_BYTES);
            assert!(head.text.capacity() <= 256 * 1024, "{block:02x?}");
            if result.is_err() {
                refused += 1;
                break;
            }
            good += 1;
        }
    }
    assert!(good > 100 && refused > 100 || some.is_alone());
}
