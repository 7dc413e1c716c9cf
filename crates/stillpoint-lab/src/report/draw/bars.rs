//! A mark for each figure, its name and the figure in words beside it: a bar where the axis begins
//! at 0, a dot where it is logarithmic and a length would mean nothing. A whisker goes from the
//! least round to the greatest.

use maud::{Markup, html};

use super::scale::Scale;
use super::{Better, Tone, Unit, figure};

/// One bar.
pub struct Bar {
    /// Whose it is.
    pub name: String,
    /// How it is drawn.
    pub tone: Tone,
    /// The median of the rounds.
    pub value: f64,
    /// The least and the greatest round, where there were several.
    pub spread: Option<[f64; 2]>,
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
}

impl Bars<'_> {
    /// The chart; nothing where there is no bar.
    pub fn draw(&self) -> Markup {
        if self.bars.is_empty() {
            return Markup::default();
        }
        let ends = |bar: &Bar| bar.spread.unwrap_or([bar.value; 2]);
        let values: Vec<f64> = self
            .bars
            .iter()
            .flat_map(|bar| [bar.value, ends(bar)[0], ends(bar)[1]])
            .collect();
        let scale = Scale::of(&values, self.unit);
        let said: Vec<String> = self.bars.iter().map(|bar| self.said(bar)).collect();
        let label = format!(
            "Chart: {}, {}. {}.",
            self.title,
            self.better.words(),
            said.join("; ")
        );
        let drawing = html! {
            div.bars role="img" aria-label=(label) {
                @for bar in &self.bars {
                    (row(&bar.name, bar.tone, &self.unit.show(bar.value), &scale, &mark(bar.value, bar.spread, &scale)))
                }
                (axis(&scale))
            }
        };
        figure(self.title, &[self.better.words(), scale.words()], &drawing)
    }

    fn said(&self, bar: &Bar) -> String {
        let spread = bar.spread.map_or(String::new(), |[least, greatest]| {
            format!(
                " ({} to {})",
                self.unit.show(least),
                self.unit.show(greatest)
            )
        });
        format!("{} {}{spread}", bar.name, self.unit.show(bar.value))
    }
}

/// A name, a drawing over the axis' lines, and a figure in words.
pub fn row(name: &str, tone: Tone, text: &str, scale: &Scale, drawing: &Markup) -> Markup {
    html! {
        div.row.(tone.class()) {
            span.name { (name) }
            svg.track width="100%" height="22" aria-hidden="true" {
                @for at in &scale.lines { line.grid x1={ (at) "%" } x2={ (at) "%" } y1="0" y2="100%" {} }
                (drawing)
            }
            span.value { (text) }
        }
    }
}

/// A figure's mark, and its whisker.
pub fn mark(value: f64, spread: Option<[f64; 2]>, scale: &Scale) -> Markup {
    let at = scale.at(value);
    let whisker = html! {
        @if let Some([least, greatest]) = spread.map(|ends| ends.map(|end| scale.at(end))) {
            line.whisker x1={ (least) "%" } x2={ (greatest) "%" } y1="11" y2="11" {}
            @for end in [least, greatest] { line.whisker x1={ (end) "%" } x2={ (end) "%" } y1="7" y2="15" {} }
        }
    };
    html! {
        @if scale.is_log() {
            line.grid x1="0" x2="100%" y1="11" y2="11" {}
            (whisker)
            circle.dot cx={ (at) "%" } cy="11" r="6" {}
        } @else {
            rect.bar x="0" y="4" width={ (at) "%" } height="14" rx="1.5" {}
            (whisker)
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
