//! What has to hold over a sweep: of the kernel's simulations at every number of CPUs and ticks a
//! second, and of the engine's model at every number of threads.

use std::collections::BTreeMap;

use super::input::Kind;
use super::merged::{Property, Row};

/// Points that are named where a property does not hold.
const MOST_NAMED: usize = 5;

/// The variants of a simulation, each of which may make waits no longer than the one before it.
const ORDERS: [(&str, &[&str]); 4] = [
    ("sync", &["baseline", "fix"]),
    ("bridge", &["default", "fix", "fix+wake"]),
    ("bridge", &["default", "wake", "fix+wake"]),
    ("trace", &["baseline", "polling", "ipis", "gp_sleep"]),
];

/// By so much a mean may be longer all the same: what chance makes of a hundred calls.
const CHANCE: f64 = 1.05;

/// Looks at all properties of this kind of results, whose rows have all parameters of their points.
pub fn check(kind: &Kind, rows: &[Row]) -> Vec<Property> {
    let mut properties = Vec::new();
    match kind {
        Kind::Sim(name) => {
            properties.push(figures_agree(rows));
            for (_, order) in ORDERS.iter().filter(|(of, _)| of == name) {
                properties.push(patches_help(rows, order));
            }
            if name == "sync" {
                properties.push(waits_have_their_ticks(rows));
                properties.push(larger_machines_wait_longer(rows));
            }
        }
        Kind::Scale(name) if name == "contention" => {
            properties.push(more_processors_take_longer(rows));
        }
        Kind::Scale(_) | Kind::Torture => {}
    }
    properties.retain(|property| property.looked_at > 0);
    properties
}

/// Collects what was looked at.
struct Looks(Property);

impl Looks {
    fn at(name: &str) -> Self {
        Self(Property {
            name: name.to_owned(),
            holds: true,
            looked_at: 0,
            broken_at: Vec::new(),
        })
    }

    fn look(&mut self, holds: bool, place: impl FnOnce() -> String) {
        self.0.looked_at += 1;
        self.0.holds &= holds;
        if !holds && self.0.broken_at.len() < MOST_NAMED {
            self.0.broken_at.push(place());
        }
    }
}

/// The point, the case, in words.
fn place(row: &Row) -> String {
    let mut words = vec![row.variant.clone()];
    words.extend(row.scenario.clone());
    let named = ["cpus", "hz", "beside"].into_iter();
    words.extend(named.filter_map(|name| Some(format!("{name} {}", row.at(name)?))));
    words.join(", ")
}

fn figures_agree(rows: &[Row]) -> Property {
    let mut looks = Looks::at("a mean and a median lie between the least and the greatest wait");
    for row in rows {
        let figures = ["min_ms", "mean_ms", "p50_ms", "max_ms"].map(|name| row.figure(name));
        if let [Some(least), Some(mean), Some(median), Some(most)] = figures {
            // A mean of equal numbers is not always exactly theirs.
            let range = least * (1.0 - 1e-9)..=most * (1.0 + 1e-9);
            looks.look(range.contains(&mean) && range.contains(&median), || {
                format!("{}: {least}, {mean}, {median}, {most} ms", place(row))
            });
        }
    }
    looks.0
}

/// The rows of one variant, by the rest of what they are.
fn of_variant<'r>(rows: &'r [Row], variant: &str) -> BTreeMap<String, &'r Row> {
    let point = |row: &Row| serde_json::to_string(&row.point).unwrap_or_default();
    rows.iter()
        .filter(|row| row.variant == variant)
        .map(|row| (point(row), row))
        .collect()
}

fn patches_help(rows: &[Row], order: &[&str]) -> Property {
    let name = format!("mean waits get no longer from {}", order.join(" to "));
    let mut looks = Looks::at(&name);
    for pair in order.windows(2) {
        let after = of_variant(rows, pair[1]);
        for (point, before) in of_variant(rows, pair[0]) {
            let means = before
                .figure("mean_ms")
                .zip(after.get(&point).and_then(|row| row.figure("mean_ms")));
            if let Some((before_ms, after_ms)) = means {
                looks.look(after_ms <= before_ms * CHANCE, || {
                    format!("{}: {before_ms} ms, then {after_ms}", place(before))
                });
            }
        }
    }
    looks.0
}

