//! A histogram log (`.hlog`): each second's distributions of each class, under tags.
//!
//! Threads side by side have one log: their parts of a second are added before it is written.
//!
//! The form is that of `HdrHistogram`'s interval logs, version 1.3, which its tools for Java,
//! Python and others read: a line for each tag `CLASS.METRIC` and second, whose histograms add
//! up to those of the result. A thread of its own writes them; the loop only swaps buffers. When
//! the disk is slow an interval becomes longer, and nothing is lost.
//!
//! Source: `HistogramLogWriter.java` and `HistogramLogReader.java` of `HdrHistogram`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::mem;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::clock::{Nanos, SECOND, seconds};
use crate::latencies::Latencies;
use crate::sys;

/// The unit of the log's `Interval_Max` column, milliseconds as other writers have it.
const MAX_UNIT: f64 = 1e6;

/// What a thread's classes took in one interval.
#[derive(Debug)]
struct Part {
    thread: usize,
    /// The second's end that it was cut at.
    boundary: Nanos,
    /// When it was cut, somewhat later.
    end: Nanos,
    is_last: bool,
    classes: Vec<Latencies>,
}

/// The writer of a histogram log.
#[derive(Debug)]
pub struct HistogramLog {
    thread: JoinHandle<io::Result<()>>,
}

/// What one thread of the probe hands to it.
#[derive(Debug)]
pub struct Feed {
    thread: usize,
    full: Sender<Part>,
    empty: Receiver<Vec<Latencies>>,
    totals: Receiver<Vec<Latencies>>,
}

impl HistogramLog {
    /// A log of classes with these names, of a run that starts now, and a feed for each of
    /// `threads` that record.
    ///
    /// # Errors
    /// Of writing the head of the log, and of starting the thread.
    pub fn start(file: File, names: Vec<String>, threads: usize) -> io::Result<(Self, Vec<Feed>)> {
        let mut output = BufWriter::new(file);
        write_head(&mut output, SystemTime::now())?;
        let (full, parts) = mpsc::channel::<Part>();
        let mut feeds = Vec::new();
        let mut ends = Vec::new();
        for thread in 0..threads {
            let (give_back, empty) = mpsc::channel();
            let (tell, totals) = mpsc::channel();
            // The receiver is about to live in the feed.
            let _ = give_back.send(blank(names.len()));
            ends.push((give_back, tell, blank(names.len())));
            feeds.push(Feed {
                thread,
                full: full.clone(),
                empty,
                totals,
            });
        }
        sys::hold_signals()?;
        let thread = thread::Builder::new()
            .name("histogram log".into())
            .spawn(move || {
                sys::run_after_all_others();
                let mut intervals = Intervals::new(output, names, threads);
                for mut part in parts {
                    let (give_back, tell, total) = &mut ends[part.thread];
                    for (sum, class) in total.iter_mut().zip(&part.classes) {
                        sum.add(class);
                    }
                    intervals.add(&part);
                    // At the end of the run nobody takes them back.
                    if part.is_last {
                        let _ = tell.send(mem::take(total));
                    } else {
                        part.classes.iter_mut().for_each(Latencies::clear);
                        let _ = give_back.send(part.classes);
                    }
                }
                intervals.finish()
            })?;
        Ok((Self { thread }, feeds))
    }

    /// Waits for the end of the writing; all feeds must have finished.
    ///
    /// # Errors
    /// What could not be written.
    pub fn finish(self) -> io::Result<()> {
        self.thread
            .join()
            .unwrap_or_else(|_| Err(io::Error::other("the thread that writes it has died")))
    }
}

