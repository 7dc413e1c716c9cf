//! A bar for each figure, its name and the figure in words beside it.

use maud::{Markup, html};

use super::scale::Scale;
use super::{Better, Tone, Unit, figure};

/// One bar.
pub struct Bar {
    /// Whose it is.
    pub name: String,
    /// How it is drawn.
    pub tone: Tone,
    /// How long it is.
    pub value: f64,
}

/// A chart of bars.
pub struct Bars<'t> {
    /// What it is about.
    pub title: &'t str,
    /// Which way is better.
    pub better: Better,
    /// What the figures are.
    pub unit: Unit,
    /// The bars, from top to bottom.
    pub bars: Vec<Bar>,
    /// What repeats it.
    pub command: &'t str,
}

impl Bars<'_> {
    /// The chart; nothing where there is no bar.
    pub fn draw(&self) -> Markup {
        if self.bars.is_empty() {
            return Markup::default();
        }
        let values: Vec<f64> = self.bars.iter().map(|bar| bar.value).collect();
        let scale = Scale::of(&values, self.unit);
        let said: Vec<String> = self
            .bars
            .iter()
            .map(|bar| format!("{} {}", bar.name, self.unit.show(bar.value)))
            .collect();
        let label = format!(
            "Bar chart: {}, {}. {}.",
            self.title,
            self.better.words(),
            said.join("; ")
        );
        let drawing = html! {
            div.bars role="img" aria-label=(label) {
                @for bar in &self.bars { (row(&bar.name, bar.tone, scale.at(bar.value), &self.unit.show(bar.value), &scale)) }
                (axis(&scale))
            }
        };
        figure(
            self.title,
            &[self.better.words(), scale.words()],
            &drawing,
            self.command,
        )
    }
}

/// A bar of this length in percent, over the axis' lines.
pub fn row(name: &str, tone: Tone, length: f64, text: &str, scale: &Scale) -> Markup {
    html! {
        div.row.(tone.class()) {
            span.name { (name) }
            svg.track width="100%" height="22" aria-hidden="true" {
                @for at in &scale.lines { line.grid x1={ (at) "%" } x2={ (at) "%" } y1="0" y2="100%" {} }
                rect.bar x="0" y="4" width={ (length) "%" } height="14" rx="1.5" {}
            }
            span.value { (text) }
        }
    }
}

/// What is written below the bars.
pub fn axis(scale: &Scale) -> Markup {
    html! {
        div.row.axis {
            span.name {}
            div.ticks {
                @for (at, text) in &scale.ticks { span.(side(*at)) style={ "left:" (at) "%" } { (text) } }
            }
            span.value {}
        }
    }
}

/// Where a label lies beside its place: inside the axis' ends.
pub fn side(at: f64) -> &'static str {
    match at {
        ..1.0 => "first",
        99.0.. => "last",
        _ => "middle",
    }
}
