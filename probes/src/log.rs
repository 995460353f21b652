//! A histogram log (`.hlog`): each second's distributions of each class, under tags.
//!
//! The form is that of `HdrHistogram`'s interval logs, version 1.3, which its tools for Java,
//! Python and others read: a line for each tag `CLASS.METRIC` and second, whose histograms add
//! up to those of the result. A thread of its own writes them; the loop only swaps buffers. When
//! the disk is slow an interval becomes longer, and nothing is lost.
//!
//! Source: `HistogramLogWriter.java` and `HistogramLogReader.java` of `HdrHistogram`.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::clock::{Nanos, seconds};
use crate::latencies::Latencies;
use crate::sys;

/// The unit of the log's `Interval_Max` column, milliseconds as other writers have it.
const MAX_UNIT: f64 = 1e6;

/// What a class's requests took in one interval.
#[derive(Debug)]
struct Interval {
    span: std::ops::Range<Nanos>,
    classes: Vec<Latencies>,
}

/// Writes histogram logs.
#[derive(Debug)]
pub struct HistogramLog {
    full: Sender<Interval>,
    empty: Receiver<Vec<Latencies>>,
    /// Where the interval that is being recorded starts.
    start: Nanos,
    thread: JoinHandle<(Vec<Latencies>, io::Result<()>)>,
}

impl HistogramLog {
    /// A log of classes with these names, of a run that starts now.
    ///
    /// # Errors
    /// Of writing the head of the log, and of starting the thread.
    pub fn start(file: File, names: Vec<String>) -> io::Result<Self> {
        let mut output = BufWriter::new(file);
        write_head(&mut output, SystemTime::now())?;
        let (full, intervals) = mpsc::channel::<Interval>();
        let (give_back, empty) = mpsc::channel();
        let set = || {
            names
                .iter()
                .map(|_| Latencies::default())
                .collect::<Vec<_>>()
        };
        let mut totals: Vec<Latencies> = set();
        // The receiver lives in this very function.
        let _ = give_back.send(set());
        let thread = thread::Builder::new()
            .name("histogram log".into())
            .spawn(move || {
                sys::run_after_all_others();
                let mut written = Ok(());
                for Interval { span, mut classes } in intervals {
                    for ((name, part), total) in names.iter().zip(&mut classes).zip(&mut totals) {
                        total.add(part);
                        if written.is_ok() {
                            written = write_interval(&mut output, name, part, &span);
                        }
                        part.clear();
                    }
                    // At the end of the run nobody takes it back.
                    let _ = give_back.send(classes);
                }
                let written = written.and_then(|()| output.flush());
                (totals, written)
            })?;
        Ok(Self {
            full,
            empty,
            start: 0,
            thread,
        })
    }

    /// Hands an interval that ends now to the writer, and takes empty buffers for the next one.
    /// While the writer is busy the interval goes on.
    pub fn cut<'a>(&mut self, now: Nanos, classes: impl Iterator<Item = &'a mut Latencies>) {
        let Ok(mut parts) = self.empty.try_recv() else {
            return;
        };
        for (part, current) in parts.iter_mut().zip(classes) {
            std::mem::swap(part, current);
        }
        self.send(now, parts);
    }

    /// Writes the last interval; gives back the sums of all of them.
    ///
    /// # Errors
    /// What could not be written; the sums hold nevertheless.
    pub fn finish(mut self, now: Nanos, last: Vec<Latencies>) -> (Vec<Latencies>, io::Result<()>) {
        self.send(now, last);
        drop(self.full);
        self.thread.join().unwrap_or_else(|_| {
            let gone = io::Error::other("the thread that writes it has died");
            (Vec::new(), Err(gone))
        })
    }

    fn send(&mut self, now: Nanos, classes: Vec<Latencies>) {
        let span = self.start..now;
        self.start = now;
        // Its thread ends only after this sender.
        let _ = self.full.send(Interval { span, classes });
    }
}

