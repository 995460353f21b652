//! The requested objects: a pure function of seed, class and index.

use crate::chance::{Chance, Purpose};
use crate::clock::Nanos;
use crate::error::Error;
use crate::manifest::{Manifest, Record};
use crate::plan::{ByteRange, Class, PathKind, Paths, Ranges, Stripe};
use crate::request::{Object, Request};
use crate::zipf::Zipf;

/// Chooses an object for each request of a class.
#[derive(Debug)]
pub struct Picker<'p> {
    paths: &'p Paths,
    ranges: Option<Ranges>,
    place: Chance,
    choice: Choice,
}

#[derive(Debug)]
enum Choice {
    Fixed,
    Uniform(Chance),
    Zipf(Chance, Zipf),
    Once(Vec<u32>),
    Manifest(Box<Recorded>),
}

/// The requests of a manifest that have no answer yet.
#[derive(Debug)]
struct Recorded {
    manifest: Manifest,
    /// The index of the manifest's next request, counted over all its rounds.
    next_index: u64,
    records: Vec<Option<Record>>,
    free: Vec<usize>,
}

impl<'p> Picker<'p> {
    /// The picker of a class.
    ///
    /// # Errors
    /// `Error::Plan` if its manifest cannot be read.
    pub fn new(class: &'p Class, seed: u64) -> Result<Self, Error> {
        let paths = &class.paths;
        let chance = |purpose| Chance::new(seed, &class.name, purpose);
        let count = paths.paths.len() as u64;
        let choice = match paths.kind {
            PathKind::Fixed => Choice::Fixed,
            PathKind::Uniform => Choice::Uniform(chance(Purpose::Path)),
            PathKind::Zipf => Choice::Zipf(
                chance(Purpose::Path),
                Zipf::new(count, paths.exponent.unwrap_or(1.0)),
            ),
            PathKind::Once => Choice::Once(shuffled(count, chance(Purpose::Shuffle))),
            PathKind::Manifest => Choice::Manifest(Box::new(Recorded {
                manifest: Manifest::open(paths.manifest.as_deref().unwrap_or_default())?,
                next_index: 0,
                records: Vec::new(),
                free: Vec::new(),
            })),
        };
        Ok(Self {
            paths,
            ranges: class.ranges,
            place: chance(Purpose::Range),
            choice,
        })
    }

    /// The object of request `index`, as an index into the class's objects; indices must increase.
    ///
    /// # Errors
    /// A message, if reading the manifest fails.
    pub fn pick(&mut self, index: u64) -> Result<usize, String> {
        let count = self.paths.paths.len() as u64;
        Ok(match &mut self.choice {
            Choice::Fixed => 0,
            Choice::Uniform(chance) => chance.below(index, count) as usize,
            Choice::Zipf(chance, zipf) => zipf.rank(chance, index) as usize - 1,
            Choice::Once(order) => order[(index % count) as usize] as usize,
            Choice::Manifest(recorded) => recorded.at(index)?,
        })
    }

    /// The next recorded request of this load host: its index, offset and object; `None` at the end
    /// of the manifest.
    ///
    /// # Errors
    /// A message, if reading the manifest fails.
    pub fn next_recorded(&mut self, stripe: Stripe) -> Result<Option<Replayed>, String> {
        match &mut self.choice {
            Choice::Manifest(recorded) => recorded.next_of(stripe),
            _ => Ok(None),
        }
    }

    /// The object of a request.
    pub fn object(&self, request: &Request) -> Object<'_> {
        if let Choice::Manifest(recorded) = &self.choice {
            let record = recorded.records[request.path].as_ref();
            return Object {
                path: record.map_or("/", |record| record.path.as_str()),
                bytes: record.and_then(|record| record.bytes),
                range: record.and_then(|record| record.range),
            };
        }
        let bytes = self.paths.bytes.as_ref().map(|sizes| sizes[request.path]);
        Object {
            path: &self.paths.paths[request.path],
            bytes,
            range: self
                .ranges
                .map(|ranges| ranges.of(bytes, self.place, request.index)),
        }
    }

    /// Releases the object of a request that has ended.
    pub fn release(&mut self, request: &Request) {
        if let Choice::Manifest(recorded) = &mut self.choice {
            recorded.records[request.path] = None;
            recorded.free.push(request.path);
        }
    }

    /// An error about the manifest's current line.
    pub fn wrong(&self, what: &str) -> String {
        match &self.choice {
            Choice::Manifest(recorded) => recorded.manifest.wrong(what),
            _ => what.to_owned(),
        }
    }
}

/// A recorded request to replay.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replayed {
    /// Its index in the manifest.
    pub index: u64,
    /// The time since the start of the recording.
    pub offset: Nanos,
    /// The index of its object.
    pub path: usize,
}

impl Recorded {
    /// The object of request `index`; at its end, the manifest starts over.
    fn at(&mut self, index: u64) -> Result<usize, String> {
        loop {
            let Some(record) = self.manifest.read_next()? else {
                self.manifest.rewind()?;
                continue;
            };
            self.next_index += 1;
            if self.next_index > index {
                return Ok(self.keep(record));
            }
        }
    }

