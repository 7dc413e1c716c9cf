//! The page of merged results: what went wrong and how to repeat it first, then the figures.

use std::collections::BTreeMap;

use maud::{Markup, html};

use super::torture;
use super::{Section, frame};
use crate::machine::program;
use crate::merge::merged::{Merged, Named, Property, Row};
use crate::report::draw::{Curve, Curves, Unit, significant};

/// The longest list that the page shows; the JSON has all.
const MOST_SHOWN: usize = 200;

/// The page.
pub fn draw(merged: &Merged) -> String {
    let title = format!("{} results of {}", merged.counts.merged, merged.params.of);
    let sections = [
        failures(merged),
        incomplete(merged),
        properties(merged),
        tortured(merged),
        curves(merged),
        figures(merged),
        machines(merged),
    ];
    let sections: Vec<Section> = sections.into_iter().flatten().collect();
    frame(&title, &header(merged, &title), &sections, |section| {
        section.draw_alone()
    })
}

fn section(id: &'static str, title: &'static str, body: Markup) -> Option<Section> {
    Some(Section {
        id,
        title,
        parts: Vec::new(),
        commands: Vec::new(),
        body,
    })
}

fn header(merged: &Merged, title: &str) -> Markup {
    let counts = &merged.counts;
    let tiles = [
        ("Runs", counts.runs, false, "in the figures"),
        ("Failed", counts.failures, counts.failures > 0, "runs"),
        (
            "Missing",
            counts.missing,
            counts.missing > 0,
            "indices of the job array",
        ),
        (
            "Broken off",
            counts.partial,
            counts.partial > 0,
            "runs that did not come to their end",
        ),
        (
            "Unreadable",
            counts.unreadable,
            counts.unreadable > 0,
            "files",
        ),
        (
            "Properties that do not hold",
            counts.broken_properties,
            counts.broken_properties > 0,
            "over the sweep",
        ),
    ];
    html! {
        header {
            p.brand { "Stillpoint" }
            h1 { (title) }
            p.lead {
                @if counts.is_clean() { "All runs that were asked for are here, and none failed." }
                @else { "Something went wrong, or is missing: see below." }
            }
            div.tiles {
                @for (name, count, bad, what) in tiles {
                    div.tile.bad[bad] { h2 { (name) } p.figure { (torture::counted("", count as f64)) } p { (what) } }
                }
            }
        }
    }
}

fn table(label: &str, heads: &[&str], rows: impl Iterator<Item = Vec<Markup>>) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) {
            table {
                thead { tr { @for head in heads { th scope="col" { (head) } } } }
                tbody { @for cells in rows { tr { @for cell in cells { td.text { (cell) } } } } }
            }
        }
    }
}

/// A list's first items, and how many more there are.
fn first<T>(items: &[T], count: u64) -> (&[T], Option<String>) {
    let shown = &items[..items.len().min(MOST_SHOWN)];
    let more = count.saturating_sub(shown.len() as u64);
    (
        shown,
        (more > 0).then(|| format!("{more} more are in the JSON file, or were too many for it.")),
    )
}

fn failures(merged: &Merged) -> Option<Section> {
    if merged.failures.is_empty() {
        return None;
    }
    let (shown, more) = first(&merged.failures, merged.counts.failures);
    let rows = shown.iter().map(|failure| {
        let index = failure
            .index
            .map_or_else(String::new, |index| index.to_string());
        let program = program(&failure.ran.version, failure.ran.commit.as_deref());
        vec![
            html! { (index) },
            html! { (failure.flavour) },
            html! { (failure.what) },
            html! { code { (failure.command) } br; (program) },
            html! { (failure.file) },
        ]
    });
    let body = html! {
        p { "Each command makes the same choices again; the schedule is the system's. " code { "stillpoint torture --replay FILE" } " runs all of them." }
        (table("Runs that failed", &["index", "flavour", "found", "to do the same again", "file"], rows))
        @if let Some(more) = more { p.note { (more) } }
    };
    section("failures", "Failures", body)
}

