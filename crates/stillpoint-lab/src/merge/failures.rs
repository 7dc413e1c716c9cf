//! The runs of a torture that failed, each with the command that repeats it.

use std::collections::BTreeMap;

use super::input::{Input, Row};
use super::merged::Failure;
use crate::machine::with_environment;
use crate::torture;
use crate::torture::plan::Plan;

/// What a broken flavour's run is that shows nothing.
const NOT_DETECTED: &str = "not detected";

/// The failures of a file.
pub fn of_file<'i>(file: &'i str, input: &'i Input) -> impl Iterator<Item = Failure> + 'i {
    let runs = input.rows.iter().zip(&input.plans);
    runs.filter_map(move |(row, plan)| failure(file, input, row, plan))
}

fn failure(file: &str, input: &Input, row: &Row, plan: &Plan) -> Option<Failure> {
    let faults: BTreeMap<String, f64> = row
        .metrics
        .iter()
        .filter_map(|(name, &count)| Some((name.strip_prefix("errors_")?.to_owned(), count)))
        .filter(|(_, count)| *count > 0.0)
        .collect();
    let errors = row.metrics.get("errors").copied().unwrap_or_default();
    let must_fail =
        torture::flavours().any(|flavour| flavour.name == plan.flavour && flavour.is_broken());
    let what = if faults.is_empty() && errors > 0.0 {
        format!("errors ({errors})")
    } else if !faults.is_empty() {
        let names = faults
            .iter()
            .map(|(name, count)| format!("{} ({count})", name.replace('_', " ")));
        names.collect::<Vec<_>>().join(", ")
    } else if must_fail && !input.partial {
        NOT_DETECTED.to_owned()
    } else {
        return None;
    };
    Some(Failure {
        file: file.to_owned(),
        index: input.index(),
        flavour: plan.flavour.clone(),
        seed: plan.seed,
        what,
        faults,
        command: with_environment(&plan.command(), &input.ran.environment),
        ran: input.ran.clone(),
        plan: plan.clone(),
    })
}
