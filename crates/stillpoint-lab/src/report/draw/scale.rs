//! Where a figure stands on an axis, in percent of its length, and what is written at it.

use super::numbers::Unit;

/// From this ratio of the greatest figure to the least on an axis is logarithmic, and its marks are
/// dots: in a linear chart the least would be a hair.
const WIDE: f64 = 40.0;

/// An axis.
pub struct Scale {
    kind: Kind,
    /// Where lines cross it, in percent.
    pub lines: Vec<f64>,
    /// Where something is written, in percent.
    pub ticks: Vec<(f64, String)>,
}

enum Kind {
    Linear { greatest: f64 },
    Log { low: f64, decades: f64 },
}

impl Scale {
    /// The axis that suits these figures: from 0 where they are of one size.
    pub fn of(values: &[f64], unit: Unit) -> Self {
        let greatest = values.iter().copied().fold(0.0, f64::max);
        let least = values
            .iter()
            .copied()
            .filter(|&value| value > 0.0)
            .fold(f64::INFINITY, f64::min);
        if greatest > WIDE * least {
            Self::log(least, greatest, unit)
        } else {
            Self::linear(greatest, unit)
        }
    }

    /// From 0.
    pub fn linear(greatest: f64, unit: Unit) -> Self {
        let greatest = if greatest > 0.0 && greatest.is_finite() {
            greatest
        } else {
            1.0
        };
        let rough = greatest / 4.0;
        let power = 10_f64.powf(rough.log10().floor());
        let step = [1.0, 2.0, 2.5, 5.0, 10.0]
            .map(|factor| factor * power)
            .into_iter()
            .find(|&step| step >= rough)
            .unwrap_or(rough);
        let steps = (greatest / step).ceil().max(1.0);
        let end = steps * step;
        let values = (0..=steps as u32).map(|index| f64::from(index) * step);
        let lines: Vec<f64> = values.clone().map(|value| 100.0 * value / end).collect();
        // At most four are written at, so that they never touch.
        let stride = if steps > 3.0 { 2 } else { 1 };
        let mark = |value: f64| {
            if value == 0.0 {
                "0".to_owned()
            } else {
                unit.mark(value)
            }
        };
        let ticks = lines
            .iter()
            .copied()
            .zip(values.map(mark))
            .step_by(stride)
            .collect();
        Self {
            kind: Kind::Linear { greatest: end },
            lines,
            ticks,
        }
    }

    /// Whole decades, the lowest of which the least figure is inside of, not at the end.
    pub fn log(least: f64, greatest: f64, unit: Unit) -> Self {
        let low = (least.log10() - 0.15).floor();
        let high = greatest.log10().ceil().max(low + 1.0);
        let decades = high - low;
        let place = |decade: u32| 100.0 * f64::from(decade) / decades;
        let stride = (decades / 3.0).ceil().max(1.0) as usize;
        let ticks = (0..=decades as u32)
            .step_by(stride)
            .map(|decade| {
                (
                    place(decade),
                    unit.mark(10_f64.powf(low + f64::from(decade))),
                )
            })
            .collect();
        Self {
            kind: Kind::Log { low, decades },
            lines: (0..=decades as u32).map(place).collect(),
            ticks,
        }
    }

    /// Whether it is logarithmic.
    pub fn is_log(&self) -> bool {
        matches!(self.kind, Kind::Log { .. })
    }

    /// Where a figure stands, in percent; outside of the axis, at its end.
    pub fn at(&self, value: f64) -> f64 {
        let share = match self.kind {
            Kind::Linear { greatest } => value / greatest,
            Kind::Log { low, decades } if value > 0.0 => (value.log10() - low) / decades,
            Kind::Log { .. } => 0.0,
        };
        (share.clamp(0.0, 1.0) * 1e4).round() / 1e2
    }

    /// What a chart says of it.
    pub fn words(&self) -> &'static str {
        if self.is_log() {
            "log scale, lines 10 times apart"
        } else {
            ""
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(scale: &Scale) -> Vec<&str> {
        scale.ticks.iter().map(|(_, text)| text.as_str()).collect()
    }

    #[test]
    fn figures_of_one_size_stand_on_an_axis_from_0() {
        let scale = Scale::of(&[0.29, 8.08, 0.0], Unit::Nanoseconds);
        assert!(!scale.is_log());
        assert_eq!(written(&scale), ["0", "5 ns", "10 ns"]);
        assert_eq!(
            (scale.at(0.0), scale.at(5.0), scale.at(11.0)),
            (0.0, 50.0, 100.0)
        );
    }

    #[test]
    fn a_wide_range_is_logarithmic_and_nothing_on_it_has_no_length() {
        let scale = Scale::of(&[0.1, 10_000.0], Unit::Microseconds);
        assert!(scale.is_log());
        assert_eq!(written(&scale), ["10 ns", "1 µs", "100 µs", "10 ms"]);
        assert!(scale.at(0.1) > 10.0);
        assert_eq!(scale.at(0.0), 0.0);
    }

    #[test]
    fn no_figures_and_only_nothing_make_an_axis_too() {
        assert!(!Scale::of(&[], Unit::Share).is_log());
        assert_eq!(Scale::of(&[0.0, 0.0], Unit::Share).at(0.0), 0.0);
    }
}
