//! The three formats in which nginx logs a time, as milliseconds since 1970.

use super::values::{milliseconds, number, thousandths};

const MONTHS: [&[u8]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];
const LAST_MILLISECOND: i64 = 7_258_118_400_000;

/// Parses a time such as `20/Nov/2026:19:26:34 +0000`.
pub(crate) fn local_time(text: &[u8]) -> Option<i64> {
    if text.len() != 26
        || [2, 6].iter().any(|&at| text[at] != b'/')
        || [11, 14, 17].iter().any(|&at| text[at] != b':')
        || text[20] != b' '
    {
        return None;
    }
    let month = MONTHS.iter().position(|name| *name == &text[3..6])?;
    moment(
        [number(&text[7..11])?, month as i64 + 1, number(&text[..2])?],
        [
            number(&text[12..14])?,
            number(&text[15..17])?,
            number(&text[18..20])?,
        ],
        offset(&text[21..])?,
    )
}

/// Parses a time such as `2026-11-20T19:26:34+00:00`, with or without a fraction.
pub(crate) fn iso_time(text: &[u8]) -> Option<i64> {
    if text.len() < 20
        || [4, 7].iter().any(|&at| text[at] != b'-')
        || !matches!(text[10], b'T' | b' ')
        || [13, 16].iter().any(|&at| text[at] != b':')
    {
        return None;
    }
    let (fraction, zone) = match &text[19..] {
        [b'.', rest @ ..] => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if !(1..=9).contains(&digits) {
                return None;
            }
            rest.split_at(digits)
        }
        zone => (&[][..], zone),
    };
    let offset = match zone {
        b"Z" => 0,
        &[sign, h1, h2, b':', m1, m2] => offset(&[sign, h1, h2, m1, m2])?,
        zone => offset(zone)?,
    };
    let whole = moment(
        [
            number(&text[..4])?,
            number(&text[5..7])?,
            number(&text[8..10])?,
        ],
        [
            number(&text[11..13])?,
            number(&text[14..16])?,
            number(&text[17..19])?,
        ],
        offset,
    )?;
    Some(whole + thousandths(fraction))
}

/// Parses a time of `$msec`.
pub(crate) fn epoch_time(text: &[u8]) -> Option<i64> {
    milliseconds(text).filter(|&value| value < LAST_MILLISECOND)
}

/// Parses a time in any of the three formats.
pub(crate) fn any_time(text: &[u8]) -> Option<i64> {
    if text.contains(&b'/') {
        local_time(text)
    } else if text.contains(&b'-') {
        iso_time(text)
    } else {
        epoch_time(text)
    }
}

/// The seconds east of Greenwich of an offset such as `+0100`.
fn offset(text: &[u8]) -> Option<i64> {
    let (sign, digits) = text.split_first()?;
    if digits.len() != 4 {
        return None;
    }
    let seconds = number(&digits[..2])? * 3600 + number(&digits[2..])? * 60;
    match sign {
        b'+' => Some(seconds),
        b'-' => Some(-seconds),
        _ => None,
    }
}

fn moment(date: [i64; 3], clock: [i64; 3], offset: i64) -> Option<i64> {
    let [year, month, day] = date;
    let [hour, minute, second] = clock;
    let is_date =
        (1970..=2199).contains(&year) && (1..=12).contains(&month) && (1..=31).contains(&day);
    if !is_date || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let whole = days(year, month, day) * 86_400 + hour * 3600 + minute * 60 + second - offset;
    (whole >= 0).then_some(whole * 1000)
}

/// The days since 1970 of a date of the Gregorian calendar (Hinnant, chrono-Compatible Low-Level
/// Date Algorithms).
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let shifted = if month > 2 { month - 3 } else { month + 9 };
    let of_year = (153 * shifted + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}
