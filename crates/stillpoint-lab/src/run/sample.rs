//! What one process measured, and the medians and the spread over the rounds.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Figures by name, the unit in the name. A figure that the subject cannot have is absent.
pub type Metrics = BTreeMap<String, f64>;

/// The least and the greatest value of each figure over the rounds.
pub type Spread = BTreeMap<String, [f64; 2]>;

/// One figure as it depends on another.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Curve {
    /// What the first of each point's two numbers is, the unit in the name.
    pub x: String,
    /// What the second one is.
    pub y: String,
    /// The points, their first numbers growing.
    pub points: Vec<(f64, f64)>,
}

impl Curve {
    /// Returns whether there is nothing in it.
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }
}

/// What one process measured.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct Sample {
    /// The figures.
    pub metrics: Metrics,
    /// The curve that goes with them; empty where the experiment has none.
    #[serde(default, skip_serializing_if = "Curve::is_empty")]
    pub curve: Curve,
}

impl Sample {
    /// Returns a sample of these figures, without a curve.
    pub fn of(figures: impl IntoIterator<Item = (&'static str, f64)>) -> Self {
        Self {
            metrics: metrics(figures),
            curve: Curve::default(),
        }
    }

    /// Adds figures; an `Option` adds one, if there is one.
    pub fn add(&mut self, figures: impl IntoIterator<Item = (&'static str, f64)>) {
        self.metrics.extend(metrics(figures));
    }
}

/// Returns figures by their names.
pub fn metrics<'n>(figures: impl IntoIterator<Item = (&'n str, f64)>) -> Metrics {
    let named = |(name, figure): (&str, f64)| (name.to_owned(), figure);
    figures.into_iter().map(named).collect()
}

/// The median of each figure over the samples that have it.
pub fn medians(samples: &[Sample]) -> Metrics {
    by_figure(samples)
        .into_iter()
        .map(|(name, values)| (name.to_owned(), median(values)))
        .collect()
}

/// The least and the greatest value of each figure that several samples have.
pub fn spread(samples: &[Sample]) -> Spread {
    let ends = |values: &[f64]| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        [
            least,
            values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        ]
    };
    let several = by_figure(samples)
        .into_iter()
        .filter(|(_, values)| values.len() > 1);
    several
        .map(|(name, values)| (name.to_owned(), ends(&values)))
        .collect()
}

fn by_figure(samples: &[Sample]) -> BTreeMap<&str, Vec<f64>> {
    let mut values: BTreeMap<&str, Vec<f64>> = BTreeMap::new();
    for (name, &value) in samples.iter().flat_map(|sample| &sample.metrics) {
        values.entry(name).or_default().push(value);
    }
    values
}

/// The middle value; of an even number of values the mean of the middle two.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len() % 2 == 1 {
        values[middle]
    } else {
        f64::midpoint(values[middle - 1], values[middle])
    }
}

/// The sample whose figure `name` is the median one (of an even number of samples the lower of the
/// middle two).
pub fn median_by<'a>(samples: &'a [Sample], name: &str) -> Option<&'a Sample> {
    let mut sorted: Vec<(f64, &Sample)> = samples
        .iter()
        .filter_map(|sample| Some((*sample.metrics.get(name)?, sample)))
        .collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0));
    let middle = sorted.len().checked_sub(1)? / 2;
    Some(sorted[middle].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_spreads_are_of_the_samples_that_have_the_figure() {
        let samples = [
            Sample::of([("total_s", 3.0), ("drain_ms", 8.0)]),
            Sample::of([("total_s", 1.0)]),
            Sample::of([("total_s", 2.0), ("drain_ms", 4.0), ("peak_mib", 1.0)]),
        ];
        let expected = metrics([("total_s", 2.0), ("drain_ms", 6.0), ("peak_mib", 1.0)]);
        assert_eq!(medians(&samples), expected);
        let ends = |(name, ends): (&str, [f64; 2])| (name.to_owned(), ends);
        let expected = [("total_s", [1.0, 3.0]), ("drain_ms", [4.0, 8.0])].map(ends);
        assert_eq!(spread(&samples), expected.into());
    }

    #[test]
    fn the_median_sample_is_one_of_the_samples() {
        let samples = [1.0, 4.0, 2.0, 3.0].map(|value| Sample::of([("peak_mib", value)]));
        let median = median_by(&samples, "peak_mib").expect("all have it");
        assert_eq!(median.metrics["peak_mib"], 2.0);
        assert!(median_by(&samples, "drain_ms").is_none());
    }
}
