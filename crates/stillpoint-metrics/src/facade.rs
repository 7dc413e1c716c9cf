//! Everything to the recorder of the crate `metrics`.

use crate::{
    Exporter,
    family::{Group, Kind, Unit, Value, Visitor},
};
use metrics::{Label, counter, gauge};
use std::convert::Infallible;

/// What the facade gets of a histogram, which takes single durations alone.
const QUANTILES: [(f64, &str); 3] = [(0.5, "0.5"), (0.99, "0.99"), (1.0, "1")];

impl Exporter {
    /// Gives all figures to the installed recorder of the crate `metrics`: counters and gauges by
    /// the names that [`Exporter::metrics`] lists. Of histograms, as that crate takes single
    /// durations alone, gauges with a label `quantile` (0.5, 0.99 and 1) since the start of the
    /// process, and `_count` and `_sum` as they are in Prometheus. To be called at each scrape, or
    /// every few seconds. Without a recorder it does nothing.
    ///
    /// ```
    /// let exporter = stillpoint_metrics::Exporter::new();
    /// exporter.record();
    /// ```
    #[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
    pub fn record(&self) {
        let Ok(()) = self.samples().visit(&mut Recorder);
    }
}

struct Recorder;

impl Visitor for Recorder {
    type Error = Infallible;

    fn group<S>(&mut self, group: &Group<S>) -> Result<(), Infallible> {
        for family in group.families {
            let metric = family.metric(group.label);
            let name = metric.name;
            let unit = match metric.unit {
                Some(Unit::Bytes) => metrics::Unit::Bytes,
                Some(Unit::Seconds) => metrics::Unit::Seconds,
                None => metrics::Unit::Count,
            };
            match family.kind {
                Kind::Counter => metrics::describe_counter!(name.clone(), unit, family.help),
                _ => metrics::describe_gauge!(name.clone(), unit, family.help),
            }
            for (of, sample) in &group.samples {
                let labels = vec![Label::new(group.label, of.clone())];
                match (family.read)(sample) {
                    Some(Value::Number(value)) if family.kind == Kind::Counter => {
                        counter!(name.clone(), labels).absolute(value);
                    }
                    Some(Value::Number(value)) => gauge!(name.clone(), labels).set(value as f64),
                    // Also the one counter that is not whole, which its counters cannot hold.
                    Some(Value::Real(value)) => gauge!(name.clone(), labels).set(value),
                    Some(Value::Times(times)) => {
                        for (q, text) in QUANTILES {
                            let mut labels = labels.clone();
                            labels.push(Label::new("quantile", text));
                            gauge!(name.clone(), labels).set(times.quantile(q).as_secs_f64());
                        }
                        let count = format!("{name}_count");
                        counter!(count, labels.clone()).absolute(times.count());
                        gauge!(format!("{name}_sum"), labels).set(times.sum().as_secs_f64());
                    }
                    None => {}
                }
            }
        }
        Ok(())
    }
}
