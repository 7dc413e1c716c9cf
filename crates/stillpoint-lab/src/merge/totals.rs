//! The rows of all files, joined as they come: what is kept grows with the cases and points that
//! there are, not with the files.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::input::{Input, Kind, Row};
use super::merged::{self, Worst};
use crate::run::{Metrics, Spread};

/// The most cases, over all points, and the most bytes of a point: a sweep has thousands.
const MOST_CASES: usize = 200_000;
const LONGEST_POINT: usize = 1000;

/// Parameters that make no other point: how it was chosen what to run, and how often.
const NO_POINT: [&str; 9] = [
    "seed",
    "index",
    "indices",
    "rounds",
    "variants",
    "peers",
    "scenarios",
    "timeout_s",
    // Follow from what else was asked for.
    "constants",
];

/// Figures of which more is better, beside all that are so many a second; of all others, less.
const MORE_IS_BETTER: [&str; 4] = ["calls_per_gp", "hit_ratio", "hit_ratio_one", "survived_s"];

/// Rates that are a cost.
const RATES_OF_COSTS: [&str; 2] = ["membarriers_per_s", "looks_per_s"];

/// Of a torture, only these can be better or worse.
const OF_TORTURE: [&str; 3] = ["errors", "stalls", "survived_s"];

/// The rows so far.
pub struct Totals {
    kind: Kind,
    cases: BTreeMap<Key, Case>,
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
struct Key {
    subject: String,
    variant: String,
    scenario: Option<String>,
    /// The point's parameters, as JSON.
    point: String,
}

#[derive(Default)]
struct Case {
    runs: u64,
    figures: BTreeMap<String, Figure>,
}

struct Figure {
    sum: f64,
    count: u64,
    least: f64,
    greatest: f64,
    worst: Option<Worst>,
}

impl Totals {
    /// With nothing in it.
    pub fn new(kind: Kind) -> Self {
        Self {
            kind,
            cases: BTreeMap::new(),
        }
    }

    /// Adds a file's rows. If there are too many of something it adds none of them, and says what.
    pub fn add(&mut self, file: &str, input: &Input) -> Result<(), String> {
        let point = match self.kind {
            Kind::Torture => Map::new(),
            Kind::Sim(_) | Kind::Scale(_) => point(&input.params),
        };
        let point = Value::Object(point).to_string();
        let rows: Vec<(Key, &Row)> = input
            .rows
            .iter()
            .filter(|row| self.takes(row))
            .map(|row| (key(row, &point), row))
            .collect();
        if point.len() > LONGEST_POINT {
            return Err("has parameters that no run of this program has".to_owned());
        }
        let keys: BTreeSet<&Key> = rows.iter().map(|(key, _)| key).collect();
        let new = keys
            .into_iter()
            .filter(|key| !self.cases.contains_key(*key));
        if self.cases.len() + new.count() > MOST_CASES {
            return Err(format!("makes more than {MOST_CASES} cases"));
        }
        let seed_of_file = input.params.get("seed").and_then(Value::as_u64);
        for (number, (key, row)) in rows.into_iter().enumerate() {
            let seed = input.plans.get(number).map(|plan| plan.seed);
            let case = self.cases.entry(key).or_default();
            case.runs += 1;
            for (name, &value) in &row.metrics {
                let [least, greatest] = row.spread.get(name).copied().unwrap_or([value; 2]);
                let judged = self.kind != Kind::Torture || OF_TORTURE.contains(&name.as_str());
                let worst = judged.then(|| Worst {
                    value: if more_is_better(name) {
                        least
                    } else {
                        greatest
                    },
                    file: file.to_owned(),
                    seed: seed.or(seed_of_file),
                });
                let figure = Figure {
                    sum: value,
                    count: 1,
                    least,
                    greatest,
                    worst,
                };
                match case.figures.get_mut(name) {
                    Some(so_far) => so_far.add(figure, more_is_better(name)),
                    None => drop(case.figures.insert(name.clone(), figure)),
                }
            }
        }
        Ok(())
    }

    /// The authors' figures, which simulations have beside theirs, are no outcome of a run.
    fn takes(&self, row: &Row) -> bool {
        !(matches!(self.kind, Kind::Sim(_)) && row.subject == "seed")
    }

