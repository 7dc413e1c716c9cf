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
    /// What rcuscale prints as MB.
    Megabytes,
    /// Something a second.
    PerSecond,
    /// A share, 0 to 1, shown in percent.
    Share,
}

/// Nanoseconds of each unit of time.
const TIMES: [(&str, f64); 4] = [(" s", 1e9), (" ms", 1e6), (" µs", 1e3), (" ns", 1.0)];

const RATES: [(&str, f64); 4] = [(" G/s", 1e9), (" M/s", 1e6), (" k/s", 1e3), ("/s", 1.0)];

/// A ratio below this is noise.
const ABOUT_ONCE: f64 = 1.1;

impl Unit {
    /// Returns the figure with its unit.
    pub fn show(self, value: f64) -> String {
        match self {
            Self::Nanoseconds => scaled(value, &TIMES),
            Self::Microseconds => scaled(value * 1e3, &TIMES),
            Self::Milliseconds => scaled(value * 1e6, &TIMES),
            Self::Seconds => scaled(value * 1e9, &TIMES),
            Self::Mebibytes => format!("{} MiB", significant(value)),
            Self::Megabytes => format!("{} MB", significant(value)),
            Self::PerSecond => scaled(value, &RATES),
            Self::Share => format!("{} %", significant(value * 100.0)),
        }
    }

    /// Returns a ratio in words, such as "6.8 times as long"; `None` where it is about 1.
    pub fn times(self, ratio: f64) -> Option<String> {
        let adverb = match self {
            Self::Nanoseconds | Self::Microseconds | Self::Milliseconds | Self::Seconds => "long",
            Self::PerSecond => "many",
            Self::Mebibytes | Self::Megabytes | Self::Share => "much",
        };
        (ratio >= ABOUT_ONCE).then(|| format!("{} times as {adverb}", rounded(ratio, 2)))
    }
}

fn scaled(value: f64, units: &[(&str, f64)]) -> String {
    let (last, _) = units.split_last().expect("there are units");
    // What would be rounded up to 1,000 belongs to the next unit.
    let &(unit, factor) = units
        .iter()
        .find(|(_, factor)| value.abs() >= factor * 0.9995)
        .unwrap_or(last);
    format!("{}{unit}", significant(value / factor))
}

/// Rounds to three significant digits.
pub fn significant(value: f64) -> String {
    rounded(value, 3)
}

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

/// Puts commas between thousands.
pub fn grouped(number: &str) -> String {
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

/// Returns the place in a ranking: 1st, 2nd, 3rd.
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
    }

    #[test]
    fn ratios_are_told_in_two_digits_and_places_have_their_endings() {
        assert_eq!(
            Unit::Nanoseconds.times(6.773).as_deref(),
            Some("6.8 times as long")
        );
        assert_eq!(
            Unit::PerSecond.times(12_345.0).as_deref(),
            Some("12,000 times as many")
        );
        assert_eq!(Unit::Seconds.times(1.09), None);
        assert_eq!(
            [1, 2, 3, 4, 11, 12, 13, 21, 111].map(ordinal),
            [
                "1st", "2nd", "3rd", "4th", "11th", "12th", "13th", "21st", "111th"
            ]
        );
    }
}