/// The ticks that a wait takes if nothing else asks for a grace period, from four CPUs on: one until
/// the callback is noticed, one until it is invoked, and one wait for the scan, or two; a wait has
/// a jiffy more than its timer. (`sync` has the derivation.)
fn ticks(variant: &str, cpus: f64, hz: f64) -> Option<f64> {
    let of_hz = 1.0 + f64::from(u8::from(hz > 250.0)) + f64::from(u8::from(hz > 500.0));
    let wait = of_hz + (cpus / 256.0).floor() + 1.0;
    match variant {
        "baseline" => Some(2.0 + 2.0 * wait),
        "fix" => Some(2.0 + wait),
        _ => None,
    }
}

/// The least CPUs for that: on two the grace-period thread often shares the caller's.
const LEAST_CPUS: f64 = 4.0;

/// The least waits at a point for that.
const LEAST_WAITS: f64 = 1000.0;

fn waits_have_their_ticks(rows: &[Row]) -> Property {
    let name = "half of the waits take the ticks of the mechanism: one, one or two waits, one";
    let mut looks = Looks::at(name);
    for row in rows {
        let is_changed = |name: &str, usual: u64| {
            let value = row.point.get(name);
            value.is_some_and(|value| value.as_u64() != Some(usual))
        };
        // Of fewer waits the median is a matter of chance, where other grace periods are under way.
        let waits = row.at("runs").zip(row.at("calls"));
        let few = waits.is_some_and(|(runs, calls)| runs * calls < LEAST_WAITS);
        let set = row.point.get("set").and_then(|set| set.as_array());
        if few || is_changed("callers", 1) || set.is_some_and(|set| !set.is_empty()) {
            continue;
        }
        let (Some(cpus), Some(hz), Some(median)) =
            (row.at("cpus"), row.at("hz"), row.figure("p50_ms"))
        else {
            continue;
        };
        if let Some(expected) = ticks(&row.variant, cpus, hz).filter(|_| cpus >= LEAST_CPUS) {
            let found = median * hz / 1000.0;
            looks.look((found - expected).abs() < 0.5, || {
                format!("{}: {found} ticks and not {expected}", place(row))
            });
        }
    }
    looks.0
}

/// Rows that differ in one parameter alone, in its order.
fn along<'r>(rows: &'r [Row], parameter: &str) -> Vec<Vec<&'r Row>> {
    let mut lines: BTreeMap<String, Vec<&Row>> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.at(parameter).is_some()) {
        let mut rest = row.point.clone();
        rest.remove(parameter);
        let key = format!(
            "{} {} {:?} {rest:?}",
            row.subject, row.variant, row.scenario
        );
        lines.entry(key).or_default().push(row);
    }
    let order = |row: &&Row| row.at(parameter).unwrap_or_default();
    let mut lines: Vec<Vec<&Row>> = lines.into_values().collect();
    for line in &mut lines {
        line.sort_by(|a, b| order(a).total_cmp(&order(b)));
    }
    lines
}

fn larger_machines_wait_longer(rows: &[Row]) -> Property {
    let mut looks = Looks::at("mean waits are no shorter on larger machines");
    for line in along(rows, "cpus") {
        for pair in line.windows(2) {
            let means = pair[0].figure("mean_ms").zip(pair[1].figure("mean_ms"));
            if let Some((smaller, larger)) = means {
                looks.look(larger * CHANCE >= smaller, || {
                    format!("{}: {larger} ms after {smaller}", place(pair[1]))
                });
            }
        }
    }
    looks.0
}

/// The engine's model: what a retired object costs each of so many processors.
fn more_processors_take_longer(rows: &[Row]) -> Property {
    let mut looks = Looks::at("by the model, an object takes no less on more processors");
    let processors = |row: &Row| -> Option<u32> {
        let scenario = row.scenario.as_deref()?;
        scenario.strip_prefix("model-")?.parse().ok()
    };
    let mut lines: BTreeMap<String, Vec<(u32, &Row)>> = BTreeMap::new();
    for row in rows {
        if let Some(number) = processors(row) {
            let key = format!("{} {} {:?}", row.subject, row.variant, row.point);
            lines.entry(key).or_default().push((number, row));
        }
    }
    for line in lines.values_mut() {
        line.sort_by_key(|(number, _)| *number);
        for pair in line.windows(2) {
            let figures = pair.iter().map(|(_, row)| row.figure("modelled_ns_per_op"));
            if let [Some(fewer), Some(more)] = figures.collect::<Vec<_>>()[..] {
                looks.look(more * (1.0 + 1e-9) >= fewer, || {
                    format!("{}: {more} ns after {fewer}", place(pair[1].1))
                });
            }
        }
    }
    looks.0
}

#[cfg(test)]
mod tests {
    use kernel_sim::Size;
    use serde_json::{Map, Value, json};

