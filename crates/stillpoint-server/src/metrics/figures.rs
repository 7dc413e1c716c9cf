//! What is counted, as a collector. Counters are sums over all tenants, and do not fall when one is
//! deleted: what it had come to at the scrape before stays in them.

use crate::{
    directory::{Count, Space},
    lock::lock,
    shared::{Shared, ThreadCounts},
    store::TenantStatistics,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, MetricEncoder, text::encode},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};
use std::{
    collections::{HashMap, HashSet},
    fmt,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};
use stillpoint_lru::Pressure;
use stillpoint_metrics::Exporter;

/// The label of the tenant that has no name, as `stats tenant` calls it.
const DEFAULT: &str = "-";

/// The answer to a scrape.
#[derive(Debug)]
pub(super) struct Page {
    registry: Registry,
}

impl Page {
    pub(super) fn new(shared: &Arc<Shared>, pressure: Option<&Arc<Pressure>>) -> Self {
        let exporter = Exporter::new();
        if let Some(pressure) = pressure {
            // No other has the name.
            let _ = exporter.add_pressure("memory", pressure);
        }
        let mut registry = Registry::default();
        // First: it looks which tenants there are.
        registry.register_collector(Box::new(Figures {
            shared: Arc::clone(shared),
            exporter: exporter.clone(),
            seen: Mutex::default(),
        }));
        // Of grace periods, and of tenants as parts of the hierarchy, which may be thousands.
        registry.register_collector(Box::new(exporter));
        Self { registry }
    }

    /// Adds all figures to `text`, with its end.
    pub(super) fn write(&self, text: &mut String) -> fmt::Result {
        encode(text, &self.registry)
    }
}

/// Makes an array of rows.
macro_rules! rows {
    ($($($cell:expr),+;)*) => {
        [$(($($cell),+)),*]
    };
}

/// Name, help and label of a family, and the label's value for a count, by its name in `stats`; `None` if
/// the count is of another family.
type ByLabel = (
    &'static str,
    &'static str,
    &'static str,
    fn(&'static str) -> Option<&'static str>,
);
const BY_LABEL: [ByLabel; 4] = rows! {
    "stillcache_commands", "Commands, by kind", "command", |stat| stat.strip_prefix("cmd_");
    "stillcache_hits", "Commands that found their item", "command", |stat| stat.strip_suffix("_hits");
    "stillcache_misses", "Commands that did not", "command", |stat| stat.strip_suffix("_misses");
    "stillcache_refused_stores", "Values that were not stored", "reason", |stat| stat.strip_prefix("store_");
};

/// Counts of the store for a tenant, beside those of commands.
type Event = (&'static str, &'static str, fn(&TenantStatistics) -> u64);
/// The events that tenants have series of.
const EVICTED: &str = "stillcache_evicted_items";
const EXPIRED: &str = "stillcache_expired_items";
const EVENTS: [Event; 7] = rows! {
    "stillcache_stored_items", "Items that were stored", |all| all.stored;
    EVICTED, "Items that were evicted", |all| all.evicted;
    "stillcache_evicted_unfetched_items", "Items that were evicted and never read", |all| all.evicted_unfetched;
    EXPIRED, "Items that have expired and were removed", |all| all.expired;
    "stillcache_expired_unfetched_items", "Items that have expired and were never read", |all| all.expired_unfetched;
    "stillcache_flushed_items", "Items that flush_all has removed", |all| all.flushed;
    "stillcache_compacted_items", "Items that were copied to free memory", |all| all.copied;
};

const COUNTERS: usize = Count::ALL.len() + EVENTS.len();

/// Counts of a tenant: its commands, then its events.
type Counters = [u64; COUNTERS];

/// The most tenants that have series; the others are one together.
const MOST: usize = 100;
/// The label of the others, which no tenant can have.
const OTHERS: &str = "~others";

/// Counters of each tenant.
type OfTenant = (&'static str, &'static str, fn(&Counters) -> u64);
const OF_TENANTS: [OfTenant; 6] = rows! {
    "stillcache_tenant_hits", "Keys of get that were found", |all| all[Count::GetHit as usize];
    "stillcache_tenant_misses", "Keys of get that were not found", |all| all[Count::GetMiss as usize];
    "stillcache_tenant_sets", "Commands that store", |all| all[Count::Set as usize];
    "stillcache_tenant_refused_stores", "Values that were not stored",
        |all| all[Count::TooLarge as usize] + all[Count::NoMemory as usize];
    "stillcache_tenant_evicted_items", "Items that were evicted", |all| event(all, EVICTED);
    "stillcache_tenant_expired_items", "Items that have expired and were removed", |all| event(all, EXPIRED);
};

/// Returns the counter of the event `name` of [`EVENTS`]; 0 if there is none.
fn event(all: &Counters, name: &str) -> u64 {
    let mut events = EVENTS.iter().zip(&all[Count::ALL.len()..]);
    let found = events.find(|((event, ..), _)| *event == name);
    found.map_or(0, |(_, count)| *count)
}

/// What a scrape says of a tenant.
struct Sample {
    label: String,
    counters: Counters,
    clients: usize,
    /// The part of the memory that it may have which it has; of the others, of the whole memory.
    fill: f64,
}

/// A tenant of the last scrape.
struct Last {
    /// Keeps the address from others.
    _space: Weak<Space>,
    counters: Counters,
    /// What its series count from, if it has series: its counters when it got them.
    base: Option<Counters>,
}

/// The tenants of the last scrape.
#[derive(Default)]
struct Seen {
    /// By the address of each, which is no other's while there is a handle of it.
    tenants: HashMap<usize, Last>,
    /// The names of those that have series, [`MOST`] at most.
    series: HashSet<Arc<str>>,
    /// Counts of tenants that are gone.
    gone: Counters,
    /// Those of tenants without series, and of others until they got series.
    gone_others: Counters,
    /// Whether there was ever a tenant without series.
    has_others: bool,
}

fn add(sum: &mut Counters, counters: &Counters) {
    for (sum, value) in sum.iter_mut().zip(counters) {
        *sum += value;
    }
}

struct Figures {
    shared: Arc<Shared>,
    /// What is told of tenants that come.
    exporter: Exporter,
    seen: Mutex<Seen>,
}

impl fmt::Debug for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Figures").finish_non_exhaustive()
    }
}

