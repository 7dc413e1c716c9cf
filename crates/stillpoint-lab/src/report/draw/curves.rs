//! Figures as they depend on the size of a machine: a line for each variant, on two logarithmic
//! axes, over the same points.

use std::fmt::Write;

use maud::{Markup, html};

use super::bars::side;
use super::scale::Scale;
use super::{Better, Unit, figure};

/// What lines are drawn with, so that they are told apart without colours. The last one is plain.
const DASHES: [&str; 4] = ["1 5", "2 3", "7 4", "none"];

/// A line.
pub struct Curve {
    /// Whose it is.
    pub name: String,
    /// The points, the smallest machine first.
    pub points: Vec<(f64, f64)>,
}

/// A chart of such lines.
pub struct Curves<'t> {
    /// What it is about.
    pub title: &'t str,
    /// What the points differ by.
    pub x: &'t str,
    /// What the figures are.
    pub unit: Unit,
    /// The lines.
    pub lines: Vec<Curve>,
}

impl Curves<'_> {
    /// The chart; nothing where there are no two points.
    pub fn draw(&self) -> Markup {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let positive = |values: &mut dyn Iterator<Item = f64>| {
            values
                .filter(|&value| value > 0.0)
                .fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), value| {
                    (least.min(value), most.max(value))
                })
        };
        let (first, last) = positive(&mut points().map(|point| point.0));
        let (least, greatest) = positive(&mut points().map(|point| point.1));
        if first >= last || greatest <= 0.0 {
            return Markup::default();
        }
        let (xs, ys) = (
            Scale::log(first, last, Unit::Bare),
            Scale::log(least, greatest, self.unit),
        );
        let ends = |line: &Curve| {
            let show = |point: Option<&(f64, f64)>| {
                point.map_or_else(String::new, |point| self.unit.show(point.1))
            };
            let (from, to) = (show(line.points.first()), show(line.points.last()));
            if from == to {
                from
            } else {
                format!("{from} to {to}")
            }
        };
        let said: Vec<String> = self
            .lines
            .iter()
            .map(|line| format!("{}: {}", line.name, ends(line)))
            .collect();
        let label = format!(
            "Curves: {} over {}, {}. {}.",
            self.title,
            self.x,
            Better::Less.words(),
            said.join("; ")
        );
        let shown = || self.lines.iter().zip(DASHES.iter().rev().cycle());
        let drawing = html! {
            div role="img" aria-label=(label) {
                div.plot.tall {
                    div.ys { @for (at, text) in &ys.ticks { span style={ "bottom:" (at) "%" } { (text) } } }
                    svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true" {
                        @for at in &ys.lines { line.grid x1="0" x2="100" y1=(100.0 - at) y2=(100.0 - at) {} }
                        @for (line, dash) in shown() { path.line.accent stroke-dasharray=(dash) d=(path(line, &xs, &ys)) {} }
                    }
                    div.xs { @for (at, text) in &xs.ticks { span.(side(*at)) style={ "left:" (at) "%" } { (text) } } }
                }
                p.legend {
                    @for (line, dash) in shown() {
                        span {
                            svg.key width="34" height="10" aria-hidden="true" { path.line.accent stroke-dasharray=(dash) d="M1 5L33 5" {} }
                            (line.name) ", " (ends(line))
                        }
                    }
                }
            }
        };
        let over = format!("over {}", self.x);
        figure(
            self.title,
            &[&over, Better::Less.words(), "both axes log scale"],
            &drawing,
        )
    }
}

fn path(line: &Curve, xs: &Scale, ys: &Scale) -> String {
    let mut path = String::new();
    for &(x, y) in &line.points {
        let step = if path.is_empty() { 'M' } else { 'L' };
        let _ = write!(path, "{step}{} {}", xs.at(x), 100.0 - ys.at(y));
    }
    path
}
