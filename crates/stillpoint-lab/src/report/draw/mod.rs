//! Charts: HTML for all that is text, SVG for all that is drawn. Widths are shares of what there
//! is, text has the size that the style sheet gives it, so a chart is as readable on a telephone as
//! on a large screen. Colours are classes; the style sheet has them twice, light and dark.

use maud::{Markup, html};

mod bars;
mod multiples;
mod numbers;
mod pairs;
mod ranges;
mod scale;

pub use bars::{Bar, Bars};
pub use multiples::{Line, Multiples};
pub use numbers::{Unit, ordinal, significant};
pub use pairs::{Pair, Pairs, Side};
pub use ranges::{Range, Ranges, legend};

/// Whose figure it is, which says how it is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Stillpoint's default.
    Accent,
    /// Another variant of Stillpoint's.
    Ours,
    /// A peer.
    Peer,
    /// An older way to do the work, built for comparison: under a lock, or without the check.
    Old,
    /// The same work with nothing to wait for.
    Limit,
    /// What the authors of a kernel's patch measured.
    Authors,
    /// Simulated.
    Simulated,
}

impl Tone {
    /// Its class in the style sheet.
    pub fn class(self) -> &'static str {
        match self {
            Self::Accent => "accent",
            Self::Ours => "ours",
            Self::Peer => "peer",
            Self::Old => "old",
            Self::Limit => "limit",
            Self::Authors => "authors",
            Self::Simulated => "simulated",
        }
    }
}

/// Which way is better.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Better {
    /// Less.
    Less,
    /// More.
    More,
}

impl Better {
    /// In words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Less => "less is better",
            Self::More => "more is better",
        }
    }
}

/// A chart's frame: what it is about, which way is better, how its axis runs; the drawing.
fn figure(title: &str, how: &[&str], drawing: &Markup) -> Markup {
    html! {
        figure.chart {
            figcaption {
                strong { (title) }
                span.how { (how.iter().filter(|part| !part.is_empty()).copied().collect::<Vec<_>>().join(" · ")) }
            }
            (drawing)
        }
    }
}
