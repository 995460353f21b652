//! Tests of the distribution of arrivals, with fixed seeds, so that the results never change.

use super::{Arrival, Schedule};
use crate::clock::{SECOND, seconds};
use crate::plan::{Arrivals, Gaps, Profile, Step, Stripe};

const WHOLE: Stripe = Stripe::of(0, 1);

fn open(gaps: Gaps, rate: Profile) -> Arrivals {
    Arrivals::Open { gaps, rate }
}

fn flat(gaps: Gaps, rate_per_second: f64) -> Arrivals {
    open(gaps, Profile::flat(rate_per_second))
}

/// A step at 200, a ramp from 200 to 1000, a pause, and 500 to the end.
fn steps(gaps: Gaps) -> Arrivals {
    let step = |seconds, from_per_second, to_per_second| Step {
        seconds,
        from_per_second,
        to_per_second,
    };
    let steps = vec![
        step(10.0, 200.0, 200.0),
        step(20.0, 200.0, 1000.0),
        step(5.0, 0.0, 0.0),
        step(1.0, 500.0, 500.0),
    ];
    open(gaps, Profile { steps })
}

fn arrivals(kind: &Arrivals, seed: u64, stripe: Stripe, until_seconds: f64) -> Vec<Arrival> {
    Schedule::new(kind, seed, "c", stripe)
        .unwrap()
        .take_while(|arrival| seconds(arrival.due) < until_seconds)
        .collect()
}

fn count_in(all: &[Arrival], from_seconds: f64, to_seconds: f64) -> f64 {
    let inside = |a: &&Arrival| (from_seconds..to_seconds).contains(&seconds(a.due));
    all.iter().filter(inside).count() as f64
}

#[test]
fn constant_arrivals_are_exact_and_do_not_drift() {
    let all = arrivals(&flat(Gaps::Constant, 300.0), 7, WHOLE, 600.0);
    assert_eq!(all.len(), 180_000);
    for (index, arrival) in all.iter().enumerate() {
        assert_eq!(arrival.index, index as u64);
        let ideal = all[0].due as f64 + index as f64 * SECOND as f64 / 300.0;
        assert!((arrival.due as f64 - ideal).abs() <= 2.0, "{index}");
    }
}

/// The gaps of Poisson arrivals at 1000 per second, in milliseconds, sorted.
fn poisson_gaps(seed: u64) -> Vec<f64> {
    let all = arrivals(&flat(Gaps::Poisson, 1000.0), seed, WHOLE, 100.0);
    let mut gaps: Vec<f64> = all
        .windows(2)
        .map(|pair| (pair[1].due - pair[0].due) as f64 / 1e6)
        .collect();
    gaps.sort_by(f64::total_cmp);
    gaps
}

#[test]
fn poisson_gaps_are_exponential_by_kolmogorov_and_by_anderson() {
    for seed in 1..=10 {
        let gaps = poisson_gaps(seed);
        let n = gaps.len() as f64;
        // 100 000 arrivals: the count's standard deviation is 316.
        assert!((n - 100_000.0).abs() < 1_300.0, "{n}");
        // Kolmogorov–Smirnov against 1 - exp(-t) with t in milliseconds; 1.95 / sqrt(n) is the
        // 0.1 % point.
        let distance = gaps
            .iter()
            .enumerate()
            .map(|(i, gap)| (1.0 - (-gap).exp() - i as f64 / n).abs())
            .fold(0.0, f64::max);
        assert!(distance < 1.95 / n.sqrt(), "seed {seed}: {distance}");
        // Anderson–Darling, which is sensitive to the tails; 6.0 is the 0.1 % point of a known
        // distribution (Marsaglia and Marsaglia, 2004).
        let last = gaps.len() - 1;
        let sum: f64 = gaps
            .iter()
            .enumerate()
            .map(|(i, gap)| {
                let weight = (2 * i + 1) as f64;
                weight * ((1.0 - (-gap.max(1e-12)).exp()).ln() - gaps[last - i])
            })
            .sum();
        let a_squared = -n - sum / n;
        assert!(a_squared < 6.0, "seed {seed}: {a_squared}");
    }
}

