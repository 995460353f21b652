//! The host's activity during a run: CPU time of all CPUs, and throttling of the probe.

use std::fs;
use std::path::Path;

/// Clock ticks per second in `/proc/stat` on every Linux (`USER_HZ`).
const TICKS_PER_SECOND: f64 = 100.0;

/// Clock sources that a program reads without a system call. With any other, each reading costs the
/// loop up to a microsecond. Source: the kernel's `vdso/clocksource.h` of each architecture.
const FAST_CLOCKS: [&str; 6] = [
    "tsc",
    "arch_sys_counter",
    "kvm-clock",
    "hyperv_clocksource_tsc_page",
    "timebase",
    "tod",
];

/// The host's counters at one time.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Surroundings {
    /// CPU time of all processes, without interrupts.
    pub busy_seconds: f64,
    /// Time that a hypervisor gave to others while a CPU had work.
    pub steal_seconds: f64,
    /// The total time of all CPUs.
    pub all_seconds: f64,
    /// Periods in which the probe's control groups had used up their CPU time.
    pub throttled_periods: u64,
}

impl Surroundings {
    /// The current counters; `None` if `/proc/stat` has none.
    pub fn read() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let throttled_periods = throttled_periods(Path::new("/sys/fs/cgroup"));
        Some(Self {
            throttled_periods,
            ..Self::parse(&stat)?
        })
    }

    /// Parses `/proc/stat`. Source: `proc_stat(5)`.
    fn parse(stat: &str) -> Option<Self> {
        let line = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let ticks: Vec<f64> = line
            .split_ascii_whitespace()
            .map(|word| word.parse().ok())
            .collect::<Option<_>>()?;
        // The fields are user nice system idle iowait irq softirq steal; the first two include
        // guests.
        let own = ticks.get(..8)?;
        Some(Self {
            busy_seconds: own[..3].iter().sum::<f64>() / TICKS_PER_SECOND,
            steal_seconds: own[7] / TICKS_PER_SECOND,
            all_seconds: own.iter().sum::<f64>() / TICKS_PER_SECOND,
            throttled_periods: 0,
        })
    }

    /// The difference from earlier counters.
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            busy_seconds: (self.busy_seconds - before.busy_seconds).max(0.0),
            steal_seconds: (self.steal_seconds - before.steal_seconds).max(0.0),
            all_seconds: (self.all_seconds - before.all_seconds).max(0.0),
            throttled_periods: self
                .throttled_periods
                .saturating_sub(before.throttled_periods),
        }
    }

    /// The share of the CPUs' time that a hypervisor took.
    pub fn steal_ratio(&self) -> f64 {
        if self.all_seconds > 0.0 {
            self.steal_seconds / self.all_seconds
        } else {
            0.0
        }
    }
}

/// Throttled periods of this process's control group and of those that contain it.
///
/// Source: the kernel's `cgroup-v2.rst` and `sched-bwc.rst`, `cpu.stat`.
fn throttled_periods(mount: &Path) -> u64 {
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let mut sum = 0;
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else {
            continue;
        };
        let root = match controllers {
            "" => mount.to_owned(),
            list if list.split(',').any(|name| name == "cpu") => mount.join(list),
            _ => continue,
        };
        // Within a namespace, the path may begin above the mount; then only the existing part
        // counts.
        let group = root.join(path.trim_start_matches('/'));
        sum += group
            .ancestors()
            .take_while(|group| group.starts_with(&root))
            .filter_map(|group| fs::read_to_string(group.join("cpu.stat")).ok())
            .filter_map(|text| parse_throttled(&text))
            .sum::<u64>();
    }
    sum
}

fn parse_throttled(text: &str) -> Option<u64> {
    let mut lines = text.lines();
    lines.find_map(|line| line.strip_prefix("nr_throttled ")?.trim().parse().ok())
}

/// The kernel's clock source; empty if unknown.
pub fn clock_source() -> String {
    let path = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let text = fs::read_to_string(path).unwrap_or_default();
    text.trim().to_owned()
}

/// Whether reading this clock costs almost nothing; true for an unknown one.
pub fn is_fast(clock_source: &str) -> bool {
    clock_source.is_empty()
        || clock_source.starts_with("riscv")
        || FAST_CLOCKS.contains(&clock_source)
}

#[cfg(test)]
mod tests {
    use super::{Surroundings, is_fast, parse_throttled};

    #[test]
    fn the_counters_of_all_cpus() {
        let before = "cpu  100 10 50 1000 40 0 20 5 0 0\ncpu0 1 2 3 4 5 6 7 8\n";
        let after = "cpu  300 10 150 1600 40 0 20 105 7 0\ncpu0 1 2 3 4 5 6 7 8\n";
        let [before, after] = [before, after].map(|text| Surroundings::parse(text).unwrap());
        let passed = after.since(before);
        assert!((passed.busy_seconds - 3.0).abs() < 1e-9);
        assert!((passed.all_seconds - 10.0).abs() < 1e-9);
        assert!((passed.steal_ratio() - 0.1).abs() < 1e-9);
        assert_eq!(Surroundings::parse("cpu  1 2 3\n"), None);
        assert_eq!(Surroundings::parse("intr 1\n"), None);
    }

    #[test]
    fn throttling_is_read_from_either_version_of_control_groups() {
        let first = "nr_periods 5\nnr_throttled 3\nthrottled_time 99\n";
        let second = "usage_usec 1\nnr_periods 0\nnr_throttled 7\n";
        assert_eq!(parse_throttled(first), Some(3));
        assert_eq!(parse_throttled(second), Some(7));
        assert_eq!(parse_throttled("usage_usec 1\n"), None);
    }

    #[test]
    fn slow_clocks_are_known() {
        assert!(is_fast("tsc") && is_fast("kvm-clock") && is_fast(""));
        assert!(!is_fast("hpet") && !is_fast("acpi_pm") && !is_fast("jiffies"));
    }
}
