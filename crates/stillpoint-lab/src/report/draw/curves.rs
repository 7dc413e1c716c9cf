//! Curves over common axes, each with its name at its end. The drawing is stretched to the room
//! there is; the strokes and the text are not.

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

/// Curves over percentiles.
pub struct Curves<'t> {
    /// What it is about.
    pub title: &'t str,
    /// What the figures are.
    pub unit: Unit,
    /// The curves.
    pub lines: Vec<Line<'t>>,
    /// What repeats it.
    pub command: &'t str,
}

/// Percentiles that are written at the axis.
const WRITTEN: [f64; 4] = [0.0, 90.0, 99.0, LAST];

/// The last percentile drawn.
const LAST: f64 = 99.9;

/// The least distance of two names, in percent of the drawing's height.
const APART: f64 = 6.0;

/// Where a percentile stands: each further nine is as far again.
fn percentiles(percentile: f64) -> f64 {
    let nines = -(1.0 - percentile / 100.0).max(1e-9).log10();
    (nines / 3.0 * 100.0).clamp(0.0, 100.0)
}

impl Curves<'_> {
    /// The chart; nothing where there is no curve.
    pub fn draw(&self) -> Markup {
        let lines: Vec<_> = self
            .lines
            .iter()
            .filter(|line| !line.points.is_empty())
            .collect();
        if lines.is_empty() {
            return Markup::default();
        }
        let shown = |line: &Line| {
            line.points
                .iter()
                .copied()
                .filter(|&(x, _)| x <= LAST + 1e-6)
                .collect::<Vec<_>>()
        };
        let drawn: Vec<Vec<(f64, f64)>> = lines.iter().map(|line| shown(line)).collect();
        let values = || drawn.iter().flatten().map(|&(_, y)| y).filter(|&y| y > 0.0);
        let scale = Scale::log(
            values().fold(f64::INFINITY, f64::min).min(1e9),
            values().fold(1e-9, f64::max),
            self.unit,
        );

        let ends: Vec<(f64, f64)> = drawn
            .iter()
            .map(|points| {
                points
                    .last()
                    .map_or((0.0, 50.0), |&(x, y)| (percentiles(x), 100.0 - scale.at(y)))
            })
            .collect();
        let places = spread(&ends.iter().map(|end| end.1).collect::<Vec<_>>());
        let said: Vec<String> = lines
            .iter()
            .zip(&drawn)
            .filter_map(|(line, points)| {
                Some(format!(
                    "{} up to {}",
                    line.name,
                    self.unit.show(points.last()?.1)
                ))
            })
            .collect();
        let label = format!(
            "Curves of percentiles: {}, less is better. {}.",
            self.title,
            said.join("; ")
        );

        let drawing = html! {
            div.curves role="img" aria-label=(label) {
                div.plot {
                    div.ys { @for (at, text) in &scale.ticks { span style={ "bottom:" (at) "%" } { (text) } } }
                    svg viewBox="0 0 100 100" preserveAspectRatio="none" aria-hidden="true" {
                        @for at in &scale.lines { line.grid x1="0" x2="100" y1=(100.0 - at) y2=(100.0 - at) {} }
                        @for at in WRITTEN.map(percentiles) { line.grid x1=(at) x2=(at) y1="0" y2="100" {} }
                        @for (index, (line, points)) in lines.iter().zip(&drawn).enumerate() {
                            (leader(ends[index], places[index]))
                            path.line.(line.tone.class()).{ "dash" (index % 6) } d=(path(points, &scale)) {}
                        }
                    }
                    div.names {
                        @for (line, place) in lines.iter().zip(&places) {
                            span.(line.tone.class()) style={ "top:" (place) "%" } { (line.name) }
                        }
                    }
                    div.xs {
                        @for percentile in WRITTEN {
                            @let at = percentiles(percentile);
                            span.(side(at)) style={ "left:" (at) "%" } { (percentile) }
                        }
                    }
                }
                p.axis-name { "Percentile: so many percent of the waits took no longer. Each nine is as wide as the one before it" }
            }
        };
        figure(
            self.title,
            &[Better::Less.words(), scale.words()],
            &drawing,
            self.command,
        )
    }
}

/// A thin line from a curve's end to its name.
fn leader(end: (f64, f64), place: f64) -> Markup {
    html! { path.leader d={ "M" (round(end.0)) " " (round(end.1)) "L97 " (round(place)) "L100 " (round(place)) } {} }
}

fn path(points: &[(f64, f64)], scale: &Scale) -> String {
    let mut path = String::new();
    for (index, &(x, y)) in points.iter().enumerate() {
        let step = if index == 0 { 'M' } else { 'L' };
        let _ = write!(
            path,
            "{step}{} {}",
            round(percentiles(x)),
            round(100.0 - scale.at(y))
        );
    }
    path
}

/// Two digits after the point.
pub fn round(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

/// Places for names near these heights, in percent, far enough from each other and inside.
fn spread(wanted: &[f64]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by(|&a, &b| wanted[a].total_cmp(&wanted[b]));
    let mut places = wanted.to_vec();
    let mut least = 0.0;
    for &index in &order {
        places[index] = wanted[index].max(least);
        least = places[index] + APART;
    }
    let mut most = 100.0;
    for &index in order.iter().rev() {
        places[index] = places[index].min(most);
        most = places[index] - APART;
    }
    places
        .into_iter()
        .map(|place| round(place.max(0.0)))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_apart_and_stay_inside() {
        let mut places = spread(&[99.0, 98.0, 98.5, 1.0]);
        places.sort_by(f64::total_cmp);
        assert!(
            places
                .windows(2)
                .all(|pair| pair[1] - pair[0] >= APART - 0.02),
            "{places:?}"
        );
        assert!(places.iter().all(|place| (0.0..=100.0).contains(place)));
    }

    #[test]
    fn each_nine_is_as_wide_as_the_one_before() {
        assert_eq!(
            [0.0, 90.0, 99.0, 99.9].map(percentiles).map(f64::round),
            [0.0, 33.0, 67.0, 100.0]
        );
    }
}
