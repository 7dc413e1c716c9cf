//! The lab's pictures, as SVG: bars and curves.
//!
//! Text has a fixed size in a narrow picture, so that it can be read on a telephone. A picture for
//! another document has no background, and [`style`] has its colours for a dark one; a picture in
//! a separate file is on white.

use std::fmt::Write;

use anyhow::{Result, anyhow};
use plotters::coord::Shift;
use plotters::element::DashedPathElement;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::Output;

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Drawn = Result<(), Box<dyn std::error::Error>>;

const INK: RGBColor = RGBColor(0x1c, 0x21, 0x26);
const MUTED: RGBColor = RGBColor(0x56, 0x60, 0x6a);
const GRID: RGBColor = RGBColor(0xe3, 0xe5, 0xe7);

/// Whose figure it is, which says in which colour it is drawn.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Stillpoint's default.
    Accent,
    /// Another variant of Stillpoint's.
    Ours,
    /// A peer.
    Peer,
    /// An older way to do the work, built for comparison.
    Old,
    /// The same work with nothing to wait for.
    Limit,
    /// Measured by the author of a kernel patch.
    Authors,
    /// Simulated.
    Simulated,
}

impl Tone {
    fn colour(self) -> RGBColor {
        match self {
            Self::Accent => RGBColor(0x0b, 0x7a, 0x75),
            Self::Ours => RGBColor(0x7b, 0xb8, 0xb3),
            Self::Peer => RGBColor(0x8d, 0x97, 0xa1),
            Self::Old => RGBColor(0xb9, 0xa7, 0xc0),
            Self::Limit => RGBColor(0xc3, 0xc9, 0xcf),
            Self::Authors => RGBColor(0xb0, 0x82, 0x4a),
            Self::Simulated => RGBColor(0xd9, 0xb9, 0x8c),
        }
    }
}

/// Each colour as it is drawn, and what it is on a dark page.
const DARK: [(&str, &str); 10] = [
    ("#1C2126", "#e4e7ea"),
    ("#56606A", "#a3adb7"),
    ("#E3E5E7", "#2d333a"),
    ("#0B7A75", "#45c4b8"),
    ("#7BB8B3", "#2f837c"),
    ("#8D97A1", "#75808b"),
    ("#B9A7C0", "#76637e"),
    ("#C3C9CF", "#4a535c"),
    ("#B0824A", "#c79a5e"),
    ("#D9B98C", "#7d6240"),
];

/// Returns the style sheet that gives pictures without a background their dark colours.
pub fn style() -> String {
    let mut rules = String::new();
    for (light, dark) in DARK {
        for property in ["fill", "stroke"] {
            let _ = write!(rules, "[{property}=\"{light}\"]{{{property}:{dark}}}");
        }
    }
    format!("@media (prefers-color-scheme:dark){{{rules}}}")
}

