//! The tables for people: one for each family of scenarios, a row for each case, a column for each
//! figure that some case of the family has, and how many times the limit each case takes.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::{Metric, Row};
use crate::choice::Family;

/// Columns that a table may have on the screen.
pub const WIDTH: usize = 110;

/// What stands where a subject cannot have a figure.
const ABSENT: &str = "-";

/// Renders the rows, family by family, each below the line that says what it is; as one table where
/// there are no scenarios.
pub fn render(rows: &[Row], metrics: &[Metric], families: &[Family]) -> String {
    if families.is_empty() {
        return tables(&rows.iter().collect::<Vec<_>>(), metrics).join("\n\n");
    }
    let mut text = Vec::new();
    for family in families {
        let of_family = |row: &&Row| {
            let scenario = row.case.scenario.as_deref();
            scenario.is_some_and(|scenario| family.names.contains(&scenario))
        };
        let rows: Vec<&Row> = rows.iter().filter(of_family).collect();
        if !rows.is_empty() {
            text.push(family.about.to_owned());
            text.extend(tables(&rows, metrics));
        }
    }
    text.join("\n\n")
}

/// Renders the rows of a family. Figures that find no place in the first table have another.
fn tables(rows: &[&Row], metrics: &[Metric]) -> Vec<String> {
    let names = names(rows);
    let mut tables: Vec<Vec<Vec<String>>> = Vec::new();
    for columns in figures(rows, metrics) {
        match tables.last_mut() {
            Some(table) if 1 + width(table) + width(&columns) <= WIDTH => table.extend(columns),
            _ => tables.push(names.iter().cloned().chain(columns).collect()),
        }
    }
    tables
        .iter()
        .map(|columns| draw(columns, names.len()))
        .collect()
}

/// Returns the columns that say which case a row is of.
fn names(rows: &[&Row]) -> Vec<Vec<String>> {
    let column = |name: &str, of: fn(&Row) -> &str| {
        let cells = rows.iter().map(|row| of(row).to_owned());
        [name.to_owned()].into_iter().chain(cells).collect()
    };
    let scenario: fn(&Row) -> &str = |row| row.case.scenario.as_deref().unwrap_or(ABSENT);
    let has_scenarios = rows.iter().any(|row| row.case.scenario.is_some());
    let scenarios = has_scenarios.then(|| column("scenario", scenario));
    scenarios
        .into_iter()
        .chain([
            column("subject", |row| &row.case.subject),
            column("variant", |row| &row.case.variant),
        ])
        .collect()
}

/// Returns a column for each figure that some row has. Beside the first one stands its ratio to that
/// of the same scenario's row whose subject is `limit`.
fn figures(rows: &[&Row], metrics: &[Metric]) -> Vec<Vec<Vec<String>>> {
    let of = |row: &Row, metric: &Metric| row.metrics.get(metric.name).copied();
    let limit = |row: &Row, metric: &Metric| {
        let is_limit = |other: &&&Row| {
            other.case.subject == "limit" && other.case.scenario == row.case.scenario
        };
        of(rows.iter().find(is_limit)?, metric)
    };
    let column = |name: &str, decimals: usize, value: &dyn Fn(&Row) -> Option<f64>| {
        let cell = |row: &&Row| number(value(row), decimals);
        let cells: Vec<String> = rows.iter().map(cell).collect();
        let has_values = cells.iter().any(|cell| cell != ABSENT);
        has_values.then(|| [name.to_owned()].into_iter().chain(cells).collect())
    };
    let mut columns: Vec<Vec<Vec<String>>> = Vec::new();
    for metric in metrics {
        let Some(figures) = column(metric.name, metric.decimals, &|row| of(row, metric)) else {
            continue;
        };
        let ratio = |row: &Row| Some(of(row, metric)? / limit(row, metric)?);
        let ratios = if columns.is_empty() {
            column("x limit", 2, &ratio)
        } else {
            None
        };
        columns.push([Some(figures), ratios].into_iter().flatten().collect());
    }
    columns
}

/// Returns the width of columns with the blanks and a line beside each.
fn width(columns: &[Vec<String>]) -> usize {
    let widest = |column: &Vec<String>| column.iter().map(String::len).max().unwrap_or(0);
    columns.iter().map(|column| 3 + widest(column)).sum()
}

