//! Figures in words: three significant digits, since medians of a few rounds have no more, and the
//! unit always beside them.

/// What a figure counts.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds; shown in the unit that suits, as all times are.
    Nanoseconds,
    /// Microseconds.
    Microseconds,
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Times 2^20 bytes.
    Mebibytes,
    /// A bare number, whose unit stands elsewhere.
    Bare,
    /// What rcuscale prints as MB.
    Megabytes,
    /// Something a second.
    PerSecond,
    /// A share, 0 to 1, shown in percent.
    Share,
}

/// Nanoseconds that each unit of time has.
const TIMES: [(&str, f64); 4] = [("s", 1e9), ("ms", 1e6), ("µs", 1e3), ("ns", 1.0)];

const MULTIPLES: [(&str, f64); 4] = [(" G/s", 1e9), (" M/s", 1e6), (" k/s", 1e3), ("/s", 1.0)];

impl Unit {
    /// A round figure with its unit, for an axis: no digits that are 0.
    pub fn mark(self, value: f64) -> String {
        let text = self.show(value);
        let (number, unit) = text.split_at(text.find([' ', '/']).unwrap_or(text.len()));
        if number.contains('.') {
            format!(
                "{}{unit}",
                number.trim_end_matches('0').trim_end_matches('.')
            )
        } else {
            text
        }
    }

    /// The figure with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Nanoseconds => time(value),
            Self::Microseconds => time(value * 1e3),
            Self::Milliseconds => time(value * 1e6),
            Self::Seconds => time(value * 1e9),
            Self::Mebibytes => format!("{} MiB", significant(value)),
            Self::Bare => significant(value),
            Self::Megabytes => format!("{} MB", significant(value)),
            Self::PerSecond => scaled(value, &MULTIPLES, ""),
            Self::Share => format!("{} %", significant(value * 100.0)),
        }
    }

    /// So many times, in words: "6.8 times as long". `None` where that is about once.
    pub fn times(self, times: f64) -> Option<String> {
        let adverb = match self {
            Self::Nanoseconds | Self::Microseconds | Self::Milliseconds | Self::Seconds => "long",
            Self::PerSecond => "many",
            Self::Mebibytes | Self::Megabytes | Self::Bare | Self::Share => "much",
        };
        (times >= ABOUT_ONCE).then(|| format!("{} times as {adverb}", rounded(times, 2)))
    }
}

/// Less than so many times is noise.
const ABOUT_ONCE: f64 = 1.1;

fn time(nanoseconds: f64) -> String {
    scaled(nanoseconds, &TIMES, " ")
}

fn scaled(value: f64, units: &[(&str, f64)], space: &str) -> String {
    let (last, _) = units.split_last().expect("there are units");
    // What would be rounded up to 1,000 belongs to the next unit.
    let &(unit, factor) = units
        .iter()
        .find(|(_, factor)| value.abs() >= factor * 0.9995)
        .unwrap_or(last);
    format!("{}{space}{unit}", significant(value / factor))
}

/// Three significant digits.
pub fn significant(value: f64) -> String {
    rounded(value, 3)
}

/// So many significant digits.
fn rounded(value: f64, significant: i32) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".to_owned();
    }
    let digits = significant - 1 - value.abs().log10().floor() as i32;
    let unit = 10_f64.powi(digits);
    let rounded = (value * unit).round() / unit;
    // Rounding may have brought another digit before the point.
    let digits = significant - 1 - rounded.abs().log10().floor() as i32;
    grouped(&format!("{rounded:.*}", digits.clamp(0, 12) as usize))
}

/// With commas between thousands.
fn grouped(number: &str) -> String {
    let (whole, rest) = number.split_at(number.find('.').unwrap_or(number.len()));
    let (sign, whole) = whole.split_at(usize::from(whole.starts_with('-')));
    let mut text = sign.to_owned();
    for (index, digit) in whole.char_indices() {
        if index > 0 && (whole.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text + rest
}

/// The place in a ranking: 1st, 2nd, 3rd.
pub fn ordinal(place: usize) -> String {
    let suffix = match (place % 100, place % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{place}{suffix}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_three_digits_and_a_fitting_unit() {
        assert_eq!(Unit::Nanoseconds.show(0.6412), "0.641 ns");
        assert_eq!(Unit::Nanoseconds.show(18.26), "18.3 ns");
        assert_eq!(Unit::Nanoseconds.show(999.7), "1.00 µs");
        assert_eq!(Unit::Microseconds.show(10_171.733), "10.2 ms");
        assert_eq!(Unit::Milliseconds.show(0.0002), "200 ns");
        assert_eq!(Unit::Mebibytes.show(0.04), "0.0400 MiB");
        assert_eq!(Unit::Megabytes.show(3343.0), "3,340 MB");
        assert_eq!(Unit::PerSecond.show(191_687_096.0), "192 M/s");
        assert_eq!(Unit::PerSecond.show(47.0), "47.0/s");
        assert_eq!(Unit::Share.show(0.9102), "91.0 %");
        assert_eq!(significant(0.0), "0");
        assert_eq!(significant(-1234.0), "-1,230");
        assert_eq!(significant(9.999), "10.0");
        assert_eq!(significant(1_234_567.0), "1,230,000");
    }

    #[test]
    fn marks_at_an_axis_are_round() {
        assert_eq!(
            [1e-3, 0.25, 100.0, 1e3].map(|value| Unit::Microseconds.mark(value)),
            ["1 ns", "250 ns", "100 µs", "1 ms"]
        );
        assert_eq!(
            [0.1, 10.0].map(|value| Unit::Bare.mark(value)),
            ["0.1", "10"]
        );
        assert_eq!(
            [1.0, 2e7].map(|value| Unit::PerSecond.mark(value)),
            ["1/s", "20 M/s"]
        );
    }

    #[test]
    fn times_are_told_in_two_digits() {
        let times = |unit: Unit, times| unit.times(times);
        assert_eq!(
            times(Unit::Nanoseconds, 6.773).as_deref(),
            Some("6.8 times as long")
        );
        assert_eq!(
            times(Unit::Mebibytes, 18.24).as_deref(),
            Some("18 times as much")
        );
        assert_eq!(
            times(Unit::PerSecond, 12_345.0).as_deref(),
            Some("12,000 times as many")
        );
        assert_eq!(times(Unit::Seconds, 1.09), None);
    }

    #[test]
    fn places_have_their_endings() {
        assert_eq!(
            [1, 2, 3, 4, 11, 12, 13, 21, 111].map(ordinal),
            [
                "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "111th"
            ]
        );
    }
}
