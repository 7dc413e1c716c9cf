//! An exporter as a collector of `prometheus-client`.

use crate::{
    Exporter,
    buckets::buckets,
    family::{Group, Kind, Unit, Value, Visitor},
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet},
    metrics::MetricType,
    registry,
};
use std::fmt;

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