fn picture(size: (u32, u32), draw: impl FnOnce(&Area<'_>) -> Drawn) -> Result<String> {
    let mut svg = String::new();
    let root = SVGBackend::with_string(&mut svg, size).into_drawing_area();
    draw(&root)
        .and_then(|()| Ok(root.present()?))
        .map_err(|error| anyhow!("cannot draw the plot: {error}"))?;
    drop(root);
    Ok(svg)
}

/// Writes text whose upper end is at `y`, and whose left, right or middle is at `x`.
fn text(area: &Area<'_>, words: &str, at: (i32, i32), side: HPos, size: f64, bold: bool) -> Drawn {
    let weight = [FontStyle::Normal, FontStyle::Bold][usize::from(bold)];
    coloured(area, words, at, side, (size, weight, INK))
}

/// Writes what explains a chart, at its left.
fn remark(area: &Area<'_>, words: &str, y: i32) -> Drawn {
    let style = (12.0, FontStyle::Normal, MUTED);
    coloured(area, words, (0, y), HPos::Left, style)
}

fn coloured(
    area: &Area<'_>,
    words: &str,
    at: (i32, i32),
    side: HPos,
    (size, weight, colour): (f64, FontStyle, RGBColor),
) -> Drawn {
    let style = ("sans-serif", size, weight, &colour)
        .into_text_style(area)
        .pos(Pos::new(side, VPos::Top));
    Ok(area.draw(&Text::new(words.to_owned(), at, style))?)
}

/// A figure as a bar.
pub struct Bar {
    /// Whose it is.
    pub name: String,
    /// How it is drawn.
    pub tone: Tone,
    /// The median of the rounds.
    pub value: f64,
    /// The figure in words.
    pub text: String,
    /// The least and the greatest round, where there were several.
    pub spread: Option<[f64; 2]>,
}

/// A chart of bars over one axis.
pub struct Panel {
    /// Title of the panel.
    pub title: String,
    /// Which way is better, and what else is to be known.
    pub how: String,
    /// Its bars, from top to bottom.
    pub bars: Vec<Bar>,
}

/// Width of a panel, and the space between two.
const WIDTH: i32 = 360;
const GAP: i32 = 40;

/// Height of a bar with its name above it; the bar's own, and where it begins.
const ROW: i32 = 36;
const BAR: i32 = 9;
const BAR_TOP: i32 = 17;

const HEAD: i32 = 48;

/// Ratio of two figures from which on they are drawn as dots over a logarithmic axis.
const WIDE: f64 = 40.0;

/// Where a figure is drawn: from 0, or over the logarithms of a range.
enum Scale {
    Linear { greatest: f64 },
    Log { low: f64, high: f64 },
}

impl Scale {
    fn of(values: &[f64]) -> Self {
        let positive = || values.iter().copied().filter(|&value| value > 0.0);
        let greatest = positive().fold(f64::MIN_POSITIVE, f64::max);
        let least = positive().fold(greatest, f64::min);
        if greatest < WIDE * least {
            return Self::Linear { greatest };
        }
        Self::Log {
            low: least.log10() - 0.3,
            high: greatest.log10(),
        }
    }

    /// Returns the distance from the left end.
    fn at(&self, value: f64) -> i32 {
        let share = match *self {
            Self::Linear { greatest } => value / greatest,
            Self::Log { low, high } if value > 0.0 => (value.log10() - low) / (high - low),
            Self::Log { .. } => 0.0,
        };
        (share.clamp(0.0, 1.0) * f64::from(WIDTH - 8)).round() as i32
    }
}

impl Panel {
    fn height(&self) -> i32 {
        HEAD + ROW * self.bars.len() as i32
    }

    /// Says what the panel shows.
    pub fn in_words(&self) -> String {
        let bars: Vec<_> = self
            .bars
            .iter()
            .map(|bar| format!("{} {}", bar.name, bar.text))
            .collect();
        format!("{}, {}: {}", self.title, self.how, bars.join(", "))
    }

    fn draw(&self, area: &Area<'_>) -> Drawn {
        let values = self.bars.iter().flat_map(|bar| {
            let [least, greatest] = bar.spread.unwrap_or([bar.value; 2]);
            [bar.value, least, greatest]
        });
        let scale = Scale::of(&values.collect::<Vec<_>>());
        let is_log = matches!(scale, Scale::Log { .. });
        text(area, &self.title, (0, 3), HPos::Left, 15.0, true)?;
        let how = format!("{}{}", self.how, if is_log { ", log scale" } else { "" });
        remark(area, &how, 24)?;
        for (bar, y) in self.bars.iter().zip((HEAD..).step_by(ROW as usize)) {
            let bold = bar.tone == Tone::Accent;
            text(area, &bar.name, (0, y), HPos::Left, 13.0, bold)?;
            text(area, &bar.text, (WIDTH, y), HPos::Right, 13.0, bold)?;
            self.mark(area, bar, &scale, y + BAR_TOP)?;
        }
        Ok(())
    }

    fn mark(&self, area: &Area<'_>, bar: &Bar, scale: &Scale, top: i32) -> Drawn {
        let (middle, fill) = (top + BAR / 2, bar.tone.colour().filled());
        let x = scale.at(bar.value);
        match scale {
            Scale::Linear { .. } => area.draw(&Rectangle::new([(0, top), (x, top + BAR)], fill))?,
            // A length means nothing on a logarithmic axis.
            Scale::Log { .. } => {
                area.draw(&PathElement::new([(0, middle), (WIDTH, middle)], GRID))?;
                area.draw(&Circle::new((x.max(5), middle), 5, fill))?;
            }
        }
        if let Some([least, greatest]) = bar.spread.map(|ends| ends.map(|end| scale.at(end))) {
            area.draw(&PathElement::new(
                [(least, middle), (greatest, middle)],
                INK,
            ))?;
        }
        Ok(())
    }
}

/// Draws panels of bars, `across` of them beside each other, and a note below them.
pub fn panels(panels: &[Panel], across: usize, note: &str) -> Result<String> {
    let rows: Vec<&[Panel]> = panels.chunks(across).collect();
    let height = |row: &[Panel]| row.iter().map(Panel::height).max().unwrap_or(0);
    let below = if note.is_empty() { 0 } else { 24 };
    let all: i32 = rows.iter().map(|row| height(row) + 14).sum::<i32>() + below;
    let width = WIDTH * across as i32 + GAP * (across as i32 - 1);
    picture((width as u32, all.max(1) as u32), |root| {
        let mut y = 0;
        for row in rows {
            for (column, panel) in (0..).zip(row) {
                let place = (column * (WIDTH + GAP), y);
                panel.draw(&root.clone().shrink(place, (WIDTH, panel.height())))?;
            }
            y += height(row) + 14;
        }
        if below > 0 {
            remark(root, note, y + 2)?;
        }
        Ok(())
    })
}

/// One case's figures over time, or another figure.
pub struct Line<'a> {
    /// Whose they are.
    pub name: String,
    /// What has a colour; the lines of one differ by their dashes.
    pub subject: &'a str,
    /// The points.
    pub points: Vec<(f64, f64)>,
}

