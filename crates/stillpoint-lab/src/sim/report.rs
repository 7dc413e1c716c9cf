//! The figures of a simulation beside the seed's, as a table for people.

use crate::output::table::{draw, number};
use crate::output::{Metric, Row, metrics};

/// The subject of simulated figures, by the lab's contract. They are the kernel's, as the model has
/// it; `kernel` is the real one.
pub const OURS: &str = "stillpoint";

/// The subject of measured ones: what the patch's author saw.
pub const SEED: &str = "seed";

/// A figure's columns, in this order.
pub const METRICS: &[Metric] = metrics! {
    "mean_ms" 3 "how long a wait took, on average";
    "p50_ms" 3 "half of the waits took no longer";
    "min_ms" 3 "the shortest wait";
    "max_ms" 3 "the longest wait";
    "real_s" 3 "how long the run took, in virtual time";
    "fqs_per_gp" 2 "scans of the CPUs for a grace period";
};

/// Returns our rows, each with the seed's of the same variant, if there is one.
fn pairs(rows: &[Row]) -> impl Iterator<Item = (&Row, Option<&Row>)> {
    let of = |subject| rows.iter().filter(move |row| row.case.subject == subject);
    of(OURS).map(move |ours| {
        let variant = &ours.case.variant;
        (ours, of(SEED).find(|row| row.case.variant == *variant))
    })
}

/// Renders our rows, the seed's figures beside those that it has, and for `headline` the ratio.
pub fn table(rows: &[Row], headline: &str) -> String {
    let mut columns = vec![column("variant", rows, |ours, _| ours.case.variant.clone())];
    for Metric { name, decimals, .. } in METRICS {
        let figure = |row: &Row| row.metrics.get(*name).copied();
        let has = |subject| {
            let mut rows = rows.iter().filter(|row| row.case.subject == subject);
            rows.any(|row| figure(row).is_some())
        };
        if !has(OURS) {
            continue;
        }
        columns.push(column(name, rows, |ours, _| {
            number(figure(ours), *decimals)
        }));
        if has(SEED) {
            let theirs = |seed: Option<&Row>| seed.and_then(figure);
            columns.push(column(SEED, rows, |_, seed| {
                number(theirs(seed), *decimals)
            }));
            if *name == headline {
                columns.push(column("x seed", rows, |ours, seed| {
                    let both = figure(ours).zip(theirs(seed));
                    number(both.map(|(ours, theirs)| ours / theirs), 3)
                }));
            }
        }
    }
    draw(&columns, 1)
}

fn column(name: &str, rows: &[Row], cell: impl Fn(&Row, Option<&Row>) -> String) -> Vec<String> {
    let cells = pairs(rows).map(|(ours, seed)| cell(ours, seed));
    [name.to_owned()].into_iter().chain(cells).collect()
}

/// Renders the runs of every variant one by one, ours beside the seed's, as the seed prints them.
pub fn table_of_runs(rows: &[Row]) -> String {
    let header = [
        "variant", "run", "mean_ms", SEED, "min_ms", SEED, "max_ms", SEED,
    ];
    let mut columns = header.map(|name| vec![name.to_owned()]);
    for (ours, seed) in pairs(rows) {
        for (index, run) in ours.runs.iter().enumerate() {
            let theirs = seed.and_then(|seed| seed.runs.get(index));
            let mut cells = vec![ours.case.variant.clone(), (index + 1).to_string()];
            for name in ["mean_ms", "min_ms", "max_ms"] {
                cells.push(number(run.get(name).copied(), 3));
                cells.push(number(theirs.and_then(|run| run.get(name)).copied(), 3));
            }
            columns
                .iter_mut()
                .zip(cells)
                .for_each(|(column, cell)| column.push(cell));
        }
    }
    draw(&columns, 1)
}
