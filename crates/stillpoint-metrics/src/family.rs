//! The metrics: their names, units and meanings, and how each is read.

use crate::buckets::buckets;
use prometheus_client::{
    encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet},
    metrics::MetricType,
    registry::Unit,
};
use std::fmt;
use stillpoint::Histogram;

/// The kind of a metric, in Prometheus's sense.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// Only rises, as long as its subject is exported.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Durations in buckets.
    Histogram,
}

/// A metric, as [`Exporter::metrics`](crate::Exporter::metrics) lists them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// The whole name, as queries use it: `stillpoint_unreclaimed_bytes`. For a histogram, queries
    /// append `_bucket`, `_sum` or `_count`.
    pub name: String,
    /// The meaning, as a phrase.
    pub help: &'static str,
    /// The kind.
    pub kind: Kind,
    /// The base unit, `bytes` or `seconds`, if there is one. The name has it at the end, before
    /// `_total`.
    pub unit: Option<&'static str>,
    /// The label.
    pub label: &'static str,
}

/// Prefix of all names.
const PREFIX: &str = "stillpoint_";

/// A value that has been read.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Value<'a> {
    Number(u64),
    Real(f64),
    Times(&'a Histogram),
}

/// A metric of things whose samples are `S`.
struct Family<S> {
    name: &'static str,
    help: &'static str,
    kind: Kind,
    unit: Option<&'static str>,
    /// Reads the value; `None` if the thing has no such value.
    read: fn(&S) -> Option<Value<'_>>,
}

impl<S> Family<S> {
    const fn new(
        kind: Kind,
        unit: Option<&'static str>,
        name: &'static str,
        help: &'static str,
        read: fn(&S) -> Option<Value<'_>>,
    ) -> Self {
        Self {
            name,
            help,
            kind,
            unit,
            read,
        }
    }

    /// Returns the name without unit and `_total`.
    fn stem(&self) -> String {
        format!("{PREFIX}{}", self.name)
    }

    fn metric(&self, label: &'static str) -> Metric {
        let mut name = self.stem();
        if let Some(unit) = self.unit {
            name = name + "_" + unit;
        }
        if self.kind == Kind::Counter {
            name += "_total";
        }
        Metric {
            name,
            help: self.help,
            kind: self.kind,
            unit: self.unit,
            label,
        }
    }
}

/// All metrics of one kind of thing, which have one label.
pub(crate) struct Families<S: 'static> {
    label: &'static str,
    all: &'static [Family<S>],
}

impl<S> Families<S> {
    pub(crate) fn metrics(&self) -> impl Iterator<Item = Metric> {
        self.all.iter().map(|family| family.metric(self.label))
    }