/// Formats a figure; a dash stands for none.
pub fn number(value: Option<f64>, decimals: usize) -> String {
    value.map_or_else(|| ABSENT.to_owned(), |value| format!("{value:.decimals$}"))
}

/// Draws a table by columns, whose first lines are headers: `names` columns at the left, the others,
/// of figures, at the right.
pub fn draw(columns: &[Vec<String>], names: usize) -> String {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let line = |index: usize| columns.iter().map(move |column| column[index].as_str());
    table.set_header(line(0));
    for index in 1..columns[0].len() {
        table.add_row(line(index).enumerate().map(|(column, text)| {
            let is_name = column < names;
            Cell::new(text).set_alignment(if is_name {
                CellAlignment::Left
            } else {
                CellAlignment::Right
            })
        }));
    }
    table.to_string()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use crate::choice::families;
    use crate::output::metrics as table_of;
    use crate::run::{Case, metrics};

    fn row(subject: &str, scenario: Option<&str>, figures: &[(&str, f64)]) -> Row {
        Row::new(
            Case::new(subject, "default", scenario),
            metrics(figures.iter().copied()),
        )
    }

    /// The lines of cells of a text with tables, headers included.
    pub fn cells(text: &str) -> Vec<Vec<String>> {
        let lines = text.lines().filter(|line| line.starts_with("| "));
        let cells = |line: &str| {
            let cells = line.trim_matches('|').split('|');
            cells.map(|cell| cell.trim().to_owned()).collect()
        };
        lines.map(cells).collect()
    }

    /// Every table of a text fits, and has no column without a value.
    #[track_caller]
    pub fn assert_fits(text: &str) {
        for line in text.lines() {
            assert!(line.chars().count() <= WIDTH, "{}: {line}", line.len());
        }
        for table in text.split("\n\n").filter(|table| table.starts_with('|')) {
            let lines = cells(table);
            for (index, name) in lines[0].iter().enumerate() {
                let has_value = lines[1..].iter().any(|line| line[index] != ABSENT);
                assert!(has_value, "nothing in the column {name}:\n{table}");
            }
        }
    }

    const METRICS: &[Metric] = table_of! {
        "mean_us" 1 "a mean";
        "reads_per_s" 0 "a rate";
    };
    const FAMILIES: &[Family] = families! {
        "idle", "idle16" => "Waits.";
        "busy" => "Reads.";
    };

    #[test]
    fn each_family_has_a_table_and_each_scenario_its_limit() {
        let rows = [
            row("stillpoint", Some("idle"), &[("mean_us", 6.0)]),
            row("limit", Some("idle"), &[("mean_us", 2.0)]),
            row("stillpoint", Some("busy"), &[("reads_per_s", 6.0)]),
            row("limit", Some("busy"), &[("reads_per_s", 4.0)]),
            row("stillpoint", Some("idle16"), &[("mean_us", 6.0)]),
        ];
        let text = render(&rows, METRICS, FAMILIES);
        assert_fits(&text);
        let expected = [
            ["scenario", "subject", "variant", "mean_us", "x limit"],
            ["idle", "stillpoint", "default", "6.0", "3.00"],
            ["idle", "limit", "default", "2.0", "1.00"],
            ["idle16", "stillpoint", "default", "6.0", "-"],
            ["scenario", "subject", "variant", "reads_per_s", "x limit"],
            ["busy", "stillpoint", "default", "6", "1.50"],
            ["busy", "limit", "default", "4", "1.00"],
        ];
        assert_eq!(cells(&text), expected);
        assert!(text.starts_with("Waits.\n\n|") && text.contains("\n\nReads.\n\n|"));
    }

    #[test]
    fn without_scenarios_and_without_a_limit_there_is_no_column_for_them() {
        let rows = [row("stillpoint", None, &[("mean_us", 2.0)])];
        let text = render(&rows, METRICS, &[]);
        assert_eq!(
            cells(&text),
            [
                ["subject", "variant", "mean_us"],
                ["stillpoint", "default", "2.0"]
            ]
        );
    }
}
