//! The page: a head with Stillpoint's place among the others, a section for each experiment, the
//! torture, the machine, and last the kernel's patches and their counterparts.

use std::collections::BTreeSet;

use anyhow::Result;
use maud::{DOCTYPE, Markup, PreEscaped, html};

use super::charts::{Better, Chart, labelled};
use super::stored::{Row, Stored};
use super::{head, names, patches, torture};
use crate::output::numbers::{Unit, significant};
use crate::output::plot::{self, Axes, Bar, Line, Panel, Tone};

const STYLE: &str = include_str!("style.css");

/// A section of the page.
pub struct Section {
    /// Its anchor.
    pub id: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// The parts of the report that it shows.
    pub parts: Vec<&'static str>,
    /// The commands that repeat them.
    pub commands: Vec<String>,
    /// What it shows.
    pub body: Markup,
}

/// The parts of a section about an experiment.
struct Experiment {
    part: &'static str,
    title: &'static str,
    about: &'static str,
    charts: &'static [Chart],
}

/// Returns a table of experiments: part, title and explanation of each, and a line for each of its charts: title,
/// scenario, figure, unit, which way is better, Stillpoint's variant in the head, and by which figure a peer's best
/// variant is chosen for the picture.
macro_rules! experiments {
    ($($part:literal, $title:literal, $about:literal: $([$name:literal, $scenario:expr, $metric:literal, $unit:ident, $better:ident,
        $ours:literal, $pictured_by:literal])+)*) => {
        [$(Experiment {
            part: $part,
            title: $title,
            about: $about,
            charts: &[$(Chart {
                title: $name,
                scenario: $scenario,
                metric: $metric,
                unit: Unit::$unit,
                better: Better::$better,
                ours: $ours,
                pictured_by: $pictured_by,
            }),+],
        }),*]
    };
}