impl Feed {
    /// Hands an interval that ends now to the writer, and takes empty buffers for the next one.
    /// While the writer is busy the interval goes on. `boundary` is the second's end that has
    /// come, which is one for all threads.
    pub fn cut<'a>(
        &mut self,
        boundary: Nanos,
        now: Nanos,
        classes: impl Iterator<Item = &'a mut Latencies>,
    ) {
        let Ok(mut parts) = self.empty.try_recv() else {
            return;
        };
        for (part, current) in parts.iter_mut().zip(classes) {
            mem::swap(part, current);
        }
        self.send(boundary, now, false, parts);
    }

    /// Hands over the last interval; gives back the sums of all of this thread's.
    pub fn finish(self, now: Nanos, last: Vec<Latencies>) -> Vec<Latencies> {
        let boundary = now.div_ceil(SECOND) * SECOND;
        self.send(boundary, now, true, last);
        self.totals.recv().unwrap_or_default()
    }

    fn send(&self, boundary: Nanos, end: Nanos, is_last: bool, classes: Vec<Latencies>) {
        // Its thread ends only after this sender.
        let _ = self.full.send(Part {
            thread: self.thread,
            boundary,
            end,
            is_last,
            classes,
        });
    }
}

/// What has come of a second.
#[derive(Debug)]
struct Interval {
    threads: usize,
    end: Nanos,
    classes: Vec<Latencies>,
}

/// Adds the threads' parts of each second and writes them in order. Where a thread was not cut at
/// a second's end, that second is written with the next at which all were.
#[derive(Debug)]
struct Intervals<W: Write> {
    output: W,
    names: Vec<String>,
    threads: usize,
    /// The last boundaries of the threads that have ended.
    ended: Vec<Nanos>,
    open: BTreeMap<Nanos, Interval>,
    /// Where the interval that is written next starts.
    start: Nanos,
    written: io::Result<()>,
}

impl<W: Write> Intervals<W> {
    fn new(output: W, names: Vec<String>, threads: usize) -> Self {
        Self {
            output,
            names,
            threads,
            ended: Vec::new(),
            open: BTreeMap::new(),
            start: 0,
            written: Ok(()),
        }
    }

    fn add(&mut self, part: &Part) {
        let interval = self.open.entry(part.boundary).or_insert_with(|| Interval {
            threads: 0,
            end: 0,
            classes: blank(self.names.len()),
        });
        interval.threads += 1;
        interval.end = interval.end.max(part.end);
        for (sum, class) in interval.classes.iter_mut().zip(&part.classes) {
            sum.add(class);
        }
        if part.is_last {
            self.ended.push(part.boundary);
        }
        while let Some(boundary) = self.complete() {
            let later = self.open.split_off(&(boundary + 1));
            let ripe = mem::replace(&mut self.open, later);
            self.write(ripe);
        }
    }

    /// The first boundary at which all threads were cut that had not ended before.
    fn complete(&self) -> Option<Nanos> {
        let whole = |(&boundary, interval): (&Nanos, &Interval)| {
            let gone = self.ended.iter().filter(|&&end| end < boundary).count();
            (interval.threads + gone >= self.threads).then_some(boundary)
        };
        self.open.iter().find_map(whole)
    }

    /// Writes seconds as one interval.
    fn write(&mut self, seconds: BTreeMap<Nanos, Interval>) {
        let mut sum: Option<Interval> = None;
        for interval in seconds.into_values() {
            match &mut sum {
                None => sum = Some(interval),
                Some(sum) => {
                    sum.end = sum.end.max(interval.end);
                    for (all, class) in sum.classes.iter_mut().zip(&interval.classes) {
                        all.add(class);
                    }
                }
            }
        }
        let Some(sum) = sum else { return };
        let span = self.start..sum.end.max(self.start);
        self.start = span.end;
        for (name, class) in self.names.iter().zip(&sum.classes) {
            if self.written.is_ok() {
                self.written = write_interval(&mut self.output, name, class, &span);
            }
        }
    }

    fn finish(mut self) -> io::Result<()> {
        let left = mem::take(&mut self.open);
        self.write(left);
        self.written.and_then(|()| self.output.flush())
    }
}

fn blank(classes: usize) -> Vec<Latencies> {
    (0..classes).map(|_| Latencies::default()).collect()
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
mod tests;
