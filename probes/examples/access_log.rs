//! Writes an access log as a busy file server would, from a seed: what `benchmarks/learn_speed.py`
//! reads. Combined, then `$msec $request_time $connection $connection_requests`.
//!
//! Usage: `access_log LINES [OBJECTS [EXPONENT [SEED]]]`

use std::io::{self, BufWriter, Write as _};

use nginx_tune_probe::chance::{Chance, Purpose};

const FIRST_SECOND: f64 = 1_790_000_000.0;
const REQUESTS_PER_SECOND: f64 = 2_000.0;
const MONTHS: [&str; 12] = [
    "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
];
const AGENTS: [&str; 4] = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64) AppleWebKit/537.36 Chrome/138.0 Safari/537.36",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148",
    "curl/8.14.1",
];

fn main() -> io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let mut next = |default: f64| {
        let text = arguments.next();
        text.map_or(default, |text| text.parse().expect("a number"))
    };
    let lines = next(1e6) as u64;
    let (objects, exponent, seed) = (next(1e6), next(0.8), next(1.0) as u64);
    let power = 1.0 - exponent;
    // Each rank is the integral around it: within 4 % of Zipf at the first, 1 % from the third.
    let least = 0.5_f64.powf(power);
    let most = (objects + 0.5).powf(power) - least;
    let chance = Chance::new(seed, "access log", Purpose::Path);
    let mut output = BufWriter::with_capacity(1 << 20, io::stdout().lock());
    let mut time = FIRST_SECOND;
    for line in 0..lines {
        let draw = |number| chance.fraction(line * 8 + number);
        time -= (1.0 - draw(0)).ln() / REQUESTS_PER_SECOND;
        let object = (most * draw(1) + least).powf(1.0 / power).round() as u64;
        let size = 500 + object.wrapping_mul(2_654_435_761) % 100_003;
        let (connection, nth) = (line / 8, line % 8 + 1);
        let status = match draw(2) {
            part if part < 0.92 => 200,
            part if part < 0.97 => 304,
            _ => 404,
        };
        let sent = if status == 200 { size } else { 0 };
        let seconds = time as u64;
        let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
        let (year, month, day) = date(seconds / 86_400);
        writeln!(
            output,
            "203.0.{}.{} - - [{day:02}/{month}/{year}:{hour:02}:{minute:02}:{second:02} +0000] \
             \"GET /assets/{:02x}/{object:08x}.bin?v={line} HTTP/1.1\" {status} {sent} \
             \"https://www.example.org/page/{}\" \"{}\" {time:.3} {:.3} {connection} {nth}",
            (connection >> 8) & 255,
            connection & 255,
            object & 255,
            object % 977,
            AGENTS[(connection % 4) as usize],
            -(1.0 - draw(3)).ln() * 0.05,
        )?;
    }
    output.flush()
}

/// The date of a day since 1970 (Hinnant, chrono-Compatible Low-Level Date Algorithms).
fn date(days: u64) -> (u64, &'static str, u64) {
    let (era, of_era) = ((days + 719_468) / 146_097, (days + 719_468) % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = (shifted + 2) % 12;
    (
        year + era * 400 + u64::from(month < 2),
        MONTHS[month as usize],
        day,
    )
}
