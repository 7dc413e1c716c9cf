//! The charts of the experiments, and the picture for other documents: bars of one figure.

use anyhow::Result;

use super::names;
use super::page::charts;
use super::standing::{best_of, peers};
use super::stored::{Row, Stored};
use crate::output::numbers::Unit;
use crate::output::plot::{self, Bar, Panel};

/// Which way is better.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Less.
    Less,
    /// More.
    More,
}

impl Better {
    /// Says which.
    pub fn words(self) -> &'static str {
        match self {
            Self::Less => "less is better",
            Self::More => "more is better",
        }
    }
}

/// A chart of one figure.
pub struct Chart {
    /// What it is about.
    pub title: &'static str,
    /// The scenario, where there are several.
    pub scenario: Option<&'static str>,
    /// The figure.
    pub metric: &'static str,
    /// The figure's unit.
    pub unit: Unit,
    /// Which way is better.
    pub better: Better,
    /// Stillpoint's variant whose place the head of the page has.
    pub ours: &'static str,
    /// The figure by which a peer's best variant is chosen for the picture; empty if the chart is not
    /// in the picture.
    pub pictured_by: &'static str,
}

impl Chart {
    fn panel(&self, bars: Vec<Bar>) -> Option<Panel> {
        (!bars.is_empty()).then(|| Panel {
            title: self.title.to_owned(),
            how: self.better.words().to_owned(),
            bars,
        })
    }

    /// Returns a bar for each row that has the figure, the best first; `None` if no row has it.
    pub fn of_all(&self, stored: &Stored, part: &str) -> Option<Panel> {
        let rows = stored.scene(part, self.scenario);
        let mut rows: Vec<(&Row, f64)> = rows
            .filter_map(|row| Some((row, row.figure(self.metric)?)))
            .collect();
        rows.sort_by(|(a, figure), (b, other)| {
            let order = match self.better {
                Better::Less => figure.total_cmp(other),
                Better::More => other.total_cmp(figure),
            };
            names::does_less(a).cmp(&names::does_less(b)).then(order)
        });
        let bars = rows.iter().map(|(row, value)| self.bar(row, *value));
        self.panel(bars.collect())
    }

    /// Returns a bar for Stillpoint, for each peer at its best by `pictured_by`, and for the limit.
    fn of_the_best(&self, stored: &Stored, part: &str) -> Option<Panel> {
        let bar = |row: &Row| Some(self.bar(row, row.figure(self.metric)?));
        let by = self.pictured_by;
        let best = |subject: &str| {
            let row = best_of(stored, part, self.scenario, subject, by, self.better);
            row.and_then(bar)
        };
        let mut bars = vec![bar(stored.row(
            part,
            self.scenario,
            "stillpoint",
            self.ours,
        )?)?];
        for name in peers(stored, part, self.scenario) {
            bars.extend(best(name).map(|bar| Bar {
                name: name.to_owned(),
                ..bar
            }));
        }
        bars.sort_by(|a, b| a.value.total_cmp(&b.value));
        bars.extend(best("limit"));
        self.panel(bars)
    }

    fn bar(&self, row: &Row, value: f64) -> Bar {
        Bar {
            name: names::name(row),
            tone: names::tone(row),
            value,
            text: self.unit.show(value),
            spread: row.spread.get(self.metric).copied(),
        }
    }
}

/// Draws the most important figures for another document, in the reader's light or dark colours.
pub fn picture(stored: &Stored) -> Result<String> {
    let pictured = charts().filter(|(_, chart)| !chart.pictured_by.is_empty());
    let panels: Vec<Panel> = pictured
        .filter_map(|(part, chart)| chart.of_the_best(stored, part))
        .collect();
    let host = &stored.machine;
    let note = format!(
        "Medians on {} CPUs, Linux {}; lines from the least round to the greatest. limit: the same work without reclamation or readers.",
        host.cpus, host.kernel
    );
    let svg = labelled(&plot::panels(&panels, 2, &note)?, &panels);
    let style = format!("><style>{}</style>", plot::style());
    Ok(svg.replacen('>', &style, 1) + "\n")
}

/// Adds a description of the panels to their picture, for screen readers.
pub fn labelled(svg: &str, panels: &[Panel]) -> String {
    let words: Vec<String> = panels.iter().map(Panel::in_words).collect();
    let words = maud::html! { (words.join(". ")) }.into_string();
    let label = format!("<svg role=\"img\" aria-label=\"{words}\"");
    svg.replacen("<svg", &label, 1)
}