fn incomplete(merged: &Merged) -> Option<Section> {
    let counts = &merged.counts;
    if counts.missing + counts.partial + counts.duplicates + counts.unreadable == 0 {
        return None;
    }
    let list = |title: &str, named: &[Named], count: u64| {
        let (shown, more) = first(named, count);
        let rows = shown
            .iter()
            .map(|Named { file, why }| vec![html! { (file) }, html! { (why) }]);
        html! {
            @if count > 0 {
                h3 { (title) }
                (table(title, &["file", "why"], rows))
                @if let Some(more) = more { p.note { (more) } }
            }
        }
    };
    let (missing, _) = first(&merged.missing, counts.missing);
    let body = html! {
        @if counts.missing > 0 {
            p { "Of the job array " (merged.params.indices.as_deref().unwrap_or("")) ", " b { (counts.missing) } " indices have no result: " (missing.join(", "))
                @if missing.len() < merged.missing.len() { " and more" } "." }
        }
        (list("Broken off", &merged.partial, counts.partial))
        (list("Left out, because another file has the same", &merged.duplicates, counts.duplicates))
        (list("Unreadable", &merged.unreadable, counts.unreadable))
    };
    section("incomplete", "What is missing", body)
}

fn properties(merged: &Merged) -> Option<Section> {
    if merged.properties.is_empty() {
        return None;
    }
    let rows = merged.properties.iter().map(|property| {
        let Property {
            name,
            holds,
            looked_at,
            broken_at,
        } = property;
        let verdict = if *holds {
            "holds".to_owned()
        } else {
            format!("does not hold: {}", broken_at.join("; "))
        };
        vec![html! { (name) }, html! { (looked_at) }, html! { (verdict) }]
    });
    let body = table(
        "Properties of the sweep",
        &["property", "looked at", "verdict"],
        rows,
    );
    section("properties", "Properties of the sweep", body)
}

fn tortured(merged: &Merged) -> Option<Section> {
    if merged.params.of != "torture" {
        return None;
    }
    let body = html! {
        p { "Sums over all runs of a flavour." }
        div.scroll tabindex="0" role="region" aria-label="Sums of the torture" {
            table {
                thead { tr { th scope="col" { "flavour" } th.number scope="col" { "runs" } @for (_, name) in torture::COUNTS { th.number scope="col" { (name) } } } }
                tbody {
                    @for row in &merged.rows {
                        tr {
                            th scope="row" { (row.variant) }
                            td.number { (row.runs) }
                            @for (metric, _) in torture::COUNTS {
                                td.number { (row.figure(metric).map_or_else(|| "–".to_owned(), |count| torture::counted(metric, count))) }
                            }
                        }
                    }
                }
            }
        }
    };
    section("torture", "Torture", body)
}

/// What the lines of a sweep are of: the headline figure, its unit, and what the points differ by.
fn headline(of: &str) -> Option<(&'static str, Unit, &'static str, &'static str)> {
    Some(match of {
        "sim sync" | "sim trace" => ("mean_ms", Unit::Milliseconds, "cpus", "CPUs"),
        "sim bridge" => ("p50_ms", Unit::Milliseconds, "cpus", "CPUs"),
        "scale contention" => (
            "modelled_ns_per_op",
            Unit::Nanoseconds,
            "beside",
            "registered threads",
        ),
        _ => return None,
    })
}

/// What is the same along a chart's lines: the scenario, and each other parameter, as a number to
/// be ordered by and as text.
type Chosen = (String, Vec<(String, u64, String)>);

fn curves(merged: &Merged) -> Option<Section> {
    let (metric, unit, parameter, x) = headline(&merged.params.of)?;
    // A chart for each of what else the points differ by, and for each scenario.
    let mut charts: BTreeMap<Chosen, BTreeMap<String, Vec<(f64, f64)>>> = BTreeMap::new();
    for row in &merged.rows {
        let (Some(at), Some(figure)) = (row.at(parameter), row.figure(metric)) else {
            continue;
        };
        let others = row.point.keys().filter(|name| *name != parameter);
        let others = others.map(|name| {
            let number = row.at(name).unwrap_or_default() as u64;
            (name.clone(), number, row.point[name].to_string())
        });
        let key = (
            row.scenario.clone().unwrap_or_default(),
            others.collect::<Vec<_>>(),
        );
        let lines = charts.entry(key).or_default();
        lines.entry(name_of(row)).or_default().push((at, figure));
    }
    if merged.params.of == "scale contention" {
        charts.extend(processors(&merged.rows, metric));
    }
    let drawn = charts.into_iter().map(|((scenario, others), lines)| {
        let others = others.iter().map(|(name, _, value)| match name.as_str() {
            "hz" => format!("{value} Hz"),
            name => format!("{name} {value}"),
        });
        let scenario = Some(scenario).filter(|scenario| !scenario.is_empty());
        let title: Vec<String> = [metric.to_owned()]
            .into_iter()
            .chain(scenario.clone())
            .chain(others)
            .collect();
        let x = match scenario.as_deref() {
            Some(MODEL) => "processors",
            _ => x,
        };
        Curves {
            title: &title.join(", "),
            x,
            unit,
            lines: lines
                .into_iter()
                .map(|(name, points)| Curve { name, points })
                .collect(),
        }
        .draw()
    });
    let drawn: Vec<Markup> = drawn.filter(|chart| !chart.0.is_empty()).collect();
    if drawn.is_empty() {
        return None;
    }
    let body = html! { div.charts { @for chart in drawn { (chart) } } };
    section("curves", "Over the sweep", body)
}

