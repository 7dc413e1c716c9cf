//! Before and after, in percent of before: what can be compared between machines.

use maud::{Markup, html};

use super::bars::{axis, mark, row};
use super::scale::Scale;
use super::{Better, Tone, Unit, figure};

/// From so many times before the axis is logarithmic; less than before is well seen on a linear
/// one, however little it is.
const GREAT: f64 = 10.0;

/// One side of a comparison.
pub struct Side {
    /// What it is.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// What it counts.
    pub unit: Unit,
    /// The figure in words.
    pub text: String,
}

impl Side {
    /// A figure in its unit.
    pub fn new(name: &str, value: f64, unit: Unit) -> Self {
        Self {
            name: name.to_owned(),
            value,
            unit,
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
    /// Whose, and how it was measured.
    pub title: String,
    /// How it is drawn.
    pub tone: Tone,
    /// Before, and then after.
    pub sides: Vec<Side>,
}

impl Pair {
    /// How many times as much the greater of the first two sides is, and which one it is.
    pub fn compared(&self) -> Option<String> {
        let [before, after, ..] = self.sides.as_slice() else {
            return None;
        };
        if before.value <= 0.0 || after.value <= 0.0 {
            return None;
        }
        let times = after.value / before.value;
        let (times, when) = if times < 1.0 {
            (1.0 / times, "before")
        } else {
            (times, "after")
        };
        Some(match before.unit.times(times) {
            Some(words) => format!("{words} {when}"),
            None => "about the same".to_owned(),
        })
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
            "Chart: {}, {}. {}.",
            self.title,
            self.better.words(),
            said.join("; ")
        );
        let drawing = html! {
            div.bars.pairs role="img" aria-label=(label) {
                @for pair in self.pairs {
                    div.group {
                        span { (pair.title) }
                        @if let Some(words) = pair.compared() { b { (words) } }
                    }
                    @for (index, side) in pair.sides.iter().enumerate() {
                        @let tone = if index == 1 { pair.tone } else { Tone::Limit };
                        (row(&side.name, tone, &side.text, &scale, &mark(share(pair, side), None, &scale)))
                    }
                }
                (axis(&scale))
            }
        };
        figure(
            self.title,
            &["in percent of before", self.better.words(), scale.words()],
            &drawing,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greater_side_is_named() {
        let pair = |before, after| Pair {
            title: String::new(),
            tone: Tone::Accent,
            sides: vec![
                Side::new("", before, Unit::Milliseconds),
                Side::new("", after, Unit::Milliseconds),
            ],
        };
        let compared = |before, after| pair(before, after).compared();
        assert_eq!(
            compared(980.0, 18.0).as_deref(),
            Some("54 times as long before")
        );
        assert_eq!(
            compared(2.0, 3.0).as_deref(),
            Some("1.5 times as long after")
        );
        assert_eq!(compared(2.0, 2.05).as_deref(), Some("about the same"));
        assert_eq!(compared(2.0, 0.0), None);
    }
}