    /// The rows, in the order of their cases and then of their points, each with all parameters of
    /// its point.
    pub fn into_rows(self) -> Vec<merged::Row> {
        let sums = self.kind == Kind::Torture;
        let mut rows: Vec<merged::Row> = self
            .cases
            .into_iter()
            .map(|(key, case)| case.into_row(key, sums))
            .collect();
        rows.sort_by(|a, b| {
            let (a_case, b_case) = (case_of(a), case_of(b));
            a_case.cmp(&b_case).then_with(|| by_point(a, b))
        });
        rows
    }
}

/// Leaves to the rows' points only those parameters that differ.
pub fn shorten_points(rows: &mut [merged::Row]) {
    let differing = differing(rows.iter().map(|row| &row.point));
    for row in rows {
        row.point.retain(|name, _| differing.contains(name));
    }
}

impl Figure {
    fn add(&mut self, other: Self, more_is_better: bool) {
        self.sum += other.sum;
        self.count += other.count;
        self.least = self.least.min(other.least);
        self.greatest = self.greatest.max(other.greatest);
        if let (Some(worst), Some(new)) = (&mut self.worst, other.worst)
            && (new.value < worst.value) == more_is_better
            && new.value != worst.value
        {
            *worst = new;
        }
    }
}

impl Case {
    fn into_row(self, key: Key, sums: bool) -> merged::Row {
        let value = |figure: &Figure| {
            if sums {
                figure.sum
            } else {
                figure.sum / figure.count as f64
            }
        };
        let metrics: Metrics = self
            .figures
            .iter()
            .map(|(name, figure)| (name.clone(), value(figure)))
            .collect();
        let spread: Spread = self
            .figures
            .iter()
            .map(|(name, figure)| (name.clone(), [figure.least, figure.greatest]))
            .collect();
        let worst = self
            .figures
            .into_iter()
            .filter_map(|(name, figure)| Some((name, figure.worst?)));
        merged::Row {
            subject: key.subject,
            variant: key.variant,
            scenario: key.scenario,
            point: serde_json::from_str(&key.point).unwrap_or_default(),
            runs: self.runs,
            metrics,
            spread,
            worst: worst.collect(),
        }
    }
}

fn key(row: &Row, point: &str) -> Key {
    Key {
        subject: row.subject.clone(),
        variant: row.variant.clone(),
        scenario: row.scenario.clone(),
        point: point.to_owned(),
    }
}

fn more_is_better(metric: &str) -> bool {
    let is_rate = metric.ends_with("_per_s") && !RATES_OF_COSTS.contains(&metric);
    is_rate || MORE_IS_BETTER.contains(&metric)
}

fn case_of(row: &merged::Row) -> (&str, &str, Option<&str>) {
    (&row.subject, &row.variant, row.scenario.as_deref())
}

/// The parameters that make a point of a sweep.
fn point(params: &Map<String, Value>) -> Map<String, Value> {
    let mut point = params.clone();
    point.retain(|name, _| !NO_POINT.contains(&name.as_str()));
    point
}

/// The parameters that are not the same at all points.
fn differing<'p>(mut points: impl Iterator<Item = &'p Map<String, Value>>) -> BTreeSet<String> {
    let Some(first) = points.next() else {
        return BTreeSet::new();
    };
    let mut differing = BTreeSet::new();
    for point in points {
        for name in first.keys().chain(point.keys()) {
            if first.get(name) != point.get(name) {
                differing.insert(name.clone());
            }
        }
    }
    differing
}

/// The order of points: by the parameters' names, numbers as numbers.
fn by_point(a: &merged::Row, b: &merged::Row) -> Ordering {
    for (name, one) in &a.point {
        let other = b.point.get(name).unwrap_or(&Value::Null);
        let order = match (one.as_f64(), other.as_f64()) {
            (Some(one), Some(other)) => one.total_cmp(&other),
            _ => one.to_string().cmp(&other.to_string()),
        };
        if order != Ordering::Equal {
            return order;
        }
    }
    Ordering::Equal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_what_is_done_in_a_second_more_is_better() {
        for metric in [
            "ops_per_s",
            "tenants_per_s",
            "gps_per_s",
            "hit_ratio",
            "survived_s",
        ] {
            assert!(more_is_better(metric), "{metric}");
        }
        for metric in [
            "ns_per_op",
            "membarriers_per_s",
            "looks_per_s",
            "rss_ratio",
            "total_s",
        ] {
            assert!(!more_is_better(metric), "{metric}");
        }
    }
}