    /// Encodes the samples, each with its name.
    pub(crate) fn encode(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        samples: &[(String, S)],
    ) -> fmt::Result {
        for family in self.all {
            let unit = family.unit.map(|unit| Unit::Other(unit.to_owned()));
            let kind = match family.kind {
                Kind::Counter => MetricType::Counter,
                Kind::Gauge => MetricType::Gauge,
                Kind::Histogram => MetricType::Histogram,
            };
            // The description ends with a full stop, as those of `prometheus-client` do.
            let help = format!("{}.", family.help);
            let stem = family.stem();
            let mut encoder = encoder.encode_descriptor(&stem, &help, unit.as_ref(), kind)?;
            for (name, sample) in samples {
                if let Some(value) = (family.read)(sample) {
                    let labels = [(self.label, name.as_str())];
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

macro_rules! families {
    ($label:literal: $($kind:ident $([$unit:literal])? $name:literal $help:literal, $read:expr;)*) => {
        Families {
            label: $label,
            all: &[$(Family::new(Kind::$kind, families!(@ $($unit)?), $name, $help, $read)),*],
        }
    };
    (@) => { None };
    (@ $unit:literal) => { Some($unit) };
}

/// A domain's statistics and its budget.
pub(crate) struct DomainSample {
    pub(crate) statistics: stillpoint::Statistics,
    pub(crate) budget: u64,
    /// How long readers have stalled the oldest grace period, in nanoseconds; 0 if they do not.
    pub(crate) stalled_for: u64,
}

macro_rules! of_domain {
    ($field:ident) => {
        |sample| Some(Value::Number(sample.statistics.$field))
    };
}

pub(crate) const DOMAIN: Families<DomainSample> = families! { "domain":
    Gauge "unreclaimed_objects" "Retired objects that have not been freed", of_domain!(objects_pending);
    Gauge ["bytes"] "unreclaimed" "Weight of retired objects that have not been freed", of_domain!(bytes_pending);
    Gauge ["bytes"] "budget" "Unreclaimed bytes at which threads that retire wait",
        |sample| Some(Value::Number(sample.budget));
    Gauge "tracking_pages" "Pages of 4 KiB that track retired objects", of_domain!(pages);
    Gauge "callbacks_pending" "Callbacks that have not been invoked", of_domain!(callbacks_pending);
    Gauge "futures_pending" "Tasks that wait for a grace period or a barrier", of_domain!(futures_pending);
    Gauge "reader_records" "Records of readers, in use and spare", of_domain!(records);
    Gauge ["seconds"] "stall_duration" "How long readers have stalled the oldest grace period; 0 while they do not",
        |sample| Some(Value::Real(sample.stalled_for as f64 / 1e9));
    Counter "objects_freed" "Objects freed", of_domain!(objects_freed);
    Counter "callbacks_invoked" "Callbacks invoked", of_domain!(callbacks_invoked);
    Counter "grace_periods" "Grace periods that have ended", of_domain!(grace_periods);
    Counter "heavy_barriers" "membarrier calls, or fences instead", of_domain!(heavy_barriers);
    Counter "assists" "Grace periods that a retiring thread has ended itself", of_domain!(assists);
    Counter "waits" "Bounded waits of retiring threads, past the budget", of_domain!(waits);
    Counter "inline_waits" "Objects freed by their retirer, without memory for a page", of_domain!(inline_waits);
    Counter "objects_leaked" "Objects that are never freed, without memory to track them", of_domain!(objects_leaked);
    Counter "stalls" "Grace periods held up for longer than the stall time-out", of_domain!(stalls);
    Counter "service_stalls" "Times that the service thread was held up for as long", of_domain!(service_stalls);
    Counter "panics" "Callbacks, destructors, wakers and stall handlers that panicked", of_domain!(panics);
    Counter "service_failures" "Panics of the service thread in the library's own code", of_domain!(service_failures);
    Histogram ["seconds"] "grace_period_duration" "Grace periods that a reader has held up, from the first waiter's look; of the others, from start to end, 1 in 128 counts for 128",
        |sample| Some(Value::Times(&sample.statistics.grace_period_times));
    Histogram ["seconds"] "callback_delay" "Callbacks from being queued to the end of the pass that invoked them",
        |sample| Some(Value::Times(&sample.statistics.callback_times));
    Histogram ["seconds"] "wait_duration" "Bounded waits of retiring threads",
        |sample| Some(Value::Times(&sample.statistics.wait_times));
    Histogram ["seconds"] "reclaim_pass_duration" "Passes of the service thread that have freed objects",
        |sample| Some(Value::Times(&sample.statistics.reclaim_times));
};

/// The number of entries of a map.
pub(crate) const MAP: Families<usize> = families! { "map":
    Gauge "map_entries" "Entries of a map", |&entries| Some(Value::Number(entries as u64));
};

/// The counts of a watch of memory pressure.
#[cfg(target_os = "linux")]
pub(crate) struct PressureSample {
    watching: bool,
    events: u64,
    coalesced: u64,
    objects: u64,
    panics: u64,
}

#[cfg(target_os = "linux")]
impl From<&stillpoint_lru::Pressure> for PressureSample {
    fn from(pressure: &stillpoint_lru::Pressure) -> Self {
        Self {
            watching: pressure.is_watching(),
            events: pressure.events(),
            coalesced: pressure.coalesced(),
            objects: pressure.objects(),
            panics: pressure.panics(),
        }
    }
}

#[cfg(target_os = "linux")]
macro_rules! of_pressure {
    ($field:ident) => {
        |sample| Some(Value::Number(sample.$field.into()))
    };
}

#[cfg(target_os = "linux")]
pub(crate) const PRESSURE: Families<PressureSample> = families! { "pressure":
    Gauge "pressure_watching" "1 while a thread watches for memory pressure, else 0", of_pressure!(watching);
    Counter "pressure_events" "Reclaim passes because of memory pressure", of_pressure!(events);
    Counter "pressure_coalesced" "Times that memory pressure came too soon after a pass for another", of_pressure!(coalesced);
    Counter "pressure_objects_reclaimed" "Objects that shrinkers have freed in those passes", of_pressure!(objects);
    Counter "pressure_panics" "Passes, or what is called after them, that panicked", of_pressure!(panics);
};

/// A tenant's statistics, or the sum of those of all tenants without separate series.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct TenantSample {
    pub(crate) usage: u64,
    /// Peak, min, low, high, max. `None` for a sum.
    pub(crate) limits: Option<[u64; 5]>,
    pub(crate) low_events: u64,
    pub(crate) high_events: u64,
    pub(crate) max_events: u64,
    pub(crate) failed_charges: u64,
    pub(crate) objects_reclaimed: u64,
}

impl From<stillpoint_lru::TenantStatistics> for TenantSample {
    fn from(now: stillpoint_lru::TenantStatistics) -> Self {
        Self {
            usage: now.usage,
            limits: Some([now.peak, now.min, now.low, now.high, now.max]),
            low_events: now.low_events,
            high_events: now.high_events,
            max_events: now.max_events,
            failed_charges: now.failed_charges,
            objects_reclaimed: now.objects_reclaimed,
        }
    }
}

macro_rules! of_tenant {
    ($field:ident) => {
        |sample| Some(Value::Number(sample.$field))
    };
    ([$at:literal]) => {
        // No limit is infinite, so that a query's difference of limit and usage is, too.
        |sample| match sample.limits?[$at] {
            u64::MAX => Some(Value::Real(f64::INFINITY)),
            bytes => Some(Value::Number(bytes)),
        }
    };
}

pub(crate) const TENANT: Families<TenantSample> = families! { "tenant":
    Gauge ["bytes"] "tenant_usage" "Bytes charged to a tenant and its descendants", of_tenant!(usage);
    Gauge ["bytes"] "tenant_peak" "Largest usage so far", of_tenant!([0]);
    Gauge ["bytes"] "tenant_min" "Usage up to which a tenant is never reclaimed from", of_tenant!([1]);
    Gauge ["bytes"] "tenant_low" "Usage up to which a tenant is reclaimed from last", of_tenant!([2]);
    Gauge ["bytes"] "tenant_high" "Usage past which a tenant is reclaimed from in the background; infinite for no limit", of_tenant!([3]);
    Gauge ["bytes"] "tenant_max" "Usage past which charges fail; infinite for no limit", of_tenant!([4]);
    Counter "tenant_low_events" "Passes that reclaimed below the low limit", of_tenant!(low_events);
    Counter "tenant_high_events" "Times that charges passed the high limit", of_tenant!(high_events);
    Counter "tenant_max_events" "Charges that met the max", of_tenant!(max_events);
    Counter "tenant_failed_charges" "Charges that failed because of the max", of_tenant!(failed_charges);
    Counter "tenant_objects_reclaimed" "Objects that shrinkers have freed", of_tenant!(objects_reclaimed);
};

macro_rules! of_cache {
    ($field:ident) => {
        |sample| Some(Value::Number(sample.$field))
    };
}

pub(crate) const CACHE: Families<stillpoint_cache::Statistics> = families! { "cache":
    Gauge "cache_entries" "Entries", of_cache!(entries);
    Gauge ["bytes"] "cache_size" "Weight of the entries", of_cache!(bytes);
    Gauge ["bytes"] "cache_pinned" "Weight of the pinned entries", of_cache!(pinned_bytes);
    Counter "cache_hits" "Look-ups that found an entry", of_cache!(hits);
    Counter "cache_misses" "Look-ups that found no entry", of_cache!(misses);
    Counter "cache_inserts" "Entries inserted", of_cache!(inserts);
    Counter "cache_loads" "Loaders that have returned a value", of_cache!(loads);
    Counter "cache_load_failures" "Loaders that have failed", of_cache!(load_failures);
    Counter ["seconds"] "cache_load_duration" "Time spent in loaders",
        |sample| Some(Value::Real(sample.load_nanos as f64 / 1e9));
    Counter "cache_evictions" "Entries evicted to make space", of_cache!(evicted);
    Counter "cache_expirations" "Entries whose time was over", of_cache!(expired);
    Counter "cache_replacements" "Entries replaced", of_cache!(replaced);
    Counter "cache_removals" "Entries removed", of_cache!(removed);
    Counter "cache_refusals" "Inserts refused", of_cache!(refused);
    Counter "cache_ghost_hits" "Inserts of keys that had been evicted shortly before", of_cache!(ghost_hits);
};
