//! One picture of the most important figures, for another document: SVG in a fixed size, in the
//! colours of the reader's scheme. A line goes from the least round to the greatest.

use maud::{Markup, PreEscaped, html};

use super::draw::{Bar, Better, Tone, Unit};
use super::page::{best_of, peers};
use super::stored::Stored;

const WIDTH: u32 = 880;
const PANEL: u32 = 412;
const NAME: u32 = 128;
const TRACK: u32 = 200;
const ROW: u32 = 24;
const HEAD: u32 = 54;

/// A group of bars.
struct Group {
    title: &'static str,
    part: &'static str,
    scenario: Option<&'static str>,
    ours: &'static str,
    /// The figure that says which of a peer's variants is drawn.
    best_by: &'static str,
    metric: &'static str,
    unit: Unit,
}

const GROUPS: [Group; 4] = [
    Group {
        title: "Read-side cost: enter and leave",
        part: "read",
        scenario: Some("alone"),
        ours: "guard",
        best_by: "ns_per_pair",
        metric: "ns_per_pair",
        unit: Unit::Nanoseconds,
    },
    Group {
        title: "Grace-period latency, 1,000 sleeping threads",
        part: "sync",
        scenario: Some("idle1000"),
        ours: "rcu",
        best_by: "mean_us",
        metric: "mean_us",
        unit: Unit::Microseconds,
    },
    Group {
        title: "Reclamation cost: an object, 16 threads",
        part: "kfree",
        scenario: None,
        ours: "per-page",
        best_by: "ns_per_object",
        metric: "ns_per_object",
        unit: Unit::Nanoseconds,
    },
    Group {
        title: "Peak unreclaimed memory meanwhile",
        part: "kfree",
        scenario: None,
        ours: "per-page",
        best_by: "ns_per_object",
        metric: "peak_mib",
        unit: Unit::Mebibytes,
    },
];

/// Background: none. Both schemes' colours stand out from a page in the scheme.
const STYLE: &str = "
text{font-family:system-ui,-apple-system,'Segoe UI',Roboto,Helvetica,Arial,sans-serif;font-size:13px;fill:#1f2328}
.title{font-size:15px;font-weight:600}.how,.note{font-size:12px;fill:#59636e}.accent text{font-weight:600}
rect{fill:#8d97a1}path{stroke:#1f2328;stroke-width:1.5}.accent rect{fill:#0b7a75}.limit rect{fill:#c3c9cf}
@media (prefers-color-scheme:dark){text{fill:#e6edf3}.how,.note{fill:#9aa4ae}rect{fill:#6e7983}path{stroke:#e6edf3}.accent rect{fill:#45c4b8}.limit rect{fill:#475059}}";

/// The picture.
pub fn draw(stored: &Stored) -> String {
    let groups: Vec<(&Group, Vec<Bar>)> = GROUPS
        .iter()
        .map(|group| (group, bars(stored, group)))
        .filter(|(_, bars)| !bars.is_empty())
        .collect();
    let lines: Vec<&[_]> = groups.chunks(2).collect();
    let heights: Vec<u32> = lines
        .iter()
        .map(|line| {
            HEAD + ROW
                * line
                    .iter()
                    .map(|(_, bars)| bars.len() as u32)
                    .max()
                    .unwrap_or(0)
                + 18
        })
        .collect();
    let height = heights.iter().sum::<u32>() + 26;
    let host = &stored.machine;
    let place = format!(
        "Medians on {} CPUs, Linux {}; bars begin at 0. limit: the same work without reclamation or readers.",
        host.cpus, host.kernel
    );
    let said: Vec<String> = groups
        .iter()
        .map(|(group, bars)| {
            let bars: Vec<String> = bars
                .iter()
                .map(|bar| format!("{} {}", bar.name, group.unit.show(bar.value)))
                .collect();
            format!("{}: {}", group.title, bars.join(", "))
        })
        .collect();
    let picture = html! {
        svg xmlns="http://www.w3.org/2000/svg" width=(WIDTH) height=(height) viewBox={ "0 0 " (WIDTH) " " (height) } role="img"
            aria-label=(said.join(". ")) {
            style { (PreEscaped(STYLE)) }
            @for (index, line) in lines.iter().enumerate() {
                @for (column, (group, bars)) in line.iter().enumerate() {
                    @let x = column as u32 * (WIDTH - PANEL);
                    (panel(group, bars, x, heights[..index].iter().sum()))
                }
            }
            text.note x="0" y=(height - 8) { (place) }
        }
    };
    picture.into_string() + "\n"
}

/// Ours and each peer at its best, the least first, and the limit.
fn bars(stored: &Stored, group: &Group) -> Vec<Bar> {
    let Group {
        part,
        scenario,
        best_by,
        metric,
        ..
    } = *group;
    let ours = stored.row(part, scenario, "stillpoint", group.ours);
    let Some((ours, value)) = ours.and_then(|row| Some((row, row.figure(metric)?))) else {
        return Vec::new();
    };
    let best = |subject: &str, tone| {
        let row = best_of(stored, part, scenario, subject, best_by, Better::Less)?;
        Some(Bar {
            name: subject.to_owned(),
            tone,
            value: row.figure(metric)?,
            spread: row.spread.get(metric).copied(),
        })
    };
    let mut bars: Vec<_> = peers(stored, part, scenario)
        .into_iter()
        .filter_map(|peer| best(peer, Tone::Peer))
        .collect();
    bars.push(Bar {
        name: "Stillpoint".to_owned(),
        tone: Tone::Accent,
        value,
        spread: ours.spread.get(metric).copied(),
    });
    bars.sort_by(|a, b| a.value.total_cmp(&b.value));
    bars.extend(best("limit", Tone::Limit));
    bars
}

fn panel(group: &Group, bars: &[Bar], x: u32, y: u32) -> Markup {
    let greatest = bars
        .iter()
        .map(|bar| bar.spread.map_or(bar.value, |ends| ends[1]))
        .fold(f64::MIN_POSITIVE, f64::max);
    let length = |value: f64| (value.max(0.0) / greatest * f64::from(TRACK) * 10.0).round() / 10.0;
    html! {
        g transform={ "translate(" (x) " " (y) ")" } {
            text.title x="0" y="18" { (group.title) }
            text.how x="0" y="36" { "less is better" }
            @for (index, bar) in bars.iter().enumerate() {
                g.(bar.tone.class()) transform={ "translate(0 " (HEAD + ROW * index as u32) ")" } {
                    text x="0" y="12" { (bar.name) }
                    rect x=(NAME) y="2" width=(length(bar.value)) height="13" rx="1.5" {}
                    @if let Some([least, greatest]) = bar.spread.map(|ends| ends.map(length)) {
                        path d={ "M" (f64::from(NAME) + least) " 8.5H" (f64::from(NAME) + greatest) } {}
                    }
                    text x=(PANEL) y="12" text-anchor="end" { (group.unit.show(bar.value)) }
                }
            }
        }
    }
}
