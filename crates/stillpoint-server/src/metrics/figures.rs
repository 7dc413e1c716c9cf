//! What is counted, as a collector. Counters are sums over all tenants, and do not fall when one is
//! deleted: what it had come to at the scrape before stays in them.

use crate::{
    shared::{Shared, lock},
    space::{Count, Space},
    store::TenantStatistics,
};
use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric, text::encode},
    metrics::{MetricType, counter::ConstCounter, gauge::ConstGauge},
    registry::{Registry, Unit},
};
use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, Weak, atomic::Ordering},
};
use stillpoint_metrics::Exporter;

/// The label of the tenant that has no name, as `stats tenant` calls it.
const DEFAULT: &str = "-";

/// The answer to a scrape.
#[derive(Debug)]
pub(super) struct Page {
    registry: Registry,
}

impl Page {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let exporter = Exporter::new();
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

const COMMANDS: [(&str, Count); 5] = [
    ("get", Count::Get),
    ("set", Count::Set),
    ("touch", Count::Touch),
    ("flush", Count::Flush),
    ("meta", Count::Meta),
];
const HITS: [(&str, Count); 6] = [
    ("get", Count::GetHit),
    ("delete", Count::DeleteHit),
    ("incr", Count::IncrHit),
    ("decr", Count::DecrHit),
    ("cas", Count::CasHit),
    ("touch", Count::TouchHit),
];
const MISSES: [(&str, Count); 6] = [
    ("get", Count::GetMiss),
    ("delete", Count::DeleteMiss),
    ("incr", Count::IncrMiss),
    ("decr", Count::DecrMiss),
    ("cas", Count::CasMiss),
    ("touch", Count::TouchMiss),
];
const REFUSED: [(&str, Count); 2] = [
    ("too_large", Count::TooLarge),
    ("no_memory", Count::NoMemory),
];

/// Counts of the store for a tenant, beside those of commands.
type Event = (&'static str, &'static str, fn(&TenantStatistics) -> u64);
const EVENTS: [Event; 7] = [
    ("stillcache_stored_items", "Items that were stored", |all| {
        all.stored
    }),
    (
        "stillcache_evicted_items",
        "Items that were evicted",
        |all| all.evicted,
    ),
    (
        "stillcache_evicted_unfetched_items",
        "Items that were evicted and never read",
        |all| all.evicted_unfetched,
    ),
    (
        "stillcache_expired_items",
        "Items that have expired and were removed",
        |all| all.expired,
    ),
    (
        "stillcache_expired_unfetched_items",
        "Items that have expired and were never read",
        |all| all.expired_unfetched,
    ),
    (
        "stillcache_flushed_items",
        "Items that flush_all has removed",
        |all| all.flushed,
    ),
    (
        "stillcache_compacted_items",
        "Items that were copied to free memory",
        |all| all.copied,
    ),
];

type Gauge = (
    &'static str,
    &'static str,
    Option<Unit>,
    fn(&TenantStatistics) -> u64,
);
const GAUGES: [Gauge; 5] = [
    ("stillcache_items", "Items", None, |all| all.items),
    (
        "stillcache_item",
        "What items take",
        Some(Unit::Bytes),
        |all| all.item_bytes,
    ),
    (
        "stillcache_segment",
        "What segments and indexes take, which is limited",
        Some(Unit::Bytes),
        |all| all.segment_bytes,
    ),
    (
        "stillcache_index",
        "What of that indexes take",
        Some(Unit::Bytes),
        |all| all.index_bytes,
    ),
    (
        "stillcache_pinned",
        "Values that clients are being sent",
        Some(Unit::Bytes),
        |all| all.pinned_bytes,
    ),
];

const COUNTERS: usize = Count::ALL.len() + EVENTS.len();

/// Counts of a tenant: its commands, then its events.
type Counters = [u64; COUNTERS];

/// The tenants of the last scrape.
#[derive(Default)]
struct Seen {
    /// By the address of each, which is no other's while there is a handle of it.
    tenants: HashMap<usize, (Weak<Space>, Counters)>,
    /// Counts of tenants that are gone.
    gone: [u64; COUNTERS],
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
    /// The counters of all tenants, and what they have now.
    fn sum(&self) -> (Counters, TenantStatistics) {
        let directory = self.shared.directory();
        let mut seen = lock(&self.seen);
        let mut now = TenantStatistics::default();
        let mut here = HashMap::new();
        for space in directory.spaces.values() {
            let figures = space.tenant.statistics();
            let commands = Count::ALL.iter().map(|&count| space.absolute(count));
            let events = EVENTS.iter().map(|(.., read)| read(&figures));
            let mut counters = [0; COUNTERS];
            for (counter, value) in counters.iter_mut().zip(commands.chain(events)) {
                *counter = value;
            }
            now.add(&figures);
            let key = Arc::as_ptr(space).addr();
            if seen.tenants.remove(&key).is_none() {
                let label = match &*space.name {
                    "" => DEFAULT,
                    name => name,
                };
                // The memory of a deleted one of that name may still be on its way back.
                self.exporter.remove_tenant(label);
                // One with the name that the sum of others has is in no series.
                let _ = self.exporter.add_tenant(label, space.tenant.memory());
            }
            here.insert(key, (Arc::downgrade(space), counters));
        }
        for (_, last) in std::mem::replace(&mut seen.tenants, here).into_values() {
            for (sum, value) in seen.gone.iter_mut().zip(last) {
                *sum += value;
            }
        }
        let mut all = seen.gone;
        for (_, counters) in seen.tenants.values() {
            for (sum, value) in all.iter_mut().zip(counters) {
                *sum += value;
            }
        }
        (all, now)
    }
}

impl Collector for Figures {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let (counters, now) = self.sum();
        let of = |count: Count| counters[count as usize];
        for (name, help, label, counts) in [
            (
                "stillcache_commands",
                "Commands, by kind.",
                "command",
                &COMMANDS[..],
            ),
            (
                "stillcache_hits",
                "Commands that found their item.",
                "command",
                &HITS,
            ),
            (
                "stillcache_misses",
                "Commands that did not.",
                "command",
                &MISSES,
            ),
            (
                "stillcache_refused_stores",
                "Values that were not stored.",
                "reason",
                &REFUSED,
            ),
        ] {
            let mut family = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
            for &(value, count) in counts {
                let labels = [(label, value)];
                ConstCounter::new(of(count)).encode(family.encode_family(&labels)?)?;
            }
        }
        let mut counter = |name: &str, help: &str, unit: Option<&Unit>, value: u64| {
            let help = format!("{help}.");
            let encoder = encoder.encode_descriptor(name, &help, unit, MetricType::Counter)?;
            ConstCounter::new(value).encode(encoder)
        };
        for ((name, help, _), value) in EVENTS.iter().zip(&counters[Count::ALL.len()..]) {
            counter(name, help, None, *value)?;
        }
        let (shared, totals) = (&self.shared, &self.shared.totals);
        let load = |value: &std::sync::atomic::AtomicU64| value.load(Ordering::Relaxed);
        let sum = |read: fn(&crate::shared::ThreadCounts) -> &std::sync::atomic::AtomicU64| {
            shared.threads.iter().map(|thread| load(read(thread))).sum()
        };
        let bytes = Some(&Unit::Bytes);
        counter(
            "stillcache_read",
            "What was read from clients",
            bytes,
            sum(|of| &of.bytes_read),
        )?;
        counter(
            "stillcache_written",
            "What was sent to clients",
            bytes,
            sum(|of| &of.bytes_written),
        )?;
        counter(
            "stillcache_authentications",
            "Logins",
            None,
            sum(|of| &of.auth),
        )?;
        counter(
            "stillcache_authentication_errors",
            "Logins that were wrong",
            None,
            sum(|of| &of.auth_errors),
        )?;
        for (name, help, value) in [
            (
                "stillcache_accepted_connections",
                "Connections that were accepted",
                &totals.connections_total,
            ),
            (
                "stillcache_rejected_connections",
                "Connections beyond -c",
                &totals.connections_rejected,
            ),
            (
                "stillcache_idle_kicks",
                "Clients that were dropped as idle",
                &totals.idle_kicks,
            ),
            (
                "stillcache_slow_kicks",
                "Clients that were dropped as too slow",
                &totals.dropped_slow,
            ),
            (
                "stillcache_memory_kicks",
                "Clients that were dropped for the memory of their buffers",
                &totals.dropped_memory,
            ),
            (
                "stillcache_refused_answers",
                "Answers that a limit of buffers had no room for",
                &totals.no_room,
            ),
            (
                "stillcache_accept_pauses",
                "Times that accepting paused, without descriptors",
                &totals.accept_pauses,
            ),
            (
                "stillcache_handshake_errors",
                "Clients by TLS that did not finish their handshake",
                &totals.handshake_errors,
            ),
        ] {
            counter(name, help, None, load(value))?;
        }
        let mut gauge = |name: &str, help: &str, unit: Option<&Unit>, value: u64| {
            let help = format!("{help}.");
            let encoder = encoder.encode_descriptor(name, &help, unit, MetricType::Gauge)?;
            ConstGauge::new(value).encode(encoder)
        };
        for (name, help, unit, read) in GAUGES {
            gauge(name, help, unit.as_ref(), read(&now))?;
        }
        let store = shared.store.statistics_with(now);
        let connections = totals.connections.load(Ordering::Relaxed) as u64;
        let buffers = totals.buffer_bytes.load(Ordering::Relaxed) as u64;
        gauge("stillcache_connections", "Clients", None, connections)?;
        gauge("stillcache_tenants", "Tenants", None, store.tenants)?;
        gauge(
            "stillcache_limit",
            "What segments may take",
            bytes,
            store.limit,
        )?;
        gauge(
            "stillcache_limbo",
            "Segments that wait for readers",
            bytes,
            store.limbo_bytes,
        )?;
        gauge(
            "stillcache_spare",
            "Segments that are kept for the next item",
            bytes,
            store.spare_bytes,
        )?;
        gauge(
            "stillcache_buffer",
            "Buffers of connections",
            bytes,
            buffers,
        )
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
        let page = Page::new(&shared);
        let (mut text, before) = (String::new(), LOOKS.get());
        page.write(&mut text).unwrap();
        assert_eq!(LOOKS.get() - before, 2);
        assert!(text.contains("stillcache_tenants 2\n"), "{text}");
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
