//! A latency distribution: an `HdrHistogram` of nanoseconds, three digits exact.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer, V2Serializer};
use serde_json::{Value, json};

use crate::clock::{MILLISECOND, Nanos, SECOND, seconds};

/// The finest difference that is kept.
const LOWEST: Nanos = MILLISECOND / 1_000;

/// Values above are recorded as this one.
const HIGHEST: Nanos = 3_600 * SECOND;

/// Significant decimal digits.
const DIGITS: u8 = 3;

/// A latency distribution.
#[derive(Debug, Clone)]
pub struct Distribution {
    histogram: Histogram<u32>,
    /// Exact, where the histogram has three digits.
    max: Nanos,
}

impl Distribution {
    /// An empty distribution.
    ///
    /// # Panics
    /// Never: the bounds are constants that the histogram takes.
    #[allow(clippy::missing_panics_doc, clippy::expect_used)]
    pub fn new() -> Self {
        Self {
            histogram: Histogram::new_with_bounds(LOWEST, HIGHEST, DIGITS)
                .expect("constant bounds"),
            max: 0,
        }
    }

    /// Adds one value.
    pub fn record(&mut self, value: Nanos) {
        self.max = self.max.max(value);
        self.histogram.saturating_record(value);
    }

    /// Adds the values of another one.
    pub fn add(&mut self, other: &Self) {
        self.max = self.max.max(other.max);
        // Both have the same bounds.
        let _ = self.histogram.add(&other.histogram);
    }

    /// Samples.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The value that a share of the samples does not pass.
    pub fn quantile(&self, share: f64) -> Option<Nanos> {
        (!self.histogram.is_empty()).then(|| self.histogram.value_at_quantile(share).min(self.max))
    }

    /// How many values lie above one.
    pub fn count_above(&self, value: Nanos) -> u64 {
        let above = self.histogram.iter_recorded();
        above
            .filter(|step| step.value_iterated_to() > value)
            .map(|step| step.count_since_last_iteration())
            .sum()
    }

    /// The largest value.
    pub fn max(&self) -> Option<Nanos> {
        (!self.histogram.is_empty()).then_some(self.max)
    }

    /// Forgets all values.
    pub fn clear(&mut self) {
        self.histogram.clear();
        self.max = 0;
    }

    /// The distribution for the results: `Latency` of the measurement document, in seconds.
    /// Quantiles are null with no sample.
    pub fn document(&self) -> Value {
        if self.histogram.is_empty() {
            return json!({"count": 0});
        }
        let at = |share| self.quantile(share).map(seconds);
        json!({
            "count": self.count(),
            "mean": self.histogram.mean() / SECOND as f64,
            "stdev": self.histogram.stdev() / SECOND as f64,
            "p50": at(0.5),
            "p90": at(0.9),
            "p99": at(0.99),
            "p999": at(0.999),
            "max": self.max().map(seconds),
            "histogram": self.text(),
        })
    }

    fn text(&self) -> String {
        let mut bytes = Vec::new();
        // Writing to memory fails only when a count is too large for the format; u32 is not.
        match V2Serializer::new().serialize(&self.histogram, &mut bytes) {
            Ok(_) => STANDARD.encode(bytes),
            Err(_) => String::new(),
        }
    }
}

impl Default for Distribution {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::Distribution;
    use crate::clock::{MILLISECOND, SECOND};
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;

    #[test]
    fn quantiles_have_three_digits() {
        let mut all = Distribution::new();
        for ms in 1..=1000 {
            all.record(ms * MILLISECOND);
        }
        for (share, ms) in [(0.5, 500.0), (0.9, 900.0), (0.99, 990.0), (1.0, 1000.0)] {
            let got = all.quantile(share).unwrap() as f64 / 1e6;
            assert!((got / ms - 1.0).abs() < 0.001, "{share}: {got}");
        }
        assert_eq!(all.max(), Some(SECOND));
        let mean = all.document()["mean"].as_f64().unwrap();
        assert!((mean / 0.5005 - 1.0).abs() < 0.001, "{mean}");
    }

    #[test]
    fn the_rank_of_a_quantile_is_exact() {
        for count in [10_u64, 100, 1000, 3000, 7000] {
            for (share, thousandths) in [(0.9, 900), (0.99, 990), (0.999, 999)] {
                let rank = (count * thousandths).div_ceil(1000);
                let mut all = Distribution::new();
                for number in 1..=count {
                    all.record(if number <= rank { MILLISECOND } else { SECOND });
                }
                let got = all.quantile(share).unwrap();
                assert!(got < 2 * MILLISECOND, "{share} of {count}: {got}");
            }
        }
    }

    #[test]
    fn an_empty_one_has_no_quantiles() {
        let empty = Distribution::new();
        assert_eq!((empty.quantile(0.5), empty.max()), (None, None));
        assert_eq!(empty.document(), serde_json::json!({"count": 0}));
    }

    #[test]
    fn it_reads_back_from_its_text() {
        let mut all = Distribution::new();
        for value in [1, 999, 123_456, 77 * SECOND, 4_000 * SECOND] {
            all.record(value);
        }
        let bytes = STANDARD.decode(all.text()).unwrap();
        let back: Histogram<u64> = Deserializer::new().deserialize(&mut &bytes[..]).unwrap();
        assert_eq!(back.len(), 5);
        for share in [0.1, 0.5, 0.7, 1.0] {
            let value = back.value_at_quantile(share);
            assert_eq!(value, all.histogram.value_at_quantile(share));
        }
    }

    #[test]
    fn adding_is_the_same_as_recording_together() {
        let (mut one, mut two, mut both) = (
            Distribution::new(),
            Distribution::new(),
            Distribution::new(),
        );
        for value in 0..10_000_u64 {
            let half = if value % 3 == 0 { &mut one } else { &mut two };
            half.record(value * 7_919);
            both.record(value * 7_919);
        }
        one.add(&two);
        assert_eq!(one.text(), both.text());
        assert_eq!(one.max(), both.max());
    }
}
