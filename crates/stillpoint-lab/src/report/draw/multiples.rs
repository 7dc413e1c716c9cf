//! Memory over time: a small chart for each subject, all over the same axes, the curves of the
//! others faint behind it.

use std::fmt::Write;

use maud::{Markup, html};

use super::bars::side;
use super::scale::Scale;
use super::{Better, Tone, Unit, figure};

/// One curve.
pub struct Line<'p> {
    /// Whose it is.
    pub name: String,
    /// How it is drawn.
    pub tone: Tone,
    /// The points.
    pub points: &'p [(f64, f64)],
}

/// Points that a curve is drawn with, about.
const POINTS: usize = 160;

/// Less than this, in MiB, is a page here and there, and stands at the bottom.
const FLOOR_MIB: f64 = 0.1;

/// The charts: seconds, and MiB.
pub struct Multiples<'t> {
    /// What they are about.
    pub title: &'t str,
    /// The curves.
    pub lines: Vec<Line<'t>>,
}

impl Multiples<'_> {
    /// The charts; nothing where there is no curve.
    pub fn draw(&self) -> Markup {
        let points = || self.lines.iter().flat_map(|line| line.points);
        let longest = points().map(|point| point.0).fold(0.0, f64::max);
        if longest <= 0.0 {
            return Markup::default();
        }
        let highest = points().map(|point| point.1).fold(1.0, f64::max);
        let xs = Scale::log((longest / 500.0).max(0.005), longest, Unit::Bare);
        let ys = Scale::log(FLOOR_MIB * 1.5, highest, Unit::Bare);
        let paths: Vec<String> = self
            .lines
            .iter()
            .map(|line| path(line.points, &xs, &ys))
            .collect();
        let peak = |line: &Line| {
            Unit::Mebibytes.show(line.points.iter().map(|point| point.1).fold(0.0, f64::max))
        };
        let said: Vec<String> = self
            .lines
            .iter()
            .map(|line| format!("{} up to {}", line.name, peak(line)))
            .collect();
        let label = format!(
            "Curves: {}, less is better. {}.",
            self.title,
            said.join("; ")
        );
        let drawing = html! {
            div.multiples role="img" aria-label=(label) {
                @for (line, own) in self.lines.iter().zip(&paths) {
                    div.small.(line.tone.class()) {
                        p { b { (line.name) } " up to " (peak(line)) }
                        div.plot {
                            div.ys { @for (at, text) in &ys.ticks { span style={ "bottom:" (at) "%" } { (text) } } }
                            svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true" {
                                @for at in &ys.lines { line.grid x1="0" x2="100" y1=(100.0 - at) y2=(100.0 - at) {} }
                                @for other in &paths { path.faint d=(other) {} }
                                path.line.(line.tone.class()) d=(own) {}
                            }
                            div.xs { @for (at, text) in &xs.ticks { span.(side(*at)) style={ "left:" (at) "%" } { (text) } } }
                        }
                    }
                }
            }
        };
        figure(
            self.title,
            &[
                "MiB over seconds",
                Better::Less.words(),
                "both axes log scale",
                "faint: all others",
            ],
            &drawing,
        )
    }
}

fn path(points: &[(f64, f64)], xs: &Scale, ys: &Scale) -> String {
    let stride = points.len().div_ceil(POINTS).max(1);
    let mut path = String::new();
    for slice in points.chunks(stride) {
        // The highest of those that share a point, so that no peak is lost.
        let Some(&(x, y)) = slice.iter().max_by(|a, b| a.1.total_cmp(&b.1)) else {
            continue;
        };
        let step = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(
            path,
            "{step}{} {}",
            round(xs.at(x)),
            round(100.0 - ys.at(y))
        );
    }
    path
}

/// Two digits after the point.
fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}
