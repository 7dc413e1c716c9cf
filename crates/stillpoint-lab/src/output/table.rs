//! The table for people: a row for each case, a column for each figure, and how many times the limit each case takes.

use comfy_table::{Cell, CellAlignment, Table, presets};

use super::{Metric, Row};

/// What stands where a subject cannot have a figure.
const ABSENT: &str = "-";

/// The rows as a table. Behind the first figure, the one that the experiment is about, stands its ratio to that of the row
/// whose subject is `limit`.
pub fn render(rows: &[Row], metrics: &[Metric]) -> String {
    let (first, others) = metrics.split_first().expect("an experiment has a figure");
    let limit = rows.iter().find(|row| row.case.subject == "limit").and_then(|row| row.metrics.get(first.name));

    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let header = ["subject", "variant", first.name, "x limit"];
    table.set_header(header.into_iter().chain(others.iter().map(|metric| metric.name)));
    for row in rows {
        let ratio = row.metrics.get(first.name).zip(limit).map(|(figure, limit)| figure / limit);
        let mut cells = vec![Cell::new(&row.case.subject), Cell::new(&row.case.variant)];
        cells.push(figure(row, first));
        cells.push(number(ratio, 2));
        cells.extend(others.iter().map(|metric| figure(row, metric)));
        table.add_row(cells);
    }
    table.to_string()
}

fn figure(row: &Row, metric: &Metric) -> Cell {
    number(row.metrics.get(metric.name).copied(), metric.decimals)
}

fn number(value: Option<f64>, decimals: usize) -> Cell {
    let text = value.map_or_else(|| ABSENT.to_owned(), |value| format!("{value:.decimals$}"));
    Cell::new(text).set_alignment(CellAlignment::Right)
}