static EXPERIMENTS: [Experiment; 10] = experiments! {
    "read", "Read",
        "One thread enters and leaves an empty read section, again and again. The limit is the loop without a section. Readers of \
        qsbr report quiescent states now and then, and pay nothing for a section; trace-owned is a guard that a task may hold across \
        an await.":
        ["Enter and leave a read section", Some("alone"), "ns_per_pair", Nanoseconds, Less, "guard", "ns_per_pair"]

    "kfree", "Free",
        "Sixteen threads allocate objects of 32 bytes and retire each at once. An object is freed when no reader can still hold it. \
        Stillpoint waits for a grace period per page of objects; one grace period for all is how the kernel did it before its patch; \
        call queues a callback per object. The limit frees at once and waits for no reader. Memory is what the process gained over \
        its start, the objects just allocated included.":
        ["Allocate an object and free it later", None, "ns_per_object", Nanoseconds, Less, "per-page", "ns_per_object"]
        ["Peak unreclaimed memory meanwhile", None, "peak_mib", Mebibytes, Less, "per-page", "ns_per_object"]

    "sync", "Wait",
        "An updater has removed something and waits until no reader can still hold it. As a callback is a wait that a service thread \
        ends, as the kernel's was before direct wake-ups. The limit is a bare expedited membarrier.":
        ["Wait beside 1,000 sleeping threads", Some("idle1000"), "mean_us", Microseconds, Less, "rcu", "mean_us"]
        ["From queueing a callback to its call", Some("callback"), "mean_us", Microseconds, Less, "rcu", ""]

    "trace", "Readers that sleep",
        "Read sections that block, sleep, or are held by a task across an await. Readers of read-mb fence, so that grace periods \
        interrupt no processor; by default readers do not fence. Ten thousand tasks hold a section across a timer of 1 to 10 ms while \
        a thread replaces what they read; their limit reads something that never changes.":
        ["Sections of 10,000 tasks", Some("async10000"), "reads_per_s", PerSecond, More, "native", ""]

    "lru", "LRU lists of many tenants",
        "A thread that is short of memory asks every list of every tenant how much it has: here 40 lists of 1,000 tenants, while \
        others add and delete. One spinlock and one mutex are a lock for all tenants of a list, as the kernel had; the limit has \
        counters and no lists.":
        ["Counts: 14 threads count, 2 change lists", Some("threads-16"), "counts_per_s", PerSecond, More, "rcu", ""]

    "vmap", "An address space",
        "Which area is around this address, and is it still allocated? A server may ask that before every copy. One spinlock, per \
        node and so on ask a tree under locks, as the kernel did; with no check it does not ask. The limit of a look-up is an array.":
        ["Find the area around an address", Some("find-100000"), "find_ns", Nanoseconds, Less, "rcu", ""]
        ["Check and copy 4 KiB, 16 threads", Some("copy-4096"), "requests_per_s", PerSecond, More, "rcu", ""]

    "map", "Hash maps",
        "Two threads use one map from numbers to numbers, in the mixes of conc-map-bench; all maps hash alike. The limit is a map for \
        each thread, without any synchronization.":
        ["98 % reads by two threads", Some("readheavy-2"), "ops_per_s", PerSecond, More, "hash", ""]

    "epoch", "Programs on crossbeam-epoch",
        "Stillpoint has a package with the interface of crossbeam-epoch, which takes its place by one line. The same program is built \
        with either; what is shown is the processor time of all its threads. Nofence is for programs that need no fence in a pin. The \
        limit takes no guard and frees at once.":
        ["Make a box and defer its end, two threads", Some("box-2"), "cpu_ns_per_op", Nanoseconds, Less, "drop-in", ""]

    "cache", "Caches",
        "Two threads use one cache from numbers to numbers. Beside a neighbour that scans, a tenant of Stillpoint's has a guaranteed \
        minimum; with a peer both use one cache.":
        ["Reads by two threads, all hits", Some("read-2"), "ops_per_s", PerSecond, More, "default", ""]

    "server", "Cache servers",
        "A client on one processor asks a server on another over a Unix socket: stillcache, and the memcached and redis that the \
        system has. Beside a neighbour that floods, a tenant of stillcache has a guaranteed minimum; with the others both use one key \
        space.":
        ["A get: the server's processor time", Some("get-1"), "cpu_us_per_op", Microseconds, Less, "stillcache", ""]
};

/// Returns the charts of all experiments, each with its part.
pub fn charts() -> impl Iterator<Item = (&'static str, &'static Chart)> {
    let of = |one: &'static Experiment| one.charts.iter().map(|chart| (one.part, chart));
    EXPERIMENTS.iter().flat_map(of)
}

/// Draws the page of a report.
pub fn draw(stored: &Stored) -> Result<String> {
    let mut sections = Vec::new();
    for experiment in &EXPERIMENTS {
        sections.extend(experiment.section(stored)?);
    }
    sections.extend(torture::section(stored)?);
    sections.push(head::about(stored));
    sections.extend(patches::section(stored));
    sections.extend(simulated(stored)?);
    let page = html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="light dark";
                title { "Stillpoint: report of " (stored.machine.date) }
                style { (PreEscaped(STYLE)) (PreEscaped(plot::style())) }
            }
            body {
                main {
                    (head::header(stored))
                    nav aria-label="Contents" { @for section in &sections { a href={ "#" (section.id) } { (section.title) } } }
                    @for section in &sections { (section.draw(stored)) }
                }
            }
        }
    };
    Ok(page.into_string())
}