/// What stands for the scenarios of the engine's model, `model-1` to `model-256`.
const MODEL: &str = "retire, by the model";

type Chart = (Chosen, BTreeMap<String, Vec<(f64, f64)>>);

/// The engine's model: a line for each subject and number of registered threads.
fn processors(rows: &[Row], metric: &str) -> Option<Chart> {
    let mut lines: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
    for row in rows {
        let number = row
            .scenario
            .as_deref()
            .and_then(|name| name.strip_prefix("model-"));
        let Some((number, figure)) = number.and_then(|n| n.parse().ok()).zip(row.figure(metric))
        else {
            continue;
        };
        // Of several numbers of registered threads, the worst.
        let points = lines.entry(name_of(row)).or_default();
        match points.iter_mut().find(|(at, _)| *at == number) {
            Some((_, most)) => *most = most.max(figure),
            None => points.push((number, figure)),
        }
    }
    lines
        .values_mut()
        .for_each(|points| points.sort_by(|a, b| a.0.total_cmp(&b.0)));
    (!lines.is_empty()).then(|| ((MODEL.to_owned(), Vec::new()), lines))
}

fn name_of(row: &Row) -> String {
    match (row.subject.as_str(), row.variant.as_str()) {
        ("stillpoint", variant) => variant.to_owned(),
        (subject, "default") => subject.to_owned(),
        (subject, variant) => format!("{subject} {variant}"),
    }
}

fn figures(merged: &Merged) -> Option<Section> {
    if merged.params.of == "torture" || merged.rows.is_empty() {
        return None;
    }
    let mut metrics: Vec<&str> = Vec::new();
    let mut points: Vec<&str> = Vec::new();
    for row in &merged.rows {
        for (list, names) in [
            (&mut metrics, row.metrics.keys().collect::<Vec<_>>()),
            (&mut points, row.point.keys().collect()),
        ] {
            for name in names {
                if !list.contains(&name.as_str()) {
                    list.push(name);
                }
            }
        }
    }
    let scenarios = merged.rows.iter().any(|row| row.scenario.is_some());
    let (shown, more) = first(&merged.rows, merged.rows.len() as u64);
    let body = html! {
        p { "Means over the files, and in brackets the worst of them." }
        details {
            summary { "All figures" }
            div.scroll tabindex="0" role="region" aria-label="All figures" {
                table {
                    thead { tr {
                        @if scenarios { th scope="col" { "scenario" } }
                        th scope="col" { "case" }
                        @for name in &points { th scope="col" { (name) } }
                        th.number scope="col" { "runs" }
                        @for name in &metrics { th.number scope="col" { (super::table::breakable(name)) } }
                    } }
                    tbody {
                        @for row in shown {
                            tr {
                                @if scenarios { td { (row.scenario.as_deref().unwrap_or("")) } }
                                td { (name_of(row)) }
                                @for name in &points { td { (row.point.get(*name).map_or_else(String::new, ToString::to_string)) } }
                                td.number { (row.runs) }
                                @for name in &metrics { td.number { (with_worst(row, name)) } }
                            }
                        }
                    }
                }
            }
            @if let Some(more) = more { p.note { (more) } }
        }
    };
    section("figures", "Figures", body)
}

fn with_worst(row: &Row, metric: &str) -> String {
    let Some(figure) = row.figure(metric) else {
        return "–".to_owned();
    };
    match row.worst.get(metric) {
        Some(worst) if row.runs > 1 => {
            format!("{} ({})", significant(figure), significant(worst.value))
        }
        _ => significant(figure),
    }
}

fn machines(merged: &Merged) -> Option<Section> {
    let rows = merged.machines.iter().map(|machine| {
        let ran = &machine.ran;
        vec![
            html! { (machine.files) },
            html! { (ran.cpus) },
            html! { (ran.kernel) },
            html! { @if ran.membarrier { "on" } @else { "off" } },
            html! { (program(&ran.version, ran.commit.as_deref())) },
        ]
    });
    let heads = ["files", "CPUs", "kernel", "membarrier", "program"];
    section(
        "machines",
        "The machines",
        table("The machines", &heads, rows),
    )
}
