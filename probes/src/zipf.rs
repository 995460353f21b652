//! Popularity by rank: the object of rank k has the weight k^-s.
//!
//! Ranks are drawn by rejection-inversion in constant time and without a table, however many
//! objects there are. Source: Hörmann and Derflinger, Rejection-inversion to generate variates from
//! monotone discrete distributions, ACM TOMACS 6(3), 1996.

use crate::chance::Chance;

/// A Zipf distribution over the ranks 1 to n.
#[derive(Debug, Clone)]
pub struct Zipf {
    ranks: f64,
    exponent: f64,
    /// The integral of the weight from 1, at both ends of the range of draws.
    low: f64,
    high: f64,
    /// The distance from x within which a rank is accepted without a further test.
    surely_inside: f64,
}

impl Zipf {
    /// The distribution over `ranks` ranks.
    pub fn new(ranks: u64, exponent: f64) -> Self {
        let mut zipf = Self {
            ranks: ranks as f64,
            exponent,
            low: 0.0,
            high: 0.0,
            surely_inside: 0.0,
        };
        zipf.low = zipf.integral(1.5) - 1.0;
        zipf.high = zipf.integral(zipf.ranks + 0.5);
        zipf.surely_inside = 2.0 - zipf.inverse(zipf.integral(2.5) - zipf.weight(2.0));
        zipf
    }

    /// The rank, from 1, of request `index`.
    pub fn rank(&self, chance: &Chance, index: u64) -> u64 {
        for attempt in 0.. {
            let fraction = chance.fraction_again(index, attempt);
            let area = self.high + fraction * (self.low - self.high);
            let x = self.inverse(area);
            let rank = x.round().clamp(1.0, self.ranks);
            if rank - x <= self.surely_inside
                || area >= self.integral(rank + 0.5) - self.weight(rank)
            {
                return rank as u64;
            }
        }
        1
    }

    fn weight(&self, x: f64) -> f64 {
        (-self.exponent * x.ln()).exp()
    }

    /// (x^(1-s) - 1) / (1-s), or its limit ln x for s = 1.
    fn integral(&self, x: f64) -> f64 {
        let log = x.ln();
        let power = (1.0 - self.exponent) * log;
        if power.abs() < 1e-8 {
            log * (1.0 + power / 2.0)
        } else {
            log * power.exp_m1() / power
        }
    }

    fn inverse(&self, area: f64) -> f64 {
        // Rounding may exceed the end of the integral's range.
        let part = (area * (1.0 - self.exponent)).max(-1.0);
        let scale = if part.abs() < 1e-8 {
            1.0 - part / 2.0
        } else {
            part.ln_1p() / part
        };
        (scale * area).exp()
    }
}

#[cfg(test)]
mod tests {
    use super::Zipf;
    use crate::chance::{Chance, Purpose};

    #[test]
    fn ranks_have_the_weight_that_the_law_gives_them() {
        for (ranks, exponent) in [
            (1, 1.0),
            (2, 0.0),
            (10, 0.0),
            (30, 0.6),
            (50, 0.999_999_999),
            (50, 1.0),
            (100, 1.2),
            (40, 3.0),
        ] {
            let zipf = Zipf::new(ranks, exponent);
            let chance = Chance::new(11, "zipf", Purpose::Path);
            let mut counts = vec![0_u64; ranks as usize];
            let draws = 200_000;
            for index in 0..draws {
                counts[zipf.rank(&chance, index) as usize - 1] += 1;
            }
            let weight = |rank: usize| (rank as f64).powf(-exponent);
            let total: f64 = (1..=ranks as usize).map(weight).sum();
            let (mut chi, mut bins) = (0.0, 0.0);
            for (number, &count) in counts.iter().enumerate() {
                let expected = draws as f64 * weight(number + 1) / total;
                if expected >= 5.0 {
                    chi += (count as f64 - expected).powi(2) / expected;
                    bins += 1.0;
                }
            }
            // About the 0.1 % point of chi-square (Wilson and Hilferty).
            let degrees = f64::max(bins - 1.0, 1.0);
            let point = degrees
                * (1.0 - 2.0 / (9.0 * degrees) + 3.1 * (2.0 / (9.0 * degrees)).sqrt()).powi(3);
            assert!(
                chi <= point,
                "{ranks} ranks, s = {exponent}: {chi} > {point}"
            );
        }
    }

    #[test]
    fn a_million_ranks_need_no_table_and_few_draws() {
        let zipf = Zipf::new(1_000_000, 0.9);
        let chance = Chance::new(5, "zipf", Purpose::Path);
        let mut highest = 0;
        let mut top = 0;
        for index in 0..200_000 {
            let rank = zipf.rank(&chance, index);
            assert!((1..=1_000_000).contains(&rank));
            highest = highest.max(rank);
            top += u64::from(rank == 1);
        }
        assert!(highest > 900_000);
        // Weight of rank 1 of 10^6 at s = 0.9: 1 / 30.07… of the draws.
        let harmonic: f64 = (1..=1_000_000).map(|k| f64::from(k).powf(-0.9)).sum();
        let expected = 200_000.0 / harmonic;
        assert!(
            (top as f64 - expected).abs() < 4.5 * expected.sqrt(),
            "{top} {expected}"
        );
    }
}
