//! Before and after, in percent of before: what can be compared between machines.

use maud::{Markup, html};

use super::bars::{axis, row};
use super::scale::Scale;
use super::{Better, Tone, Unit, figure, ratio};

/// From so many times before the axis is logarithmic; less than before is well seen on a linear
/// one, however little it is.
const GREAT: f64 = 10.0;

/// One side of a comparison.
pub struct Side {
    /// What it is.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// The figure in words.
    pub text: String,
}

impl Side {
    /// A figure in its unit.
    pub fn new(name: &str, value: f64, unit: Unit) -> Self {
        Self {
            name: name.to_owned(),
            value,
            text: unit.show(value),
        }
    }

    /// The same in other words.
    pub fn told(self, text: &str) -> Self {
        Self {
            text: text.to_owned(),
            ..self
        }
    }
}

/// Something before, and after one or more changes.
pub struct Pair {
    /// Whose figures these are, and how they were obtained.
    pub title: String,
    /// How it is drawn.
    pub tone: Tone,
    /// Before, and then after.
    pub sides: Vec<Side>,
}

impl Pair {
    /// How many times the first is the second.
    pub fn ratio(&self) -> Option<f64> {
        let [before, after, ..] = self.sides.as_slice() else {
            return None;
        };
        (before.value > 0.0 && after.value > 0.0).then(|| after.value / before.value)
    }

    /// That in words.
    pub fn ratio_in_words(&self) -> String {
        self.ratio().map(ratio).unwrap_or_default()
    }
}

/// A chart of such pairs.
pub struct Pairs<'t> {
    /// What it is about.
    pub title: &'t str,
    /// Which way is better.
    pub better: Better,
    /// The pairs, from top to bottom.
    pub pairs: &'t [Pair],
    /// What repeats it.
    pub command: &'t str,
}

impl Pairs<'_> {
    /// The chart; nothing where there is no pair.
    pub fn draw(&self) -> Markup {
        if self.pairs.is_empty() {
            return Markup::default();
        }
        let share = |pair: &Pair, side: &Side| {
            if pair.sides[0].value > 0.0 {
                side.value / pair.sides[0].value
            } else {
                0.0
            }
        };
        let greatest = self
            .pairs
            .iter()
            .flat_map(|pair| pair.sides.iter().map(|side| share(pair, side)))
            .fold(1.0, f64::max);
        let least = self
            .pairs
            .iter()
            .flat_map(|pair| pair.sides.iter().map(|side| share(pair, side)))
            .filter(|&share| share > 0.0);
        let scale = if greatest > GREAT {
            Scale::log(least.fold(1.0, f64::min), greatest, Unit::Share)
        } else {
            Scale::linear(greatest, Unit::Share)
        };
        let said: Vec<String> = self
            .pairs
            .iter()
            .map(|pair| {
                let sides: Vec<String> = pair
                    .sides
                    .iter()
                    .map(|side| format!("{} {}", side.name, side.text))
                    .collect();
                format!("{}: {}", pair.title, sides.join(", "))
            })
            .collect();
        let label = format!(
            "Bar chart: {}, {}. {}.",
            self.title,
            self.better.words(),
            said.join("; ")
        );
        let drawing = html! {
            div.bars.pairs role="img" aria-label=(label) {
                @for pair in self.pairs {
                    div.group {
                        span { (pair.title) }
                        @if pair.ratio().is_some() { b { (pair.ratio_in_words()) } }
                    }
                    @for (index, side) in pair.sides.iter().enumerate() {
                        @let tone = if index == 0 { Tone::Limit } else { pair.tone };
                        (row(&side.name, tone, scale.at(share(pair, side)), &side.text, &scale))
                    }
                }
                (axis(&scale))
            }
        };
        figure(
            self.title,
            &["in percent of before", self.better.words(), scale.words()],
            &drawing,
            self.command,
        )
    }
}
