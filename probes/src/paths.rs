//! What is asked for: a pure function of seed, class and index.

use crate::chance::{Chance, Purpose};
use crate::plan::{PathKind, Paths};

/// Picks a path for each request of a class.
#[derive(Debug)]
pub struct Picker {
    choice: Choice,
    count: u64,
}

#[derive(Debug)]
enum Choice {
    Fixed,
    Uniform(Chance),
    /// Cumulative weights; the last is the total.
    Zipf(Chance, Vec<f64>),
    Once(Vec<u32>),
}

impl Picker {
    /// The picker of a class.
    pub fn new(paths: &Paths, seed: u64, class: &str) -> Self {
        let count = paths.paths.len() as u64;
        let choice = match paths.kind {
            PathKind::Fixed => Choice::Fixed,
            PathKind::Uniform => Choice::Uniform(Chance::new(seed, class, Purpose::Path)),
            PathKind::Zipf => {
                let exponent = paths.exponent.unwrap_or(1.0);
                let mut total = 0.0;
                let weights = (1..=count)
                    .map(|rank| {
                        total += (rank as f64).powf(-exponent);
                        total
                    })
                    .collect();
                Choice::Zipf(Chance::new(seed, class, Purpose::Path), weights)
            }
            PathKind::Once => {
                Choice::Once(shuffled(count, Chance::new(seed, class, Purpose::Shuffle)))
            }
        };
        Self { choice, count }
    }

    /// Which of the class's paths request `index` asks for.
    pub fn pick(&self, index: u64) -> usize {
        match &self.choice {
            Choice::Fixed => 0,
            Choice::Uniform(chance) => chance.below(index, self.count) as usize,
            Choice::Zipf(chance, weights) => {
                let total = weights.last().copied().unwrap_or_default();
                let point = chance.fraction(index) * total;
                weights
                    .partition_point(|&weight| weight <= point)
                    .min(weights.len() - 1)
            }
            Choice::Once(order) => order[(index % self.count) as usize] as usize,
        }
    }
}

/// Fisher–Yates.
fn shuffled(count: u64, chance: Chance) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count as u32).collect();
    for last in (1..order.len()).rev() {
        let other = chance.below(last as u64, last as u64 + 1) as usize;
        order.swap(last, other);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::Picker;
    use crate::plan::{PathKind, Paths};

    fn picker(kind: PathKind, count: usize, exponent: Option<f64>) -> Picker {
        let paths = Paths {
            kind,
            paths: (0..count).map(|i| format!("/{i}")).collect(),
            exponent,
            bytes: None,
        };
        Picker::new(&paths, 5, "c")
    }

    fn counts(picker: &Picker, count: usize, draws: u64) -> Vec<u64> {
        let mut counts = vec![0; count];
        for index in 0..draws {
            counts[picker.pick(index)] += 1;
        }
        counts
    }

    #[test]
    fn fixed_asks_for_the_one_path() {
        assert_eq!(counts(&picker(PathKind::Fixed, 1, None), 1, 9), [9]);
    }

    #[test]
    fn uniform_asks_for_all_alike() {
        let counts = counts(&picker(PathKind::Uniform, 50, None), 50, 100_000);
        let chi: f64 = counts
            .iter()
            .map(|&n| (n as f64 - 2_000.0).powi(2) / 2_000.0)
            .sum();
        // 49 degrees of freedom: 85.4 is the 0.1 % point.
        assert!(chi < 85.4, "{chi}");
    }

    #[test]
    fn zipf_falls_with_the_rank() {
        let counts = counts(&picker(PathKind::Zipf, 100, Some(1.0)), 100, 200_000);
        let harmonic: f64 = (1..=100).map(|k| 1.0 / f64::from(k)).sum();
        for rank in [1_usize, 2, 5, 20, 100] {
            let expected = 200_000.0 / (rank as f64 * harmonic);
            let seen = counts[rank - 1] as f64;
            assert!(
                (seen - expected).abs() < 4.5 * expected.sqrt(),
                "rank {rank}: {seen} for {expected}"
            );
        }
    }

    #[test]
    fn once_asks_for_each_before_any_again_and_not_in_order() {
        let picker = picker(PathKind::Once, 1000, None);
        assert!(counts(&picker, 1000, 1000).iter().all(|&n| n == 1));
        assert!(counts(&picker, 1000, 2000).iter().all(|&n| n == 2));
        assert!((0..1000).any(|index| picker.pick(index) != index as usize));
    }
}