    use super::*;
    use crate::run::Metrics;
    use crate::sim::swept;

    fn row(variant: &str, scenario: Option<&str>, point: &Value, figures: &[(&str, f64)]) -> Row {
        let metrics: Metrics = figures
            .iter()
            .map(|&(name, value)| (name.to_owned(), value))
            .collect();
        Row {
            subject: "stillpoint".to_owned(),
            variant: variant.to_owned(),
            scenario: scenario.map(ToOwned::to_owned),
            point: point.as_object().cloned().unwrap_or_else(Map::new),
            runs: 1,
            metrics,
            spread: Default::default(),
            worst: BTreeMap::new(),
        }
    }

    /// A sweep with the real simulation, over some of its machines.
    fn sync() -> Vec<Row> {
        let mut rows = Vec::new();
        for (cpus, hz) in [
            (2, 1000),
            (4, 100),
            (16, 1000),
            (256, 1000),
            (256, 300),
            (1024, 250),
        ] {
            for (variant, metrics) in swept(Size { cpus, hz }) {
                let figures: Vec<(&str, f64)> = metrics
                    .iter()
                    .map(|(name, &value)| (name.as_str(), value))
                    .collect();
                let point = json!({"cpus": cpus, "hz": hz, "callers": 1, "set": []});
                rows.push(row(variant, None, &point, &figures));
            }
        }
        rows
    }

    fn broken(kind: &Kind, rows: &[Row]) -> Vec<String> {
        let properties = check(kind, rows).into_iter();
        properties
            .filter(|property| !property.holds)
            .map(|property| {
                property
                    .name
                    .split(' ')
                    .take(4)
                    .collect::<Vec<_>>()
                    .join(" ")
            })
            .collect()
    }

    #[test]
    fn the_kernels_simulation_has_all_properties_and_others_have_not() {
        let kind = Kind::Sim("sync".to_owned());
        let rows = sync();
        assert_eq!(check(&kind, &rows).len(), 4);
        assert_eq!(broken(&kind, &rows), [""; 0]);
        // Each is broken by a change of one figure.
        for (figure, factor, variant, said) in [
            ("max_ms", 0.1, "fix", "a mean and a"),
            ("mean_ms", 3.0, "fix", "mean waits get no"),
            ("p50_ms", 1.2, "baseline", "half of the waits"),
            ("mean_ms", 0.5, "baseline", "mean waits are no"),
        ] {
            let mut changed = sync();
            let one = changed
                .iter_mut()
                .find(|row| row.variant == variant && row.at("cpus") == Some(256.0))
                .expect("it is in the sweep");
            *one.metrics.get_mut(figure).expect("it has the figure") *= factor;
            let broken = broken(&kind, &changed);
            assert!(
                broken.iter().any(|name| name == said),
                "{figure}: {broken:?}"
            );
        }
    }

    #[test]
    fn constants_that_were_changed_have_no_ticks_to_hold_to() {
        let kind = Kind::Sim("sync".to_owned());
        let mut rows = sync();
        rows.retain(|row| row.variant == "fix");
        for row in &mut rows {
            row.point.insert("set".to_owned(), json!(["a=1"]));
            row.metrics
                .insert("p50_ms".to_owned(), row.metrics["min_ms"]);
        }
        assert_eq!(broken(&kind, &rows), [""; 0]);
    }

    #[test]
    fn a_median_of_few_waits_is_chance() {
        let looked_at = |calls: u64| {
            let mut rows = sync();
            for row in &mut rows {
                row.point.insert("runs".to_owned(), json!(10));
                row.point.insert("calls".to_owned(), json!(calls));
            }
            waits_have_their_ticks(&rows).looked_at
        };
        assert_eq!(looked_at(99), 0);
        assert!(looked_at(100) > 0);
    }

    #[test]
    fn the_engines_model_grows_with_the_processors() {
        let kind = Kind::Scale("contention".to_owned());
        let at = |processors: u32, ns: f64| {
            let scenario = format!("model-{processors}");
            let figures = [("modelled_ns_per_op", ns)];
            row(
                "per-page",
                Some(&scenario),
                &json!({"beside": 14}),
                &figures,
            )
        };
        let grows = [at(2, 5.0), at(16, 9.0), at(4, 5.0)];
        assert_eq!(broken(&kind, &grows), [""; 0]);
        let shrinks = [at(2, 5.0), at(16, 4.9), at(4, 5.0)];
        assert_eq!(broken(&kind, &shrinks), ["by the model, an"]);
    }
}