fn write_head(output: &mut impl Write, start: SystemTime) -> io::Result<()> {
    let since_1970 = start.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
    let start = since_1970.as_secs_f64();
    writeln!(output, "#[nginx-tune-probe {}]", env!("CARGO_PKG_VERSION"))?;
    writeln!(output, "#[Histogram log format version 1.3]")?;
    writeln!(output, "#[StartTime: {start:.3} (seconds since epoch)]")?;
    writeln!(output, "#[BaseTime: {start:.3} (seconds since epoch)]")?;
    writeln!(
        output,
        "\"StartTimestamp\",\"Interval_Length\",\"Interval_Max\",\"Interval_Compressed_Histogram\""
    )
}

fn write_interval(
    output: &mut impl Write,
    class: &str,
    part: &Latencies,
    span: &std::ops::Range<Nanos>,
) -> io::Result<()> {
    for (metric, distribution) in part.named() {
        let Some(max) = distribution.max() else {
            continue;
        };
        writeln!(
            output,
            "Tag={}.{metric},{:.3},{:.3},{:.3},{}",
            tag(class),
            seconds(span.start),
            seconds(span.end - span.start),
            max as f64 / MAX_UNIT,
            distribution.text()
        )?;
    }
    output.flush()
}

/// A class's name as a tag can hold it: the log has no quoting.
fn tag(class: &str) -> String {
    let plain = |character: char| {
        if character == ',' || character.is_whitespace() || character.is_control() {
            '_'
        } else {
            character
        }
    };
    class.chars().map(plain).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};

    use super::{HistogramLog, tag};
    use crate::clock::{MILLISECOND, SECOND};
    use crate::latencies::Latencies;
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    #[test]
    fn the_intervals_add_up_to_the_total() {
        let path = std::env::temp_dir().join(format!("probe-log-{}.hlog", std::process::id()));
        let file = File::create(&path).unwrap();
        let mut log = HistogramLog::start(file, vec!["hot".into(), "co ld".into()]).unwrap();
        let mut current: Vec<Latencies> = vec![Latencies::default(), Latencies::default()];
        let mut all = Latencies::default();
        for second in 1..=5_u64 {
            for value in 0..1000 {
                current[0].response.record(value * second * 977);
                all.response.record(value * second * 977);
            }
            current[1].ttfb.record_at_least(second * MILLISECOND);
            log.cut(second * SECOND, current.iter_mut());
        }
        let (totals, written) = log.finish(6 * SECOND, current);
        written.unwrap();
        assert_eq!(totals[0].response.text(), all.response.text());
        assert_eq!(totals[0].response.max(), all.response.max());
        assert_eq!(totals[1].ttfb.censored(), 5);

        let text = fs::read(&path).unwrap();
        fs::remove_file(path).unwrap();
        let mut sum = Histogram::<u64>::new(3).unwrap();
        let mut end = 0.0;
        for entry in IntervalLogIterator::new(&text) {
            if let LogEntry::Interval(line) = entry.unwrap() {
                let name = line.tag().unwrap().as_str().to_owned();
                assert!(
                    ["hot.response", "co_ld.ttfb"].contains(&name.as_str()),
                    "{name}"
                );
                if name == "hot.response" {
                    assert!((line.start_timestamp().as_secs_f64() - end).abs() < 1e-6);
                    end += line.duration().as_secs_f64();
                    let bytes = STANDARD.decode(line.encoded_histogram()).unwrap();
                    let part: Histogram<u64> =
                        Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
                    sum.add(part).unwrap();
                }
            }
        }
        assert_eq!(sum.len(), 5000);
        assert_eq!(sum.value_at_quantile(0.99), {
            let told = all.response.quantile(0.99).unwrap();
            sum.highest_equivalent(told)
        });
    }

    #[test]
    fn a_tag_has_no_comma_and_no_space() {
        assert_eq!(tag("a,b c\n"), "a_b_c_");
    }
}
