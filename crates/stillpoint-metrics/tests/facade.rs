//! The figures arrive at the recorder of the crate `metrics`.
#![cfg(feature = "metrics")]

use metrics::{
    Counter, CounterFn, Gauge, GaugeFn, Histogram, Key, KeyName, Metadata, SharedString, Unit,
};
use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
};
use stillpoint_metrics::{Exporter, Kind};

/// Values by name and labels.
type Values = Arc<Mutex<BTreeMap<String, f64>>>;

#[derive(Default)]
struct Recorder(Values);

struct Cell(Values, String);

impl Cell {
    fn set(&self, value: f64) {
        self.0.lock().unwrap().insert(self.1.clone(), value);
    }
}

impl CounterFn for Cell {
    fn increment(&self, _: u64) {
        panic!("counters are set");
    }

    fn absolute(&self, value: u64) {
        self.set(value as f64);
    }
}

impl GaugeFn for Cell {
    fn increment(&self, _: f64) {
        panic!("gauges are set");
    }

    fn decrement(&self, _: f64) {
        panic!("gauges are set");
    }

    fn set(&self, value: f64) {
        self.set(value);
    }
}

impl Recorder {
    fn cell(&self, key: &Key) -> Arc<Cell> {
        let labels = key
            .labels()
            .map(|label| format!("{}={}", label.key(), label.value()));
        let name = format!("{} {}", key.name(), labels.collect::<Vec<_>>().join(" "));
        Arc::new(Cell(Arc::clone(&self.0), name))
    }
}

impl metrics::Recorder for Recorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.cell(key))
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.cell(key))
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        panic!("durations are not given one by one")
    }
}

#[test]
fn every_metric_arrives() {
    let (recorder, exporter) = (Recorder::default(), Exporter::new());
    let domain = stillpoint::Domain::builder().budget(12_345).build();
    exporter.add_domain("facade", &domain).unwrap();
    metrics::with_local_recorder(&recorder, || exporter.record());
    let values = recorder.0.lock().unwrap();
    assert_eq!(values["stillpoint_budget_bytes domain=facade"], 12_345.0);
    for metric in Exporter::metrics()
        .iter()
        .filter(|metric| metric.label == "domain")
    {
        let name = format!("{} domain=facade", metric.name);
        let name = match metric.kind {
            Kind::Histogram => name + " quantile=0.99",
            _ => name,
        };
        assert!(values.contains_key(&name), "{name}");
    }
}