/// What a chart with two axes has beside its lines or points.
pub struct Axes<'a> {
    /// Width and height, without the names below.
    pub size: (u32, u32),
    /// What it is about; may be empty.
    pub title: &'a str,
    /// What runs across, and up.
    pub names: [&'a str; 2],
    /// Values named on the axis that runs across, in ascending order, from its beginning to its end. With two
    /// or more, and without `floor`, the axis is logarithmic; else it is linear and begins at 0.
    pub across: &'a [f64],
    /// The least value drawn on the axis that runs up, if that is logarithmic.
    pub floor: Option<f64>,
}

/// Colours that also colour-blind people tell apart (Okabe and Ito), one for each subject.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    INK,
];

/// Dash and gap, in pixels, of a subject's second and later variants; its first has a full line.
const DASHES: [(i32, i32); 3] = [(8, 4), (2, 4), (12, 3)];

/// Height of a name below a chart, and the width of one.
const NAME: (u32, u32) = (215, 22);

fn names_across(width: u32) -> u32 {
    (width / NAME.0).max(1)
}

/// Draws lines over common axes, and their names below.
pub fn curves(axes: &Axes<'_>, lines: &[Line<'_>], on_white: bool) -> Result<String> {
    let (width, height) = axes.size;
    let rows = (lines.len() as u32).div_ceil(names_across(width));
    picture((width, height + NAME.1 * rows), |root| {
        if on_white {
            root.fill(&WHITE)?;
        }
        let (plot, legend) = root.split_vertically(height);
        let points = || lines.iter().flat_map(|line| &line.points);
        let right = points().map(|point| point.0).fold(1e-3, f64::max);
        let highest = points().map(|point| point.1).fold(1e-3, f64::max);
        let strokes = strokes(lines.iter().map(|line| line.subject));
        let mut builder = ChartBuilder::on(&plot);
        builder
            .margin(8)
            .x_label_area_size(38)
            .y_label_area_size(52);
        if !axes.title.is_empty() {
            builder.caption(axes.title, ("sans-serif", 18, &INK));
        }
        // Each kind of axis is its own type, so this cannot be a function.
        macro_rules! draw {
            ($across:expr, $up:expr, $floor:expr) => {{
                let mut chart = builder.build_cartesian_2d($across, $up)?;
                // Ticks are sums, and so not exact.
                let plain = |value: &f64| format!("{}", (value * 1e6).round() / 1e6);
                let mut mesh = chart.configure_mesh();
                mesh.x_desc(axes.names[0])
                    .y_desc(axes.names[1])
                    .y_label_formatter(&plain)
                    .label_style(("sans-serif", 12, &INK))
                    .axis_style(&MUTED)
                    .bold_line_style(&GRID)
                    .light_line_style(TRANSPARENT);
                if !axes.across.is_empty() {
                    mesh.x_label_formatter(&plain);
                }
                mesh.draw()?;
                for (line, stroke) in lines.iter().zip(&strokes) {
                    let points = line.points.iter().map(|&(x, y)| (x, y.max($floor)));
                    chart.draw_series([stroke.along(points.collect())])?;
                }
            }};
        }
        match (axes.across, axes.floor) {
            (&[first, .., last], None) => {
                let doubling = (first..last).log_scale().base(2.0);
                draw!(
                    doubling.with_key_points(axes.across.to_vec()),
                    0.0..highest,
                    0.0
                )
            }
            (_, Some(floor)) => {
                draw!(
                    0.0..right,
                    (floor..highest.max(floor) * 1.5).log_scale(),
                    floor
                )
            }
            (_, None) => draw!(0.0..right, 0.0..highest, 0.0),
        }
        for ((index, line), stroke) in (0..).zip(lines).zip(&strokes) {
            let at = place_of_name(index, width);
            let middle = at.1 + 8;
            legend.draw(&stroke.along(vec![(at.0, middle), (at.0 + 30, middle)]))?;
            text(
                &legend,
                &line.name,
                (at.0 + 36, at.1),
                HPos::Left,
                13.0,
                false,
            )?;
        }
        Ok(())
    })
}

