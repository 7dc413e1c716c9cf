//! The latencies' distributions, as an SVG file.

use anyhow::{Result, anyhow};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use crate::output::Output;

/// A variant's waits.
pub struct Line {
    /// The variant.
    pub name: &'static str,
    /// How long they took, in milliseconds, the shortest first.
    pub sorted_ms: Vec<f64>,
}

type Drawn = Result<(), Box<dyn std::error::Error>>;

const SIZE: (u32, u32) = (1100, 560);

/// Width of the column of names at the right.
const LEGEND: u32 = 250;

/// Colours that also colour-blind people tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 4] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
];

/// Draws which share of the waits took so long at most, a curve for each variant.
pub fn distributions(file: Output, title: &str, lines: &[Line]) -> Result<()> {
    write(file, |svg| draw(svg, title, lines))
}

/// Fills the file with what `draw` draws.
pub fn write(mut file: Output, draw: impl FnOnce(&mut String) -> Drawn) -> Result<()> {
    let mut svg = String::new();
    draw(&mut svg).map_err(|error| anyhow!("cannot draw the plot: {error}"))?;
    file.write(&svg)?;
    file.commit()
}

fn draw(svg: &mut String, title: &str, lines: &[Line]) -> Drawn {
    let root = SVGBackend::with_string(svg, SIZE).into_drawing_area();
    root.fill(&WHITE)?;
    let (left, right) = root.split_horizontally(SIZE.0 - LEGEND);
    let longest = lines
        .iter()
        .filter_map(|line| line.sorted_ms.last())
        .copied()
        .fold(0.001, f64::max);
    let mut chart = ChartBuilder::on(&left)
        .caption(title, ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..longest * 1.05, 0.0..1.0_f64)?;
    chart
        .configure_mesh()
        .x_desc("milliseconds that a wait took")
        .y_desc("share of the waits that took no longer")
        .label_style(("sans-serif", 14))
        .axis_desc_style(("sans-serif", 15))
        .light_line_style(TRANSPARENT)
        .draw()?;
    for ((row, line), colour) in (0..).zip(lines).zip(COLOURS.iter().cycle()) {
        let style = colour.stroke_width(2);
        chart.draw_series([PathElement::new(steps(&line.sorted_ms), style)])?;
        let y = 60 + 26 * row;
        right.draw(&PathElement::new(vec![(0, y), (40, y)], style))?;
        let name = ("sans-serif", 15)
            .into_text_style(&right)
            .pos(Pos::new(HPos::Left, VPos::Center));
        right.draw(&Text::new(line.name, (50, y), name))?;
    }
    root.present()?;
    Ok(())
}

/// The corners of the distribution function.
fn steps(sorted: &[f64]) -> Vec<(f64, f64)> {
    let share = |index: usize| index as f64 / sorted.len() as f64;
    sorted
        .iter()
        .enumerate()
        .flat_map(|(index, &ms)| [(ms, share(index)), (ms, share(index + 1))])
        .collect()
}

/// One square of a heat map: milliseconds, row by row.
pub struct Panel {
    /// What stands above it.
    pub title: String,
    /// The cells.
    pub cells: Vec<Vec<f64>>,
}

/// Sides of a heat map's cell.
const CELL: (i32, i32) = (44, 30);

/// Room for a panel's title and names.
const MARGIN: (i32, i32) = (70, 64);

/// Draws the panels, so many beside each other, on one logarithmic scale of colours; each cell has
/// its figure.
pub fn heat_map(
    file: Output,
    across: usize,
    panels: &[Panel],
    rows: &[String],
    columns: &[String],
) -> Result<()> {
    write(file, |svg| draw_panels(svg, across, panels, rows, columns))
}

fn draw_panels(
    svg: &mut String,
    across: usize,
    panels: &[Panel],
    rows: &[String],
    columns: &[String],
) -> Drawn {
    let panel = (
        MARGIN.0 + CELL.0 * columns.len() as i32,
        MARGIN.1 + CELL.1 * rows.len() as i32,
    );
    let size = (
        panel.0 * across as i32 + 12,
        panel.1 * panels.len().div_ceil(across) as i32 + 40,
    );
    let root = SVGBackend::with_string(svg, (size.0 as u32, size.1 as u32)).into_drawing_area();
    root.fill(&WHITE)?;
    let text = |size: i32| {
        ("sans-serif", size)
            .into_text_style(&root)
            .pos(Pos::new(HPos::Center, VPos::Center))
    };
    let (name, figure, title) = (text(12), text(11), text(15));
    let all = || {
        panels
            .iter()
            .flat_map(|panel| panel.cells.iter().flatten())
            .map(|ms| ms.ln())
    };
    let (least, most) = (
        all().fold(f64::INFINITY, f64::min),
        all().fold(f64::NEG_INFINITY, f64::max),
    );
    for (
        index,
        Panel {
            title: above,
            cells,
        },
    ) in panels.iter().enumerate()
    {
        let (left, top) = (
            panel.0 * (index % across) as i32,
            panel.1 * (index / across) as i32,
        );
        let centre = (
            left + MARGIN.0 + CELL.0 * columns.len() as i32 / 2,
            top + 18,
        );
        root.draw(&Text::new(
            format!("{above}: mean ms"),
            centre,
            title.clone(),
        ))?;
        for (column, label) in (0..).zip(columns) {
            let at = (left + MARGIN.0 + CELL.0 * column + CELL.0 / 2, top + 48);
            root.draw(&Text::new(label.clone(), at, name.clone()))?;
        }
        for ((row, label), values) in (0..).zip(rows).zip(cells) {
            let y = top + MARGIN.1 + CELL.1 * row;
            root.draw(&Text::new(
                label.clone(),
                (left + MARGIN.0 / 2 + 6, y + CELL.1 / 2),
                name.clone(),
            ))?;
            for (column, &ms) in (0..).zip(values) {
                let x = left + MARGIN.0 + CELL.0 * column;
                let heat = if most > least {
                    (ms.ln() - least) / (most - least)
                } else {
                    0.0
                };
                root.draw(&Rectangle::new(
                    [(x, y), (x + CELL.0, y + CELL.1)],
                    colour(heat).filled(),
                ))?;
                let middle = (x + CELL.0 / 2, y + CELL.1 / 2);
                root.draw(&Text::new(format!("{ms:.1}"), middle, figure.clone()))?;
            }
        }
    }
    let about = "CPUs across; jiffies before the first scan and the next ones down; the scale of colours is logarithmic";
    root.draw(&Text::new(about, (size.0 / 2, size.1 - 18), name))?;
    root.present()?;
    Ok(())
}

/// From white to a red that black figures can still be read on.
fn colour(heat: f64) -> RGBColor {
    let towards = |full: f64| (255.0 - heat * (255.0 - full)) as u8;
    RGBColor(towards(226.0), towards(108.0), towards(62.0))
}
