//! A latency distribution: an `HdrHistogram` of nanoseconds with three exact digits.
//!
//! A request that never finished counts with its age, a lower bound of its true value. So a
//! quantile at or above the youngest of these ages is also only a lower bound.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Serializer as _, V2DeflateSerializer};
use serde_json::{Map, Value, json};

use crate::clock::{MILLISECOND, NEVER, Nanos, SECOND, seconds};

/// The finest difference that is recorded.
const LOWEST: Nanos = MILLISECOND / 1_000;

/// The largest value; larger ones are recorded as this one.
const HIGHEST: Nanos = 3_600 * SECOND;

/// Significant decimal digits.
const DIGITS: u8 = 3;

/// The digits of distributions that exist in large numbers: they take a tenth of the memory.
const FEW_DIGITS: u8 = 2;

/// The reported quantiles.
const QUANTILES: [(&str, f64); 4] = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p999", 0.999)];

/// A latency distribution.
#[derive(Debug, Clone)]
pub struct Distribution {
    histogram: Histogram<u32>,
    /// The exact maximum, if the histogram has three digits.
    max: Nanos,
    /// The number of values that are lower bounds.
    censored: u64,
    /// The smallest of these.
    censored_from: Nanos,
}

impl Distribution {
    /// An empty distribution with three digits.
    pub fn new() -> Self {
        Self::of_digits(DIGITS)
    }

    /// An empty distribution with two digits.
    pub fn coarse() -> Self {
        Self::of_digits(FEW_DIGITS)
    }

    #[allow(clippy::expect_used)]
    fn of_digits(digits: u8) -> Self {
        Self {
            // Never fails: the bounds are valid constants.
            histogram: Histogram::new_with_bounds(LOWEST, HIGHEST, digits)
                .expect("constant bounds"),
            max: 0,
            censored: 0,
            censored_from: NEVER,
        }
    }

    /// Adds a value.
    pub fn record(&mut self, value: Nanos) {
        self.max = self.max.max(value);
        self.histogram.saturating_record(value);
    }

    /// Adds a value of which only a lower bound is known.
    pub fn record_at_least(&mut self, bound: Nanos) {
        self.record(bound);
        self.censored += 1;
        self.censored_from = self.censored_from.min(bound);
    }

    /// Adds the values of another distribution with the same digits.
    pub fn add(&mut self, other: &Self) {
        self.max = self.max.max(other.max);
        self.censored += other.censored;
        self.censored_from = self.censored_from.min(other.censored_from);
        // Both have the same bounds.
        let _ = self.histogram.add(&other.histogram);
    }

    /// The values, each at the end of its counter, with their counts.
    pub fn steps(&self) -> impl Iterator<Item = (Nanos, u32)> {
        let counters = self.histogram.iter_recorded();
        counters.map(|step| {
            let count = step.count_since_last_iteration() as u32;
            (step.value_iterated_to(), count)
        })
    }

    /// Adds values from `steps`; `max` is the largest of them.
    pub fn add_steps(&mut self, steps: &[(Nanos, u32)], max: Nanos) {
        self.max = self.max.max(max);
        for &(value, count) in steps {
            // Values of a distribution with the same bounds are within the bounds.
            let _ = self.histogram.record_n(value, count);
        }
    }

    /// The number of samples.
    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    /// The value that a share of the samples does not exceed.
    pub fn quantile(&self, share: f64) -> Option<Nanos> {
        (!self.histogram.is_empty()).then(|| self.histogram.value_at_quantile(share).min(self.max))
    }

    /// The number of samples above a value.
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

    /// The number of values that are lower bounds.
    pub fn censored(&self) -> u64 {
        self.censored
    }

    /// The smallest value that is a lower bound.
    pub fn censored_from(&self) -> Option<Nanos> {
        (self.censored > 0).then_some(self.censored_from)
    }

    /// Removes all values.
    pub fn clear(&mut self) {
        self.histogram.reset();
        self.max = 0;
        self.censored = 0;
        self.censored_from = NEVER;
    }

    /// The distribution as `Latency` of the measurement document, in seconds. Quantiles without a
    /// sample are null; those that are lower bounds are named in `at_least`.
    pub fn document(&self) -> Value {
        if self.histogram.is_empty() {
            return json!({"count": 0});
        }
        let mut document = Map::new();
        let mut bounds = Vec::new();
        let quantiles = QUANTILES.map(|(name, share)| (name, self.quantile(share)));
        for (name, value) in quantiles.into_iter().chain([("max", self.max())]) {
            document.insert(name.into(), value.map(seconds).into());
            // A counter spans a range of values, so a value that shares its counter with a bound is
            // a bound.
            if value.is_some_and(|value| self.censored > 0 && value >= self.censored_from) {
                bounds.push(name);
            }
        }
        document.insert("count".into(), self.count().into());
        document.insert(
            "mean".into(),
            (self.histogram.mean() / SECOND as f64).into(),
        );
        document.insert(
            "stdev".into(),
            (self.histogram.stdev() / SECOND as f64).into(),
        );
        document.insert("histogram".into(), self.text().into());
        if self.censored > 0 {
            document.insert("censored".into(), self.censored.into());
            let from = self.censored_from().map(seconds);
            document.insert("censored_from_seconds".into(), from.into());
            document.insert("at_least".into(), bounds.into());
        }
        document.into()
    }

    /// The histogram as text: version 2 of the encoding, deflated, in base64.
    pub fn text(&self) -> String {
        let mut bytes = Vec::new();
        // Writing to memory fails only for counts too large for the format, which a u32 never is.
        match V2DeflateSerializer::new().serialize(&self.histogram, &mut bytes) {
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
        let [mut one, mut two, mut both] = [(); 3].map(|()| Distribution::new());
        for value in 0..10_000_u64 {
            let half = if value % 3 == 0 { &mut one } else { &mut two };
            half.record(value * 7_919);
            both.record(value * 7_919);
        }
        one.add(&two);
        assert_eq!(one.text(), both.text());
        assert_eq!(one.max(), both.max());
    }

    #[test]
    fn quantiles_from_the_first_lower_bound_on_are_lower_bounds() {
        let mut all = Distribution::new();
        for _ in 0..985 {
            all.record(MILLISECOND);
        }
        for age in 1..=15 {
            all.record_at_least(age * SECOND);
        }
        let told = all.document();
        assert_eq!(told["count"], 1000);
        assert_eq!(told["censored"], 15);
        assert_eq!(told["censored_from_seconds"], 1.0);
        assert_eq!(told["at_least"], serde_json::json!(["p99", "p999", "max"]));
        all.clear();
        all.record(MILLISECOND);
        assert_eq!(all.document().get("at_least"), None);
    }
}