impl Section {
    /// Returns a section of some parts; `None` if none of them has been run.
    pub fn of(
        stored: &Stored,
        id: &'static str,
        title: &'static str,
        parts: &[&'static str],
        body: Markup,
    ) -> Option<Self> {
        let run = || parts.iter().filter_map(|part| stored.part(part));
        (run().count() > 0).then(|| Self {
            id,
            title,
            parts: parts.to_vec(),
            commands: run().map(|part| part.command.clone()).collect(),
            body,
        })
    }

    fn draw(&self, stored: &Stored) -> Markup {
        html! {
            section id=(self.id) {
                h2 { (self.title) }
                @for part in self.parts.iter().filter_map(|part| stored.part(part)) {
                    @if let Some(failure) = &part.failure {
                        div.failed role="note" { p { strong { "Failed: " } code { (part.command) } } pre { (failure) } }
                    }
                }
                (self.body)
                @if !self.commands.is_empty() { p.repeat { span { "Repeat" } @for command in &self.commands { code { (command) } " " } } }
            }
        }
    }
}

impl Experiment {
    fn section(&self, stored: &Stored) -> Result<Option<Section>> {
        let panels = self
            .charts
            .iter()
            .filter_map(|chart| chart.of_all(stored, self.part));
        let charts = panels
            .map(|panel| figure(&[panel]))
            .collect::<Result<Vec<_>>>()?;
        let curve = if self.part == "kfree" {
            memory_over_time(stored)?
        } else {
            Markup::default()
        };
        let body = html! {
            p { (self.about) }
            div.charts { @for chart in &charts { (chart) } (curve) }
            (table(stored, self.part, self.title))
        };
        Ok(Section::of(
            stored,
            self.part,
            self.title,
            &[self.part],
            body,
        ))
    }
}

/// Draws panels below each other, as a figure of the page.
pub fn figure(panels: &[Panel]) -> Result<Markup> {
    Ok(inline(&labelled(&plot::panels(panels, 1, "")?, panels)))
}

/// Puts a picture into the page, where it needs no namespace.
fn inline(svg: &str) -> Markup {
    let svg = svg.replacen(" xmlns=\"http://www.w3.org/2000/svg\"", "", 1);
    html! { figure.chart { (PreEscaped(svg)) } }
}

fn memory_over_time(stored: &Stored) -> Result<Markup> {
    let line = |row| -> Option<Line<'_>> {
        let row: &Row = row;
        Some(Line {
            name: names::name(row),
            subject: &row.subject,
            points: highest(&row.curve.as_ref()?.points),
        })
    };
    let lines: Vec<Line<'_>> = stored.rows_of("kfree").filter_map(line).collect();
    if lines.is_empty() {
        return Ok(Markup::default());
    }
    let axes = Axes {
        size: (360, 300),
        title: "Unreclaimed memory over time",
        names: ["seconds since the start", "MiB above the start"],
        across: &[],
        floor: Some(plot::FLOOR_MIB),
    };
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    let label = html! { (axes.title) ", less is better: " (names.join(", ")) }.into_string();
    let svg = plot::curves(&axes, &lines, false)?;
    let label = format!("<svg role=\"img\" aria-label=\"{label}\"");
    Ok(inline(&svg.replacen("<svg", &label, 1)))
}

/// Thins a curve to about `POINTS` points: of adjacent ones the highest stays.
fn highest(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    const POINTS: usize = 160;
    let stride = points.len().div_ceil(POINTS).max(1);
    let highest = |slice: &[(f64, f64)]| slice.iter().copied().max_by(|a, b| a.1.total_cmp(&b.1));
    points.chunks(stride).filter_map(highest).collect()
}

/// Draws all figures of a part, folded up: a table for scenarios with the same figures.
pub fn table(stored: &Stored, part: &str, caption: &str) -> Markup {
    let mut tables: Vec<(BTreeSet<&str>, Vec<&Row>)> = Vec::new();
    for row in stored.rows_of(part).filter(|row| !row.metrics.is_empty()) {
        let scene = stored.scene(part, row.scenario.as_deref());
        let metrics = scene
            .flat_map(|row| row.metrics.keys().map(String::as_str))
            .collect();
        match tables.iter_mut().find(|(known, _)| *known == metrics) {
            Some((_, rows)) => rows.push(row),
            None => tables.push((metrics, vec![row])),
        }
    }
    if tables.is_empty() {
        return Markup::default();
    }
    html! {
        details {
            summary { "All figures: " (caption) }
            @for (metrics, rows) in &tables { (table_of(metrics, rows, caption)) }
        }
    }
}

