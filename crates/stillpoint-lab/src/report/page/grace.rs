//! Waiting for readers.

use maud::{Markup, html};

use super::names::{name, tone};
use super::{Section, bars, table};
use crate::report::authors::{BRIDGE_MEDIAN_MS, SYNC_SUMMARY_MS};
use crate::report::draw::{Better, Pair, Range, Ranges, Side, Tone, Unit, legend};
use crate::report::stored::{Row, Stored};

const PART: &str = "sync";

/// The scenarios: name, and what is timed.
const SCENARIOS: [(&str, &str); 11] = [
    ("idle", "Wait without readers"),
    ("idle16", "Wait beside 16 sleeping threads"),
    ("idle255", "Wait beside 254 sleeping threads"),
    ("idle1000", "Wait beside 1,000 sleeping threads"),
    ("busy1", "Wait beside a thread that always reads"),
    ("busy-oversub", "Wait while two readers fill its two CPUs"),
    ("herd64", "64 threads wait at once: a wait"),
    ("bridge", "400 waits in a row, beside 64 sleeping threads"),
    ("callback", "Callback: from queued to called"),
    ("barrier", "A callback and a barrier behind it"),
    ("poll", "From start_poll() to the first poll() that is true"),
];

/// The scenarios whose waits differ much: name, and where.
const SLOWEST: [(&str, &str); 6] = [
    ("idle1000", "Slowest waits: 1,000 sleeping threads"),
    ("busy1", "Slowest waits: a thread that always reads"),
    ("busy-oversub", "Slowest waits: two readers on its two CPUs"),
    ("herd64", "Slowest waits: 64 threads at once"),
    ("callback", "Slowest callbacks"),
    ("poll", "Slowest polls"),
];

/// The patch's means and medians, simulated and measured beside them.
pub fn pairs(stored: &Stored) -> Vec<Pair> {
    let authors = |title: &str, [before, after]: [f64; 2]| Pair {
        title: title.to_owned(),
        tone: Tone::Authors,
        sides: vec![
            Side::new("before", before, Unit::Milliseconds),
            Side::new("after", after, Unit::Milliseconds),
        ],
    };
    let simulated = |part: &str, metric: &str, title: &str, variants: [&str; 2]| {
        let side = |variant| {
            let figure = stored.figure(part, None, "stillpoint", variant, metric)?;
            Some(Side::new(variant, figure, Unit::Milliseconds))
        };
        Some(Pair {
            title: title.to_owned(),
            tone: Tone::Simulated,
            sides: variants.map(side).into_iter().collect::<Option<_>>()?,
        })
    };
    let measured = || {
        let side = |(variant, name): (&str, &str)| {
            let figure = stored.figure(PART, Some("bridge"), "stillpoint", variant, "mean_us")?;
            Some(Side::new(name, figure, Unit::Microseconds))
        };
        let sides = [("service-led", "as a callback"), ("rcu", "direct")]
            .map(side)
            .into_iter()
            .collect::<Option<_>>()?;
        Some(Pair {
            title: "Here, measured, beside 64 threads that sleep, mean".to_owned(),
            tone: Tone::Accent,
            sides,
        })
    };
    let mut pairs = vec![authors(
        "Kernel's patch, synchronize_rcu() on 32 CPUs, mean",
        SYNC_SUMMARY_MS,
    )];
    pairs.extend(simulated(
        "sim-sync",
        "mean_ms",
        "The same, simulated",
        ["baseline", "fix"],
    ));
    pairs.push(authors(
        "Kernel's patch with direct wake-ups, a bridge on 64 CPUs, median",
        BRIDGE_MEDIAN_MS,
    ));
    pairs.extend(simulated(
        "sim-bridge",
        "p50_ms",
        "The same, simulated",
        ["default", "fix+wake"],
    ));
    pairs.extend(measured());
    pairs
}

/// The section.
pub fn section(stored: &Stored) -> Option<Section> {
    Section::of(stored, "grace", "Wait", &[PART], || body(stored))
}

fn body(stored: &Stored) -> Markup {
    html! {
        p {
            "An updater has removed something and waits until no reader can still hold it. " em { "as a callback" } " is a wait that a service thread ends, as the "
            "kernel's was before direct wake-ups. " em { "kernel" } " is the running kernel's own grace period, by way of membarrier. The " em { "limit" }
            " is a bare expedited membarrier."
        }
        h3 { "On average" }
        div.charts {
            @for (scenario, title) in SCENARIOS { (bars(stored, PART, Some(scenario), title, "mean_us", Unit::Microseconds, Better::Less)) }
            (bars(stored, PART, Some("herd64"), "64 threads wait at once: waits a second", "calls_per_s", Unit::PerSecond, Better::More))
        }
        h3 { "The slowest" }
        (legend())
        div.charts { @for (scenario, title) in SLOWEST { (slowest(stored, scenario, title)) } }
        (table::all(stored, PART, "waiting for readers"))
    }
}

/// How far the waits of each subject are apart, the ones of the fewest slow waits first.
fn slowest(stored: &Stored, scenario: &str, title: &str) -> Markup {
    let range = |row: &Row| {
        Some(Range {
            name: name(row),
            tone: tone(row),
            ends: [
                row.figure("p50_us")?,
                row.figure("p99_us")?,
                row.figure("max_us")?,
            ],
        })
    };
    let mut ranges: Vec<Range> = stored
        .rows_of(PART)
        .filter(|row| row.scenario.as_deref() == Some(scenario))
        .filter_map(range)
        .collect();
    ranges.sort_by(|a, b| {
        let is_limit = |range: &Range| range.tone == Tone::Limit;
        is_limit(a)
            .cmp(&is_limit(b))
            .then(a.ends[1].total_cmp(&b.ends[1]))
    });
    Ranges {
        title,
        unit: Unit::Microseconds,
        ranges,
    }
    .draw()
}
