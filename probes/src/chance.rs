//! Random numbers as a pure function: the same seed, class, purpose and index give the same number,
//! in any order and on any machine. So a schedule can be computed twice or in parts.

/// The purpose of a random number, which keeps the streams of a class independent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// The gaps between arrivals.
    Arrival = 1,
    /// The phase of constant arrivals.
    Phase = 2,
    /// The choice of a path.
    Path = 3,
    /// The order of the paths.
    Shuffle = 4,
    /// The choice of the part of an object to request.
    Range = 5,
    /// The decision to close a connection after a response.
    Close = 6,
    /// The decision to compare a body with its file.
    Hash = 7,
    /// The length of a user's pause.
    Pause = 8,
}

/// A stream of random numbers.
#[derive(Debug, Clone, Copy)]
pub struct Chance {
    key: u64,
}

impl Chance {
    /// The stream of a class for a purpose. It depends on the name of the class and not on its
    /// index in the plan, so adding or removing other classes changes nothing.
    pub fn new(seed: u64, class: &str, purpose: Purpose) -> Self {
        // FNV-1a, then mixed: names that differ in one letter get unrelated streams.
        let name = class.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        Self {
            key: mix(mix(seed ^ mix(name)).wrapping_add(purpose as u64)),
        }
    }

    /// The number at `index` of the stream.
    pub fn number(&self, index: u64) -> u64 {
        mix(self
            .key
            .wrapping_add(index.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
    }

    /// The number at `index` as a fraction in [0, 1).
    pub fn fraction(&self, index: u64) -> f64 {
        (self.number(index) >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// The number at `index`, drawn for the (1 + `attempt`)th time, as a fraction in [0, 1).
    pub fn fraction_again(&self, index: u64, attempt: u64) -> f64 {
        let other = Self {
            key: self.key ^ attempt.wrapping_mul(0xd1b5_4a32_d192_ed03),
        };
        other.fraction(index)
    }

    /// The number at `index` as one of `0..count`, by multiplication (Lemire); the bias is below
    /// `count` / 2^64.
    pub fn below(&self, index: u64, count: u64) -> u64 {
        ((u128::from(self.number(index)) * u128::from(count)) >> 64) as u64
    }
}

/// The finalizer of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
/// Generators, 2014).
pub(crate) fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::{Chance, Purpose};

    #[test]
    fn a_number_hangs_on_seed_class_purpose_and_index_alone() {
        let one = Chance::new(1, "hot", Purpose::Path);
        assert_eq!(
            one.number(7),
            Chance::new(1, "hot", Purpose::Path).number(7)
        );
        assert_ne!(one.number(7), one.number(8));
        for other in [
            Chance::new(2, "hot", Purpose::Path),
            Chance::new(1, "cold", Purpose::Path),
            Chance::new(1, "hot", Purpose::Arrival),
        ] {
            assert_ne!(one.number(7), other.number(7));
        }
    }

    #[test]
    fn fractions_fill_the_unit_interval_evenly() {
        let chance = Chance::new(3, "c", Purpose::Arrival);
        let mut tenths = [0_u32; 10];
        for index in 0..100_000 {
            tenths[(chance.fraction(index) * 10.0) as usize] += 1;
        }
        // Chi-square with 9 degrees of freedom: 27.9 is the 0.1 % point.
        let chi: f64 = tenths
            .iter()
            .map(|&n| (f64::from(n) - 10_000.0).powi(2) / 10_000.0)
            .sum();
        assert!(chi < 27.9, "{chi} {tenths:?}");
    }
}
