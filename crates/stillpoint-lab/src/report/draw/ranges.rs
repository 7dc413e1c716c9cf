//! How far waits are apart: half of them, 99 of 100, and the slowest, on one logarithmic line.

use maud::{Markup, html};

use super::bars::{axis, row};
use super::scale::Scale;
use super::{Better, Tone, Unit, figure};

/// The waits of one subject.
pub struct Range {
    /// Whose they are.
    pub name: String,
    /// How they are drawn.
    pub tone: Tone,
    /// What half of them, 99 of 100, and the slowest took.
    pub ends: [f64; 3],
}

/// A chart of such ranges.
pub struct Ranges<'t> {
    /// What it is about.
    pub title: &'t str,
    /// What the figures are.
    pub unit: Unit,
    /// The ranges, from top to bottom.
    pub ranges: Vec<Range>,
}

impl Ranges<'_> {
    /// The chart; nothing where there is no range.
    pub fn draw(&self) -> Markup {
        let values = || self.ranges.iter().flat_map(|range| range.ends);
        let positive = values().filter(|&value| value > 0.0);
        let least = positive.fold(f64::INFINITY, f64::min);
        if !least.is_finite() {
            return Markup::default();
        }
        let scale = Scale::log(least, values().fold(least, f64::max), self.unit);
        let said: Vec<String> = self.ranges.iter().map(|range| self.said(range)).collect();
        let label = format!(
            "Chart: {}, {}. {}.",
            self.title,
            Better::Less.words(),
            said.join("; ")
        );
        let drawing = html! {
            div.bars role="img" aria-label=(label) {
                @for range in &self.ranges {
                    (row(&range.name, range.tone, &self.unit.show(range.ends[1]), &scale, &marks(range, &scale)))
                }
                (axis(&scale))
            }
        };
        figure(self.title, &[Better::Less.words(), scale.words()], &drawing)
    }

    fn said(&self, range: &Range) -> String {
        let [half, most, slowest] = range.ends.map(|end| self.unit.show(end));
        format!(
            "{}: half up to {half}, 99 of 100 up to {most}, slowest {slowest}",
            range.name
        )
    }
}

fn marks(range: &Range, scale: &Scale) -> Markup {
    let [half, most, slowest] = range.ends.map(|end| scale.at(end));
    html! {
        line.grid x1="0" x2="100%" y1="11" y2="11" {}
        line.reach x1={ (half) "%" } x2={ (slowest) "%" } y1="11" y2="11" {}
        circle.dot cx={ (half) "%" } cy="11" r="5" {}
        line.most x1={ (most) "%" } x2={ (most) "%" } y1="4" y2="18" {}
        circle.ring cx={ (slowest) "%" } cy="11" r="4" {}
    }
}

/// What the marks mean, for the text above such charts.
pub fn legend() -> Markup {
    let sample =
        |mark: Markup| html! { svg.key width="14" height="22" aria-hidden="true" { (mark) } };
    html! {
        p.legend {
            span { (sample(html! { circle.dot cx="7" cy="11" r="5" {} })) " half of the waits took no longer" }
            span { (sample(html! { line.most x1="7" x2="7" y1="4" y2="18" {} })) " 99 of 100 took no longer, which the number says" }
            span { (sample(html! { circle.ring cx="7" cy="11" r="4" {} })) " the slowest" }
        }
    }
}