fn table_of(metrics: &BTreeSet<&str>, rows: &[&Row], caption: &str) -> Markup {
    let scenarios = rows.iter().any(|row| row.scenario.is_some());
    let head = html! {
        @if scenarios { th scope="col" { "scenario" } }
        th scope="col" { "subject" }
        th scope="col" { "variant" }
        @for metric in metrics { th.number scope="col" { (breakable(metric)) } }
    };
    let body = html! {
        @for row in rows {
            @let old = names::old(row);
            tr.own[row.is_ours() && old.is_none()] {
                @if scenarios { td { (row.scenario.as_deref().unwrap_or("")) } }
                td { @if old.is_some() { "for comparison" } @else { (row.subject) } }
                td { (row.variant) }
                @for metric in metrics { td.number { (row.figure(metric).map_or_else(|| "–".to_owned(), significant)) } }
            }
        }
    };
    scrolling(&format!("All figures: {caption}"), &head, &body)
}

/// Draws a table that scrolls in a narrow window.
pub fn scrolling(label: &str, head: &Markup, body: &Markup) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(label) {
            table { thead { tr { (head) } } tbody { (body) } }
        }
    }
}

/// Lets a name break into lines after each part.
fn breakable(name: &str) -> Markup {
    html! { @for (index, part) in name.split('_').enumerate() { @if index > 0 { "_" (PreEscaped("<wbr>")) } (part) } }
}

/// Draws the kernel's simulated timing beside the measurements of the patches' authors.
fn simulated(stored: &Stored) -> Result<Option<Section>> {
    const PARTS: [(&str, &str, &str); 3] = [
        (
            "sim-sync",
            "mean_ms",
            "Mean synchronize_rcu(), 32 idle CPUs",
        ),
        ("sim-bridge", "p50_ms", "Median wait, a bridge on 64 CPUs"),
        ("sim-trace", "mean_ms", "Mean RCU Tasks Trace wait by patch"),
    ];
    let mut charts = Vec::new();
    for (part, metric, title) in PARTS {
        let mut bars = Vec::new();
        for row in stored.rows_of(part).filter(|row| row.is_ours()) {
            let seed = stored.row(part, row.scenario.as_deref(), "seed", &row.variant);
            for (row, tone, how) in [
                (seed, Tone::Authors, "authors"),
                (Some(row), Tone::Simulated, "simulated"),
            ] {
                let value = row.and_then(|row| Some((row, row.figure(metric)?)));
                bars.extend(value.map(|(row, value)| Bar {
                    name: format!("{}, {how}", row.variant),
                    tone,
                    value,
                    text: Unit::Milliseconds.show(value),
                    spread: None,
                }));
            }
        }
        if !bars.is_empty() {
            charts.push(figure(&[Panel {
                title: title.to_owned(),
                how: "less is better".to_owned(),
                bars,
            }])?);
        }
    }
    let body = html! {
        p {
            "The patches were measured on machines with 32 and 64 CPUs. The simulation has the kernel's machinery in virtual time: ticks, idle states, the "
            "timer wheel, the tree of CPUs, the grace-period thread. Its constants are the kernel's; a few that no source gives were chosen to fit, which "
            code { "stillpoint sim sync --help" } " lists. So agreement says that the mechanism explains the figures, and does not predict other machines'."
        }
        div.charts { @for chart in &charts { (chart) } }
        @for (part, _, title) in PARTS { (table(stored, part, title)) }
    };
    let parts = PARTS.map(|(part, ..)| part);
    Ok(Section::of(
        stored,
        "simulated",
        "The kernel's timing, simulated",
        &parts,
        body,
    ))
}
