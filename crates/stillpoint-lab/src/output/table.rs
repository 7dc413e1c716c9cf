//! The table for people: a row for each case, a column for each figure, and how many times the
//! limit each case takes.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::{Metric, Row};

/// What stands where a subject cannot have a figure.
const ABSENT: &str = "-";

/// The rows as a table, the scenario first where there is one. Behind the first figure, the one
/// that the experiment is about, stands its ratio to that of the same scenario's row whose subject
/// is `limit`.
pub fn render(rows: &[Row], metrics: &[Metric]) -> String {
    let (first, others) = metrics.split_first().expect("an experiment has a figure");
    let scenarios = rows.iter().any(|row| row.case.scenario.is_some());

    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let header = scenarios
        .then_some("scenario")
        .into_iter()
        .chain(["subject", "variant", first.name, "x limit"]);
    table.set_header(header.chain(others.iter().map(|metric| metric.name)));
    for row in rows {
        let ratio = row
            .metrics
            .get(first.name)
            .zip(limit_of(row, rows, first))
            .map(|(figure, limit)| figure / limit);
        let mut cells = Vec::new();
        if scenarios {
            cells.push(Cell::new(row.case.scenario.as_deref().unwrap_or(ABSENT)));
        }
        cells.extend([Cell::new(&row.case.subject), Cell::new(&row.case.variant)]);
        cells.push(figure(row, first));
        cells.push(number(ratio, 2));
        cells.extend(others.iter().map(|metric| figure(row, metric)));
        table.add_row(cells);
    }
    table.to_string()
}

/// The figure of the limit in the scenario of `row`.
fn limit_of(row: &Row, rows: &[Row], metric: &Metric) -> Option<f64> {
    let is_limit =
        |other: &&Row| other.case.subject == "limit" && other.case.scenario == row.case.scenario;
    rows.iter()
        .find(is_limit)?
        .metrics
        .get(metric.name)
        .copied()
}

fn figure(row: &Row, metric: &Metric) -> Cell {
    number(row.metrics.get(metric.name).copied(), metric.decimals)
}

fn number(value: Option<f64>, decimals: usize) -> Cell {
    let text = value.map_or_else(|| ABSENT.to_owned(), |value| format!("{value:.decimals$}"));
    Cell::new(text).set_alignment(CellAlignment::Right)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::{Case, Metrics};

    const MEAN: &[Metric] = &[Metric {
        name: "mean_us",
        decimals: 1,
    }];

    fn row(subject: &str, scenario: Option<&str>, mean_us: f64) -> Row {
        let case = Case {
            subject: subject.to_owned(),
            variant: "default".to_owned(),
            scenario: scenario.map(ToOwned::to_owned),
        };
        Row::new(case, Metrics::from([("mean_us".to_owned(), mean_us)]))
    }

    /// The table's cells, without the header and the rule below it.
    fn cells(rows: &[Row]) -> Vec<Vec<String>> {
        let cells = |line: &str| {
            line.trim_matches('|')
                .split('|')
                .map(|cell| cell.trim().to_owned())
                .collect()
        };
        render(rows, MEAN).lines().skip(2).map(cells).collect()
    }

    #[test]
    fn each_scenario_has_a_limit_of_its_own() {
        let rows = [
            row("stillpoint", Some("idle"), 6.0),
            row("limit", Some("idle"), 2.0),
            row("stillpoint", Some("busy"), 6.0),
            row("limit", Some("busy"), 4.0),
        ];
        let cells = cells(&rows);
        assert_eq!(cells[0], ["idle", "stillpoint", "default", "6.0", "3.00"]);
        assert_eq!(cells[2], ["busy", "stillpoint", "default", "6.0", "1.50"]);
    }

    #[test]
    fn without_scenarios_there_is_no_column_for_them() {
        assert_eq!(
            cells(&[row("limit", None, 2.0)]),
            [["limit", "default", "2.0", "1.00"]]
        );
    }
}
