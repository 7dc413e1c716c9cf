//! An exporter as a collector of `prometheus-client`.

use crate::{
    Exporter,
    family::{Group, Kind, Unit, Value, Visitor},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet},
    metrics::MetricType,
    registry,
};
use std::{fmt, time::Duration};

/// The first bucket of a histogram ends at 256 ns, and each further one at four times as much: the
/// last but one at 69 s.
const FIRST_END: u64 = 1 << 8;
const LAST_END: u64 = 1 << 36;
const FACTOR: u64 = 4;

impl Collector for Exporter {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        self.samples().visit(&mut Text(encoder))
    }
}

struct Text<'a>(DescriptorEncoder<'a>);

impl Visitor for Text<'_> {
    type Error = fmt::Error;

    fn group<S>(&mut self, group: &Group<S>) -> fmt::Result {
        for family in group.families {
            let unit = family.unit.map(|unit| match unit {
                Unit::Bytes => registry::Unit::Bytes,
                Unit::Seconds => registry::Unit::Seconds,
            });
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            let stem = family.stem();
            // The description ends with a full stop, as those of `prometheus-client` do.
            let help = format!("{}.", family.help);
            let mut encoder = self
                .0
                .encode_descriptor(&stem, &help, unit.as_ref(), kind)?;
            for (name, sample) in &group.samples {
                if let Some(value) = (family.read)(sample) {
                    let labels = [(group.label, name.as_str())];
                    encode(encoder.encode_family(&labels)?, family.kind, value)?;
                }
            }
        }
        Ok(())
    }
}

fn encode(mut encoder: MetricEncoder<'_>, kind: Kind, value: Value<'_>) -> fmt::Result {
    match (kind, value) {
        (Kind::Counter, Value::Number(value)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (Kind::Counter, Value::Real(value)) => {
            encoder.encode_counter::<NoLabelSet, _, u64>(&value, None)
        }
        (_, Value::Number(value)) => encoder.encode_gauge(&value),
        (_, Value::Real(value)) => encoder.encode_gauge(&value),
        (_, Value::Times(times)) => {
            let (sum, count) = (times.sum().as_secs_f64(), times.count());
            encoder.encode_histogram::<NoLabelSet>(sum, count, &buckets(times.buckets()), None)
        }
    }
}

/// Coarser buckets: the upper ends in seconds, and how many are in each.
fn buckets(fine: impl Iterator<Item = (Duration, u64)>) -> Vec<(f64, u64)> {
    let ends = std::iter::successors(Some(FIRST_END), |end| Some(end * FACTOR));
    let mut fine = fine.peekable();
    let mut coarse: Vec<(f64, u64)> = ends
        .take_while(|&end| end <= LAST_END)
        .map(|end| {
            let mut count = 0;
            while let Some((_, more)) = fine.next_if(|(upper, _)| upper.as_nanos() <= end.into()) {
                count += more;
            }
            (end as f64 / 1e9, count)
        })
        .collect();
    coarse.push((f64::INFINITY, fine.map(|(_, more)| more).sum()));
    coarse
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fine_bucket_is_in_one_coarse_one() {
        let fine = stillpoint::Histogram::default();
        let fine: Vec<_> = fine.buckets().map(|(end, _)| end).collect();
        // One duration in each bucket.
        let coarse = buckets(fine.iter().map(|&end| (end, 1)));
        let mut begin = Duration::ZERO;
        for &(end, count) in &coarse {
            let end = Duration::try_from_secs_f64(end).unwrap_or(Duration::MAX);
            let inside = fine.iter().filter(|&&upper| begin < upper && upper <= end);
            assert_eq!(count, inside.count() as u64, "{end:?}");
            assert!(count > 0 && (end == Duration::MAX || fine.contains(&end)));
            begin = end;
        }
        assert_eq!(coarse.len(), 16);
    }
}
