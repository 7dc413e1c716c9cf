//! All figures of a part, as a table: folded up, since the charts come first.

use maud::{Markup, PreEscaped, html};

use super::names;
use crate::report::draw::significant;
use crate::report::stored::{Row, Stored};

/// The table of a part's figures; nothing where it has none.
pub fn all(stored: &Stored, part: &str, caption: &str) -> Markup {
    let rows: Vec<&Row> = stored.rows_of(part).collect();
    let mut metrics: Vec<&str> = Vec::new();
    for name in rows.iter().flat_map(|row| row.metrics.keys()) {
        if !metrics.contains(&name.as_str()) {
            metrics.push(name);
        }
    }
    if metrics.is_empty() {
        return Markup::default();
    }
    let scenarios = rows.iter().any(|row| row.scenario.is_some());
    html! {
        details {
            summary { "All figures: " (caption) }
            div.scroll tabindex="0" role="region" aria-label={ "All figures: " (caption) } {
                table {
                    thead {
                        tr {
                            @if scenarios { th scope="col" { "scenario" } }
                            th scope="col" { "subject" }
                            th scope="col" { "variant" }
                            @for metric in &metrics { th.number scope="col" { (breakable(metric)) } }
                        }
                    }
                    tbody {
                        @for row in &rows {
                            @let old = names::old(row);
                            tr.own[row.is_ours() && old.is_none()] {
                                @if scenarios { td { (row.scenario.as_deref().unwrap_or("")) } }
                                td { @if old.is_some() { "for comparison" } @else { (row.subject) } }
                                td { (row.variant) }
                                @for metric in &metrics { td.number { (row.figure(metric).map_or_else(|| "–".to_owned(), significant)) } }
                            }
                        }
                    }
                }
            }
        }
    }
}

/// A name that may be broken into lines after each part.
fn breakable(name: &str) -> Markup {
    html! { @for (index, part) in name.split('_').enumerate() { @if index > 0 { "_" (PreEscaped("<wbr>")) } (part) } }
}