    fn next_of(&mut self, stripe: Stripe) -> Result<Option<Replayed>, String> {
        while let Some(record) = self.manifest.read_next()? {
            let index = self.next_index;
            self.next_index += 1;
            if stripe.owns(index) {
                return Ok(Some(Replayed {
                    index,
                    offset: record.offset,
                    path: self.keep(record),
                }));
            }
        }
        Ok(None)
    }

    fn keep(&mut self, record: Record) -> usize {
        if let Some(place) = self.free.pop() {
            self.records[place] = Some(record);
            return place;
        }
        self.records.push(Some(record));
        self.records.len() - 1
    }
}

impl Ranges {
    /// The part that request `index` asks for of an object with a length of `bytes`.
    fn of(self, bytes: Option<u64>, chance: Chance, index: u64) -> ByteRange {
        match self {
            Self::Fixed(range) => range,
            Self::Random { bytes: wanted } => {
                // A plan with random ranges has all lengths, above 0.
                let whole = bytes.unwrap_or(wanted).max(1);
                let length = wanted.min(whole);
                let first = chance.below(index, whole - length + 1);
                ByteRange {
                    first,
                    last: first + length - 1,
                }
            }
        }
    }
}

/// A Fisher–Yates shuffle.
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
    use crate::plan::{ByteRange, Plan};
    use crate::request::Request;
    use serde_json::{Value, json};

    fn plan(paths: &Value, range: &Value) -> Plan {
        let plan = json!({
            "schema": "nginx-tune/loadplan/1",
            "target": {"address": "127.0.0.1", "port": 80},
            "classes": [{
                "name": "c",
                "arrivals": {"kind": "constant", "rate_per_second": 1},
                "paths": paths,
                "range": range,
                "connections": 1,
            }],
            "duration_seconds": 1,
        });
        Plan::parse(plan.to_string().as_bytes()).unwrap()
    }

    fn of_kind(kind: &str, count: usize) -> Plan {
        let paths: Vec<String> = (0..count).map(|i| format!("/{i}")).collect();
        plan(
            &json!({"kind": kind, "paths": paths, "exponent": 1.0}),
            &Value::Null,
        )
    }

    fn counts(plan: &Plan, draws: u64) -> Vec<u64> {
        let mut picker = Picker::new(&plan.classes[0], 5).unwrap();
        let mut counts = vec![0; plan.classes[0].paths.paths.len()];
        for index in 0..draws {
            counts[picker.pick(index).unwrap()] += 1;
        }
        counts
    }

    #[test]
    fn fixed_asks_for_the_one_path() {
        assert_eq!(counts(&of_kind("fixed", 1), 9), [9]);
    }

    #[test]
    fn uniform_asks_for_all_alike() {
        let counts = counts(&of_kind("uniform", 50), 100_000);
        let chi: f64 = counts
            .iter()
            .map(|&n| (n as f64 - 2_000.0).powi(2) / 2_000.0)
            .sum();
        // 49 degrees of freedom: 85.4 is the 0.1 % point.
        assert!(chi < 85.4, "{chi}");
    }

    #[test]
    fn zipf_asks_for_the_first_path_most() {
        let counts = counts(&of_kind("zipf", 100), 20_000);
        assert!(counts[0] > counts[1] && counts[1] > counts[9]);
    }

    #[test]
    fn once_asks_for_each_before_any_again_and_not_in_order() {
        let plan = of_kind("once", 1000);
        assert!(counts(&plan, 1000).iter().all(|&n| n == 1));
        assert!(counts(&plan, 2000).iter().all(|&n| n == 2));
        let mut picker = Picker::new(&plan.classes[0], 5).unwrap();
        assert!((0..1000).any(|index| picker.pick(index).unwrap() != index as usize));
    }

    #[test]
    fn random_ranges_lie_inside_the_object_and_reach_its_ends() {
        let paths = json!({"kind": "fixed", "paths": ["/a"], "bytes": [10]});
        let plan = plan(&paths, &json!({"kind": "random", "bytes": 4}));
        let picker = Picker::new(&plan.classes[0], 5).unwrap();
        let mut firsts = [0; 7];
        for index in 0..7_000 {
            let object = picker.object(&Request::new(0, index, 0));
            let range = object.range.unwrap();
            assert_eq!(range.bytes(), 4);
            firsts[range.first as usize] += 1;
        }
        assert!(firsts.iter().all(|&n| n > 850), "{firsts:?}");
    }

    #[test]
    fn an_object_smaller_than_the_random_range_is_asked_for_whole() {
        let paths = json!({"kind": "fixed", "paths": ["/a"], "bytes": [3]});
        let plan = plan(&paths, &json!({"kind": "random", "bytes": 4}));
        let picker = Picker::new(&plan.classes[0], 5).unwrap();
        let object = picker.object(&Request::new(0, 0, 0));
        assert_eq!(object.range, Some(ByteRange { first: 0, last: 2 }));
    }
}