#[test]
fn poisson_counts_are_as_spread_as_their_mean() {
    for seed in 1..=10 {
        let all = arrivals(&flat(Gaps::Poisson, 1000.0), seed, WHOLE, 200.0);
        let mut bins = vec![0.0; 20_000];
        for arrival in &all {
            bins[(seconds(arrival.due) * 100.0) as usize] += 1.0;
        }
        let mean = bins.iter().sum::<f64>() / bins.len() as f64;
        let square = |count: &f64| (count - mean) * (count - mean);
        let variance = bins.iter().map(square).sum::<f64>() / (bins.len() - 1) as f64;
        // The index of dispersion; its standard deviation over 20 000 bins is 0.01.
        let dispersion = variance / mean;
        assert!((dispersion - 1.0).abs() < 0.04, "seed {seed}: {dispersion}");
    }
}

#[test]
fn neighbouring_poisson_gaps_know_nothing_of_each_other() {
    let all = arrivals(&flat(Gaps::Poisson, 1000.0), 7, WHOLE, 100.0);
    let gaps: Vec<f64> = all
        .windows(2)
        .map(|pair| (pair[1].due - pair[0].due) as f64 / 1e6 - 1.0)
        .collect();
    for lag in 1..=5 {
        let products = gaps.iter().zip(&gaps[lag..]).map(|(a, b)| a * b);
        let correlation = products.sum::<f64>() / gaps.len() as f64;
        // Standard deviation 1 / sqrt(100 000).
        assert!(correlation.abs() < 0.0135, "lag {lag}: {correlation}");
    }
}

#[test]
fn steps_and_ramps_give_each_moment_its_rate() {
    let even = arrivals(&steps(Gaps::Constant), 7, WHOLE, 45.0);
    let random = arrivals(&steps(Gaps::Poisson), 7, WHOLE, 45.0);
    for (from, to, expected) in [
        (0.0, 10.0, 2000.0),
        // The ramp: 200 per second, growing by 40 per second each second.
        (10.0, 15.0, 1500.0),
        (20.0, 21.0, 620.0),
        (29.0, 30.0, 980.0),
        (30.0, 35.0, 0.0),
        // The last rate continues after its step.
        (35.0, 36.0, 500.0),
        (36.0, 45.0, 4500.0),
    ] {
        let exact = count_in(&even, from, to);
        assert!((exact - expected).abs() <= 1.0, "{from}–{to}: {exact}");
        let random = count_in(&random, from, to);
        let spread = 4.5 * f64::sqrt(expected);
        assert!((random - expected).abs() <= spread, "{from}–{to}: {random}");
    }
    assert!(even.windows(2).all(|pair| pair[0].due <= pair[1].due));
}

#[test]
fn arrivals_end_where_the_rate_falls_to_nothing() {
    let steps = vec![Step {
        seconds: 10.0,
        from_per_second: 100.0,
        to_per_second: 0.0,
    }];
    let kind = open(Gaps::Constant, Profile { steps });
    let all: Vec<Arrival> = Schedule::new(&kind, 1, "c", WHOLE).unwrap().collect();
    assert_eq!(all.len(), 500);
    assert!(all.iter().all(|arrival| arrival.due <= 10 * SECOND));
}

#[test]
fn the_stripes_of_several_hosts_add_up_to_one_schedule() {
    for kind in [
        flat(Gaps::Constant, 90.0),
        flat(Gaps::Poisson, 90.0),
        steps(Gaps::Constant),
        steps(Gaps::Poisson),
    ] {
        for count in [2, 3, 7] {
            let mut together: Vec<Arrival> = (0..count)
                .flat_map(|index| arrivals(&kind, 7, Stripe::of(index, count), 40.0))
                .collect();
            together.sort_by_key(|arrival| arrival.index);
            assert_eq!(together, arrivals(&kind, 7, WHOLE, 40.0));
        }
    }
}

#[test]
fn closed_loops_and_replays_follow_no_rate() {
    let closed = Arrivals::Closed {
        users: 3,
        think_seconds: 0.0,
        gaps: Gaps::Constant,
    };
    for kind in [closed, Arrivals::Replay { speed: 1.0 }] {
        assert!(Schedule::new(&kind, 1, "c", WHOLE).is_none());
    }
}