impl Figures {
    /// Returns the counters of all tenants, what they have now, and what is said of each.
    fn sum(&self) -> (Counters, TenantStatistics, Vec<Sample>) {
        let directory = self.shared.directory();
        let limit = self.shared.store.limit();
        let mut seen = lock(&self.seen);
        let mut before = std::mem::take(&mut seen.tenants);
        let (mut now, mut samples) = (TenantStatistics::default(), Vec::new());
        let spaces = directory.spaces.values();
        let key = |space: &Arc<Space>| Arc::as_ptr(space).addr();
        // A tenant that was deleted and created again keeps its place.
        let is_there = |name: &Arc<str>| directory.spaces.get(name).is_some();
        seen.series.retain(is_there);
        let mut others = Sample {
            label: OTHERS.into(),
            counters: seen.gone_others,
            clients: 0,
            fill: 0.0,
        };
        let mut all = seen.gone;
        for space in spaces {
            let figures = space.tenant.statistics();
            let commands = Count::ALL.iter().map(|&(count, _)| space.absolute(count));
            let events = EVENTS.iter().map(|(.., read)| read(&figures));
            let mut counters = [0; COUNTERS];
            for (counter, value) in counters.iter_mut().zip(commands.chain(events)) {
                *counter = value;
            }
            now.add(&figures);
            add(&mut all, &counters);
            let label = match &*space.name {
                "" => DEFAULT,
                name => name,
            };
            let known = before.remove(&key(space));
            if known.is_none() {
                // The memory of a deleted one of that name may still be on its way back.
                self.exporter.remove_tenant(label);
                // One with the name that the sum of others has is in no series.
                let _ = self.exporter.add_tenant(label, space.tenant.memory());
            }
            let clients = space.clients.load(Ordering::Relaxed);
            let fill = |limit: u64| figures.segment_bytes as f64 / limit.max(1) as f64;
            let mut base = known.as_ref().and_then(|last| last.base);
            let has_place = seen.series.len() < MOST || seen.series.contains(&space.name);
            if base.is_none() && has_place {
                // One of the others leaves there what it has counted: no sum falls.
                let start = known.map_or([0; COUNTERS], |_| counters);
                add(&mut seen.gone_others, &start);
                add(&mut others.counters, &start);
                seen.series.insert(Arc::clone(&space.name));
                base = Some(start);
            }
            if let Some(base) = &base {
                samples.push(Sample {
                    label: label.into(),
                    counters: std::array::from_fn(|at| counters[at].saturating_sub(base[at])),
                    clients,
                    fill: fill(space.tenant.limits().max.min(limit)),
                });
            } else {
                seen.has_others = true;
                add(&mut others.counters, &counters);
                others.clients += clients;
                others.fill += fill(limit);
            }
            let last = Last {
                _space: Arc::downgrade(space),
                counters,
                base,
            };
            seen.tenants.insert(key(space), last);
        }
        for last in before.into_values() {
            add(&mut seen.gone, &last.counters);
            add(&mut all, &last.counters);
            if last.base.is_none() {
                add(&mut seen.gone_others, &last.counters);
                add(&mut others.counters, &last.counters);
            }
        }
        if seen.has_others {
            samples.push(others);
        }
        (all, now, samples)
    }
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (counters, now, tenants) = self.sum();
        type Write<'a> = &'a dyn Fn(&Sample, MetricEncoder<'_>) -> fmt::Result;
        let mut of_tenants =
            |name: &str, help: &str, unit: Option<&Unit>, kind, write: Write<'_>| {
                let mut family = encoder.encode_descriptor(name, help, unit, kind)?;
                for tenant in &tenants {
                    let labels = [("tenant", tenant.label.as_str())];
                    write(tenant, family.encode_family(&labels)?)?;
                }
                Ok(())
            };
        for (name, help, read) in OF_TENANTS {
            let (help, kind) = (format!("{help}."), MetricType::Counter);
            let write = |of: &Sample, to: MetricEncoder<'_>| {
                ConstCounter::new(read(&of.counters)).encode(to)
            };
            of_tenants(name, &help, None, kind, &write)?;
        }
        let (name, help) = (
            "stillcache_tenant_connections",
            "Clients at home in the tenant.",
        );
        of_tenants(name, help, None, MetricType::Gauge, &|of, to| {
            ConstGauge::new(of.clients as u64).encode(to)
        })?;
        let (name, ratio) = ("stillcache_tenant_fill", Unit::Other("ratio".into()));
        let help = "Part of the memory that the tenant may have which its segments and index take.";
        of_tenants(name, help, Some(&ratio), MetricType::Gauge, &|of, to| {
            ConstGauge::new(of.fill).encode(to)
        })?;
        for (name, help, label, part) in BY_LABEL {
            let help = format!("{help}.");
            let mut family = encoder.encode_descriptor(name, &help, None, MetricType::Counter)?;
            for (&(_, stat), &count) in Count::ALL.iter().zip(&counters) {
                if let Some(value) = part(stat) {
                    let labels = [(label, value)];
                    ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
                }
            }
        }
        let (shared, totals) = (&self.shared, &self.shared.totals);
        let load = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let sum = |read: fn(&ThreadCounts) -> &AtomicU64| {
            shared.threads.iter().map(|thread| load(read(thread))).sum()
        };
        let bytes = Some(&Unit::Bytes);
        let events = EVENTS.iter().zip(&counters[Count::ALL.len()..]);
        let events = events.map(|(&(name, help, _), &value)| (name, help, None, value));
        let others = rows! {
            "stillcache_read", "What was read from clients", bytes, sum(|of| &of.bytes_read);
            "stillcache_written", "What was sent to clients", bytes, sum(|of| &of.bytes_written);
            "stillcache_authentications", "Logins", None, sum(|of| &of.auth);
            "stillcache_authentication_errors", "Logins that were wrong", None, sum(|of| &of.auth_errors);
            "stillcache_accepted_connections", "Connections that were accepted", None, load(&totals.connections_total);
            "stillcache_rejected_connections", "Connections and logins for which -c, or the tenant's part of it, had no place",
                None, load(&totals.connections_rejected);
            "stillcache_idle_kicks", "Clients that were dropped as idle", None, load(&totals.idle_kicks);
            "stillcache_slow_kicks", "Clients that were dropped as too slow", None, load(&totals.dropped_slow);
            "stillcache_memory_kicks", "Clients that were dropped for the memory of their buffers", None, load(&totals.dropped_memory);
            "stillcache_refused_answers", "Answers that a limit of buffers had no room for", None, load(&totals.no_room);
            "stillcache_accept_pauses", "Times that accepting paused, without descriptors", None, load(&totals.accept_pauses);
            "stillcache_handshake_errors", "Clients by TLS that did not finish their handshake", None, load(&totals.handshake_errors);
        };
        for (name, help, unit, value) in events.chain(others) {
            let help = format!("{help}.");
            let encoder = encoder.encode_descriptor(name, &help, unit, MetricType::Counter)?;
            ConstCounter::new(value).encode(encoder)?;
        }
        let store = shared.store.statistics_with(now);
        let size = |value: &AtomicUsize| value.load(Ordering::Relaxed) as u64;
        let gauges = rows! {
            "stillcache_items", "Items", None, now.items;
            "stillcache_item", "What items take", bytes, now.item_bytes;
            "stillcache_segment", "What segments and indexes take, which is limited", bytes, now.segment_bytes;
            "stillcache_index", "What of that indexes take", bytes, now.index_bytes;
            "stillcache_pinned", "Values that clients are being sent", bytes, now.pinned_bytes;
            "stillcache_connections", "Clients", None, size(&totals.connections);
            "stillcache_tenants", "Tenants", None, store.tenants;
            "stillcache_limit", "What segments may take", bytes, store.limit;
            "stillcache_limbo", "Segments that wait for readers", bytes, store.limbo_bytes;
            "stillcache_spare", "Segments that are kept for the next item", bytes, store.spare_bytes;
            "stillcache_buffer", "Buffers of connections", bytes, size(&totals.buffer_bytes);
        };
        for (name, help, unit, value) in gauges {
            let help = format!("{help}.");
            let encoder = encoder.encode_descriptor(name, &help, unit, MetricType::Gauge)?;
            ConstGauge::new(value).encode(encoder)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        config::Settings,
        log::Log,
        store::{Config, LOOKS, Store},
    };

    #[test]
    fn the_events_of_tenants_are_events() {
        let counters = std::array::from_fn(|at| at as u64);
        for name in [EVICTED, EXPIRED] {
            let at = event(&counters, name) as usize - Count::ALL.len();
            assert_eq!(EVENTS[at].0, name);
        }
    }

    #[test]
    fn counts_have_the_labels_that_dashboards_name() {
        let labels = BY_LABEL.map(|(name, _, label, part)| {
            let values = Count::ALL.iter().filter_map(|&(_, stat)| part(stat));
            format!("{name} {label}: {}", values.collect::<Vec<_>>().join(" "))
        });
        assert_eq!(
            labels,
            [
                "stillcache_commands command: get set flush touch meta",
                "stillcache_hits command: get delete incr decr cas touch",
                "stillcache_misses command: get delete incr decr cas touch",
                "stillcache_refused_stores reason: too_large no_memory",
            ]
        );
    }

    fn store_with_a_shop() -> Store {
        let store = Store::new(Config::default()).unwrap();
        store.create_tenant("shop").unwrap();
        store
    }

    fn shared_with(store: Store) -> Arc<Shared> {
        Arc::new(Shared::new(
            store,
            Settings::default(),
            Log::new(false, 0).expect("it has no thread"),
            None,
            Box::new(|| {}),
            Arc::default(),
        ))
    }

    /// Its figures take the locks of what it stores into.
    #[test]
    fn a_scrape_looks_at_each_tenant_once() {
        let shared = shared_with(store_with_a_shop());
        shared.change(|directory| directory.follow(&shared.store, 1));
        let page = Page::new(&shared, None);
        let (mut text, before) = (String::new(), LOOKS.get());
        page.write(&mut text).unwrap();
        assert_eq!(LOOKS.get() - before, 2);
        assert!(text.contains("stillcache_tenants 2\n"), "{text}");
    }

    /// Detects a tenant too many, and a sum that falls when a tenant of it is deleted.
    #[test]
    fn tenants_with_series_are_bounded_and_the_others_do_not_fall() {
        let store = Store::new(Config::default()).unwrap();
        let shared = shared_with(store);
        let figures = Figures {
            shared: Arc::clone(&shared),
            exporter: Exporter::new(),
            seen: Mutex::default(),
        };
        for number in 0..MOST + 5 {
            shared.store.create_tenant(&format!("t{number}")).unwrap();
        }
        shared.change(|directory| directory.follow(&shared.store, 1));
        let (.., samples) = figures.sum();
        assert_eq!(samples.len(), MOST + 1);
        assert_eq!(samples[MOST].label, OTHERS);
        let named = |name: &str| samples.iter().any(|sample| sample.label == name);
        let directory = shared.directory();
        let other = directory
            .spaces
            .values()
            .find(|space| !named(&space.name) && !space.name.is_empty());
        let other = other.unwrap();
        other.counts(0).add(Count::Set, 7);
        let sets = || {
            let (all, _, samples) = figures.sum();
            let of = |counters: &Counters| counters[Count::Set as usize];
            (
                of(&all),
                of(&samples[samples.len() - 1].counters),
                samples.len(),
            )
        };
        assert_eq!(sets(), (7, 7, MOST + 1));
        let name = other.name.to_string();
        shared.change(|directory| {
            directory.spaces.remove(&name);
        });
        assert_eq!(sets(), (7, 7, MOST + 1));
        assert_eq!(sets(), (7, 7, MOST + 1));
    }

    /// Detects a place that no tenant gets, or another one than before; a sum that falls when a tenant gets
    /// series, or counts it twice.
    #[test]
    fn a_place_is_kept_for_the_name_and_given_to_others_when_it_is_free() {
        let shared = shared_with(Store::new(Config::default()).unwrap());
        let figures = Figures {
            shared: Arc::clone(&shared),
            exporter: Exporter::new(),
            seen: Mutex::default(),
        };
        let store = &shared.store;
        // With the default one.
        for number in 1..MOST {
            store.create_tenant(&format!("t{number}")).unwrap();
        }
        let follow = || shared.change(|directory| directory.follow(store, 1));
        let of = |label: &str| {
            let (.., samples) = figures.sum();
            assert!(samples.len() <= MOST + 1);
            let found = samples.iter().find(|sample| sample.label == label);
            found.map(|sample| sample.counters[Count::Set as usize])
        };
        follow();
        shared.directory().spaces["t1"].counts(0).add(Count::Set, 5);
        assert_eq!(of("t1"), Some(5));
        store.create_tenant("late").unwrap();
        store.delete_tenant("t1").unwrap();
        shared.change(|directory| directory.spaces.remove("t1"));
        store.create_tenant("t1").unwrap();
        follow();
        assert_eq!(of("t1"), Some(0));
        let late = Arc::clone(&shared.directory().spaces["late"]);
        late.counts(0).add(Count::Set, 7);
        assert_eq!((of("late"), of(OTHERS)), (None, Some(7)));
        shared.change(|directory| directory.spaces.remove("t1"));
        late.counts(0).add(Count::Set, 2);
        assert_eq!((of("late"), of(OTHERS)), (Some(0), Some(9)));
        late.counts(0).add(Count::Set, 1);
        assert_eq!((of("late"), of(OTHERS)), (Some(1), Some(9)));
        // With those of the tenant that is gone.
        assert_eq!(figures.sum().0[Count::Set as usize], 15);
    }

    #[test]
    fn a_tenant_has_series_that_comes_before_the_deleted_one_is_gone() {
        let (first, second) = (store_with_a_shop(), store_with_a_shop());
        let shared = shared_with(first);
        let figures = Figures {
            shared: Arc::clone(&shared),
            exporter: Exporter::new(),
            seen: Mutex::default(),
        };
        shared.change(|directory| directory.follow(&shared.store, 1));
        figures.sum();
        // The store of the old one goes on, so its tenant is not gone.
        shared.change(|directory| {
            directory.spaces.remove("shop");
            directory.follow(&second, 1);
        });
        second.tenant("shop").unwrap().memory().set_min(4_096);
        figures.sum();
        let (mut text, mut registry) = (String::new(), Registry::default());
        registry.register_collector(Box::new(figures.exporter.clone()));
        encode(&mut text, &registry).unwrap();
        let series = "stillpoint_tenant_min_bytes{tenant=\"shop\"} 4096\n";
        assert!(text.contains(series), "{text}");
    }
}