fn place_of_name(index: u32, width: u32) -> (i32, i32) {
    let (row, column) = (index / names_across(width), index % names_across(width));
    ((10 + column * NAME.0) as i32, (row * NAME.1) as i32)
}

/// The lowest memory drawn, in MiB: less than this is a page here and there.
pub const FLOOR_MIB: f64 = 0.1;

/// How a line is drawn.
struct Stroke {
    colour: RGBColor,
    dash: Option<(i32, i32)>,
}

impl Stroke {
    /// Returns the element that follows the points.
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

/// A colour for each subject and a dash for each of its lines, in their order.
fn strokes<'s>(subjects: impl Iterator<Item = &'s str>) -> Vec<Stroke> {
    let mut known: Vec<(&str, usize)> = Vec::new();
    subjects
        .map(|subject| {
            let index = known.iter().position(|&(name, _)| name == subject);
            let index = index.unwrap_or_else(|| {
                known.push((subject, 0));
                known.len() - 1
            });
            let line = known[index].1;
            known[index].1 += 1;
            Stroke {
                colour: COLOURS[index % COLOURS.len()],
                dash: line
                    .checked_sub(1)
                    .map(|dashed| DASHES[dashed % DASHES.len()]),
            }
        })
        .collect()
}

/// Puts a picture into its place; that of a run that was broken off goes beside it, which is said on
/// standard error.
pub fn write(mut file: Output, svg: &str, is_partial: bool) -> Result<()> {
    file.write(svg)?;
    if !is_partial {
        return file.commit();
    }
    let partial = file.commit_partial()?;
    eprintln!("stillpoint: the plot so far is {}", partial.display());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_colour_has_a_dark_one() {
        let tones = [
            Tone::Accent,
            Tone::Ours,
            Tone::Peer,
            Tone::Old,
            Tone::Limit,
            Tone::Authors,
            Tone::Simulated,
        ];
        let colours = tones
            .map(Tone::colour)
            .into_iter()
            .chain([INK, MUTED, GRID]);
        for RGBColor(red, green, blue) in colours {
            let light = format!("#{red:02X}{green:02X}{blue:02X}");
            assert!(DARK.iter().any(|(known, _)| *known == light), "{light}");
        }
    }

    #[test]
    fn figures_of_one_size_are_bars_from_0_and_others_dots() {
        let linear = Scale::of(&[1.0, 39.0, 0.0]);
        assert_eq!((linear.at(0.0), linear.at(39.0)), (0, WIDTH - 8));
        let log = Scale::of(&[1.0, 100.0]);
        assert!(matches!(log, Scale::Log { .. }));
        assert!(log.at(0.0) == 0 && log.at(1.0) > 20 && log.at(100.0) == WIDTH - 8);
        assert_eq!(Scale::of(&[]).at(0.0), 0);
    }
}
