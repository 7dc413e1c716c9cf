//! Curves over time, as an SVG file.

use anyhow::{Result, anyhow};
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Output;
use crate::run::Case;

/// One case's memory over time: seconds, and MiB above the start.
pub struct Line<'a> {
    /// The subject's name.
    pub case: &'a Case,
    /// The points.
    pub points: &'a [(f64, f64)],
}

/// One case's time and memory.
pub struct Point<'a> {
    /// Whose it is.
    pub case: &'a Case,
    /// The memory.
    pub mib: f64,
    /// The time for an object.
    pub ns: f64,
}

const SIZE: (u32, u32) = (1100, 560);

/// Width of the column of names at the right.
const LEGEND: u32 = 250;

/// The lowest value drawn, in MiB: the axis is logarithmic, and less than this is a page here and
/// there.
const FLOOR: f64 = 0.1;

/// Colours that also colour-blind people tell apart (Okabe and Ito), one for each subject.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(0, 0, 0),
];

/// Dash and gap, in pixels, of a subject's second and third variant; its first has a full line.
const DASHES: [(i32, i32); 2] = [(8, 4), (2, 4)];

/// Draws the lines over common axes. Memory runs on a logarithmic axis, since the subjects differ
/// by orders of magnitude.
pub fn memory_over_time(file: &mut Output, title: &str, lines: &[Line]) -> Result<()> {
    let mut svg = String::new();
    draw(&mut svg, title, lines).map_err(|error| anyhow!("cannot draw the plot: {error}"))?;
    file.write(&svg)
}

fn draw(svg: &mut String, title: &str, lines: &[Line]) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(SIZE.0 - LEGEND);

    let points = || lines.iter().flat_map(|line| line.points);
    let seconds = points().map(|point| point.0).fold(0.001, f64::max);
    let highest = points().map(|point| point.1).fold(1.0, f64::max);
    let mut chart = ChartBuilder::on(&left)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..seconds, (FLOOR..highest * 1.5).log_scale())?;
    chart
        .configure_mesh()
        .x_desc("seconds since the start")
        .y_desc("MiB above the start")
        .y_label_formatter(&|mib| format!("{mib}"))
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 15))
        .light_line_style(TRANSPARENT)
        .draw()?;

    let cases: Vec<&Case> = lines.iter().map(|line| line.case).collect();
    for ((row, line), stroke) in (0..).zip(lines).zip(strokes(&cases)) {
        let points = line
            .points
            .iter()
            .map(|&(seconds, mib)| (seconds, mib.max(FLOOR)));
        chart.draw_series([stroke.along(points.collect())])?;

        let y = 60 + 26 * row;
        right.draw(&stroke.along(vec![(0, y), (40, y)]))?;
        let name = ("sans-serif", 15)
            .into_text_style(&right)
            .pos(Pos::new(HPos::Left, VPos::Center));
        right.draw(&Text::new(line.case.to_string(), (50, y), name))?;
    }
    root.present()?;
    Ok(())
}

/// Draws a numbered point for each case, on logarithmic axes, and the names of the numbers. Less is
/// better on both.
pub fn time_against_memory(file: &mut Output, title: &str, points: &[Point]) -> Result<()> {
    let mut svg = String::new();
    draw_points(&mut svg, title, points)
        .map_err(|error| anyhow!("cannot draw the plot: {error}"))?;
    file.write(&svg)
}

fn draw_points(
    svg: &mut String,
    title: &str,
    points: &[Point],
) -> Result<(), Box<dyn std::error::Error>> {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(SIZE.0 - LEGEND);

    let most = |figure: fn(&Point) -> f64| points.iter().map(figure).fold(FLOOR, f64::max) * 1.5;
    let least = points.iter().map(|point| point.ns).fold(1e9, f64::min) / 1.5;
    let (mib, ns) = (most(|point| point.mib), most(|point| point.ns));
    let mut chart = ChartBuilder::on(&left)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(
            (FLOOR..mib).log_scale(),
            (least..ns.max(least * 2.0)).log_scale(),
        )?;
    chart
        .configure_mesh()
        .x_desc("MiB at the peak, above the start")
        .y_desc("ns for an object")
        .x_label_formatter(&|mib| format!("{mib}"))
        .y_label_formatter(&|ns| format!("{ns:.0}"))
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 15))
        .light_line_style(TRANSPARENT)
        .draw()?;

    let cases: Vec<&Case> = points.iter().map(|point| point.case).collect();
    for ((number, point), stroke) in (1..).zip(points).zip(strokes(&cases)) {
        let at = (point.mib.max(FLOOR), point.ns);
        let number_style = ("sans-serif", 14).into_text_style(&left);
        chart.draw_series([EmptyElement::at(at)
            + Circle::new((0, 0), 4, stroke.colour.filled())
            + Text::new(number.to_string(), (7, -7), number_style)])?;
        let name = ("sans-serif", 15)
            .into_text_style(&right)
            .pos(Pos::new(HPos::Left, VPos::Center));
        let y = 34 + 26 * number;
        right.draw(&Circle::new((12, y), 4, stroke.colour.filled()))?;
        right.draw(&Text::new(
            format!("{number} {}", point.case),
            (24, y),
            name,
        ))?;
    }
    root.present()?;
    Ok(())
}

/// How a line is drawn.
struct Stroke {
    colour: RGBColor,
    dash: Option<(i32, i32)>,
}

impl Stroke {
    /// The element that follows the points.
    fn along<'a, C: Clone + 'static>(
        &self,
        points: Vec<C>,
    ) -> DynElement<'static, SVGBackend<'a>, C> {
        let style = self.colour.stroke_width(2);
        match self.dash {
            None => PathElement::new(points, style).into_dyn(),
            Some((dash, gap)) => DashedPathElement::new(points, dash, gap, style).into_dyn(),
        }
    }
}

/// A colour for each subject and a dash for each of its variants, in the cases' order.
fn strokes(cases: &[&Case]) -> Vec<Stroke> {
    let mut subjects: Vec<(&str, usize)> = Vec::new();
    let mut stroke = |subject| {
        let index = subjects
            .iter()
            .position(|&(known, _)| known == subject)
            .unwrap_or_else(|| {
                subjects.push((subject, 0));
                subjects.len() - 1
            });
        let variants = &mut subjects[index].1;
        *variants += 1;
        let dash = variants
            .checked_sub(2)
            .map(|dashed| DASHES[dashed % DASHES.len()]);
        Stroke {
            colour: COLOURS[index % COLOURS.len()],
            dash,
        }
    };
    cases
        .iter()
        .map(|case| stroke(case.subject.as_str()))
        .collect()
}
