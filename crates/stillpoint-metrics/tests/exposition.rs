//! What a scrape says: names, labels, values, and that nothing is said twice.

use prometheus_client::{encoding::text::encode, registry::Registry};
use std::{
    collections::{BTreeMap, BTreeSet},
    io::Write,
    thread,
    time::Duration,
};
#[cfg(target_os = "linux")]
use std::{env, fs, os::unix::net::UnixListener, sync::Arc};
use stillpoint::{Domain, tasks_trace::TraceDomain};
use stillpoint_cache::Cache;
use stillpoint_lru::{Hierarchy, Tenant};
#[cfg(target_os = "linux")]
use stillpoint_lru::{Pressure, PressureWatch};
use stillpoint_metrics::{Exporter, Kind, OTHER};

fn scrape(exporter: &Exporter) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(exporter.clone()));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all");
    text
}

/// The series of a scrape, with their values.
fn series(exporter: &Exporter) -> BTreeMap<String, f64> {
    let text = scrape(exporter);
    let mut series = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        let value = value.parse().expect("a number");
        let before = series.insert(name.to_owned(), value);
        assert_eq!(before, None, "twice: {name}");
    }
    series
}

/// A watch of its own socket, whose other end is where pressure would be told.
#[cfg(target_os = "linux")]
fn watch(exporter: &Exporter, name: &str, hierarchy: &Hierarchy) -> (Arc<Pressure>, UnixListener) {
    let path = env::temp_dir().join(format!("stillpoint-{}-{name}", std::process::id()));
    let listener = UnixListener::bind(&path).expect("a socket");
    let pressure = PressureWatch::new(&path).start(hierarchy);
    fs::remove_file(&path).expect("it was made");
    let pressure = Arc::new(pressure.expect("a watch"));
    exporter.add_pressure(name, &pressure).unwrap();
    (pressure, listener)
}

fn tenant(hierarchy: &Hierarchy) -> Tenant {
    hierarchy.root().create().expect("memory")
}

#[test]
fn every_metric_is_there_once_with_its_kind_and_unit() {
    let (exporter, hierarchy) = (Exporter::new(), Hierarchy::new());
    exporter.add_tenant("a", &tenant(&hierarchy)).unwrap();
    exporter
        .add_cache("a", &Cache::<u64, u64>::with_bytes(1 << 20))
        .unwrap();
    exporter.add_map("a", || 3).unwrap();
    #[cfg(target_os = "linux")]
    let _pressure = watch(&exporter, "a", &hierarchy);
    let name = "a \"name\"\\ of\nlines";
    exporter.add_tenant(name, &tenant(&hierarchy)).unwrap();
    let (text, series) = (scrape(&exporter), series(&exporter));
    let metrics = Exporter::metrics();
    let names: BTreeSet<_> = metrics.iter().map(|metric| &metric.name).collect();
    assert_eq!(names.len(), metrics.len());
    for metric in &metrics {
        let (stem, kind) = match metric.kind {
            Kind::Counter => (metric.name.trim_end_matches("_total"), "counter"),
            Kind::Gauge => (metric.name.as_str(), "gauge"),
            _ => (metric.name.as_str(), "histogram"),
        };
        assert!(text.contains(&format!("# TYPE {stem} {kind}\n")), "{stem}");
        assert!(text.contains(&format!("# HELP {stem} {}.\n", metric.help)));
        if let Some(unit) = metric.unit {
            assert!(stem.ends_with(unit));
            assert!(text.contains(&format!("# UNIT {stem} {unit}\n")));
        }
        let name = match metric.kind {
            Kind::Histogram => format!("{}_count", metric.name),
            _ => metric.name.clone(),
        };
        let of = if metric.label == "domain" {
            "global"
        } else {
            "a"
        };
        let name = format!("{name}{{{}=\"{of}\"}}", metric.label);
        assert!(series.contains_key(&name), "{name}");
    }
}

#[test]
fn values_are_those_of_the_statistics() {
    let exporter = Exporter::new();
    let domain = Domain::builder().name("values").budget(12_345).build();
    let name = "a \"name\"\\ of\nlines";
    exporter.add_domain(name, &domain).unwrap();
    (0..10).for_each(|_| domain.call(|| ()));
    domain.barrier();
    // The pass counts when it has ended; the next one comes after it.
    domain.call(|| ());
    domain.barrier();
    let (series, now) = (series(&exporter), domain.statistics());
    let label = "domain=\"a \\\"name\\\"\\\\ of\\nlines\"";
    let value = |name: &str| series[&format!("stillpoint_{name}{{{label}}}")];
    assert_eq!(value("budget_bytes"), 12_345.0);
    // Ours and the first barrier's; the second one's counts when it has returned.
    let invoked = 12.0..=now.callbacks_invoked as f64;
    assert!(invoked.contains(&value("callbacks_invoked_total")));
    assert_eq!(value("stalls_total"), 0.0);
    assert!(value("callback_delay_seconds_count") >= 10.0);
    assert!(value("callback_delay_seconds_sum") > 0.0);
}

#[test]
fn buckets_are_cumulative_and_the_last_has_all() {
    let (exporter, domain) = (Exporter::new(), Domain::new());
    exporter.add_domain("buckets", &domain).unwrap();
    (0..1_000).for_each(|_| domain.call(|| ()));
    domain.barrier();
    // A pass counts when it has ended, and the next one comes after it.
    domain.call(|| ());
    domain.barrier();
    let series = series(&exporter);
    let prefix = "stillpoint_callback_delay_seconds_bucket{le=\"";
    let mut buckets: Vec<(f64, f64)> = series
        .iter()
        .filter_map(|(name, &count)| {
            let (end, label) = name.strip_prefix(prefix)?.split_once('"')?;
            let is_it = label.contains("\"buckets\"");
            is_it.then(|| (end.parse().expect("a number"), count))
        })
        .collect();
    buckets.sort_by(|one, other| one.0.total_cmp(&other.0));
    assert_eq!(buckets.len(), 16);
    assert_eq!(buckets[0].0, 256e-9);
    assert!(buckets.windows(2).all(|pair| pair[0].1 <= pair[1].1));
    let count = series["stillpoint_callback_delay_seconds_count{domain=\"buckets\"}"];
    assert_eq!(buckets[15], (f64::INFINITY, count));
    assert!(count > 0.0);
}

#[test]
fn names_are_taken_until_what_has_them_is_removed() {
    let (exporter, hierarchy) = (Exporter::new(), Hierarchy::new());
    let (domain, tenant) = (Domain::new(), tenant(&hierarchy));
    let refused = exporter.add_domain("global", &domain).unwrap_err();
    assert!(refused.to_string().contains("\"global\" is taken"));
    exporter.add_domain("a", &domain).unwrap();
    exporter.add_domain("a", &domain).unwrap_err();
    exporter.add_tenant("a", &tenant).unwrap();
    exporter.add_tenant("a", &tenant).unwrap_err();
    exporter.add_tenant(OTHER, &tenant).unwrap_err();
    let cache = Cache::<u64, u64>::with_entries(1);
    exporter.add_cache("a", &cache).unwrap();
    exporter.add_cache("a", &cache).unwrap_err();
    assert!(exporter.remove_domain("a") && !exporter.remove_domain("a"));
    assert!(exporter.remove_tenant("a") && !exporter.remove_tenant("a"));
    assert!(exporter.remove_cache("a") && !exporter.remove_cache("a"));
    assert!(!scrape(&exporter).contains("\"a\""));
    exporter.add_domain("a", &domain).unwrap();
    exporter.add_tenant("a", &tenant).unwrap();
    tenant.delete().unwrap();
    exporter
        .add_tenant("a", &hierarchy.root().create().unwrap())
        .unwrap();
}

#[test]
fn tenants_past_the_bound_are_added_up() {
    let (exporter, hierarchy) = (Exporter::with_tenants(2), Hierarchy::new());
    let tenants: Vec<_> = (0..5).map(|_| tenant(&hierarchy)).collect();
    let usage = |name: &str| {
        let name = format!("stillpoint_tenant_usage_bytes{{tenant=\"{name}\"}}");
        series(&exporter).get(&name).copied()
    };
    let charges: Vec<_> = tenants
        .iter()
        .map(|tenant| tenant.charge(1000).unwrap())
        .collect();
    for (number, tenant) in tenants.iter().enumerate() {
        exporter.add_tenant(&number.to_string(), tenant).unwrap();
    }
    assert_eq!(
        (usage("0"), usage("1"), usage("2")),
        (Some(1000.0), Some(1000.0), None)
    );
    assert_eq!(usage(OTHER), Some(3000.0));
    drop(charges);
    tenants[0].delete().unwrap();
    tenants[4].delete().unwrap();
    assert_eq!(
        (usage("0"), usage("2"), usage(OTHER)),
        (None, None, Some(0.0))
    );
    let text = scrape(&exporter);
    assert!(text.contains("stillpoint_tenant_max_bytes{tenant=\"1\"} inf"));
    assert!(!text.contains("stillpoint_tenant_max_bytes{tenant=\"other\"}"));
}

/// Of whatever flavour.
#[test]
fn a_stall_is_seen_while_it_lasts() {
    let (exporter, domain) = (Exporter::new(), TraceDomain::new());
    exporter.add_domain("stalls", &domain).unwrap();
    domain.set_stall_timeout(Duration::from_millis(1));
    domain.on_stall(|_| ());
    let value = |name: &str| series(&exporter)[&format!("stillpoint_{name}{{domain=\"stalls\"}}")];
    assert_eq!(value("stall_duration_seconds"), 0.0);
    let guard = domain.read_lock();
    let _ = domain.start_poll();
    while value("stalls_total") == 0.0 {
        thread::yield_now();
    }
    let before = value("stall_duration_seconds");
    assert!(before > 0.0);
    while value("stall_duration_seconds") == before {
        thread::yield_now();
    }
    drop(guard);
    domain.synchronize();
    // The thread that has ended the grace period notes that behind it.
    while value("stall_duration_seconds") > 0.0 {
        thread::yield_now();
    }
}

#[test]
fn a_map_says_how_many_entries_it_has() {
    let exporter = Exporter::new();
    exporter.add_map("routes", || 3).unwrap();
    exporter.add_map("routes", || 4).unwrap_err();
    let name = "stillpoint_map_entries{map=\"routes\"}";
    assert_eq!(series(&exporter)[name], 3.0);
    assert!(exporter.remove_map("routes") && !exporter.remove_map("routes"));
    assert!(!series(&exporter).contains_key(name));
}

#[test]
fn a_deleted_tenant_of_a_cache_does_not_show_its_parent() {
    let (exporter, cache) = (Exporter::new(), Cache::<u64, u64>::with_entries(10));
    let add = |tenant: &Cache<u64, u64>| exporter.add_cache("alice", tenant);
    let hits = || {
        let name = "stillpoint_cache_hits_total{cache=\"alice\"}";
        series(&exporter).get(name).copied()
    };
    let alice = cache.tenant("alice");
    add(&alice).unwrap();
    cache.insert(1, 1);
    assert_eq!((cache.get(&1), hits()), (Some(1), Some(0.0)));
    assert!(alice.delete());
    assert_eq!(hits(), None);
    // The name is free after the scrape, and without one.
    let alice = cache.tenant("alice");
    add(&alice).unwrap();
    assert_eq!(hits(), Some(0.0));
    assert!(alice.delete());
    add(&cache.tenant("alice")).unwrap();
    assert_eq!(hits(), Some(0.0));
}

/// A map's value that calls the exporter when it is dropped.
struct Calls(Exporter);

impl Drop for Calls {
    fn drop(&mut self) {
        self.0.remove_map("from a drop");
    }
}

#[test]
fn a_function_of_a_map_may_call_the_exporter() {
    let exporter = Exporter::new();
    let owned = Calls(exporter.clone());
    let entries = move || usize::from(owned.0.remove_map("from a call"));
    exporter.add_map("routes", entries).unwrap();
    exporter.add_map("from a call", || 0).unwrap();
    let refused = Calls(exporter.clone());
    let entries = move || usize::from(refused.0.remove_map("never"));
    exporter.add_map("routes", entries).unwrap_err();
    let name = "stillpoint_map_entries{map=\"routes\"}";
    assert_eq!(series(&exporter)[name], 1.0);
    assert!(exporter.remove_map("routes"));
}

#[cfg(target_os = "linux")]
#[test]
fn a_watch_is_exported_while_it_has_an_owner() {
    let (exporter, hierarchy) = (Exporter::new(), Hierarchy::new());
    let (pressure, listener) = watch(&exporter, "owned", &hierarchy);
    exporter.add_pressure("owned", &pressure).unwrap_err();
    let name = |name: &str| format!("stillpoint_pressure_{name}{{pressure=\"owned\"}}");
    assert_eq!(series(&exporter)[&name("watching")], 1.0);
    assert_eq!(series(&exporter)[&name("events_total")], 0.0);
    let (mut peer, _) = listener.accept().expect("it connects");
    peer.write_all(b"pressure").expect("it reads");
    while series(&exporter)[&name("events_total")] == 0.0 {
        thread::yield_now();
    }
    drop(pressure);
    assert!(!series(&exporter).contains_key(&name("watching")));
    // The name is free again.
    let (_pressure, _listener) = watch(&exporter, "owned", &hierarchy);
    assert!(exporter.remove_pressure("owned") && !exporter.remove_pressure("owned"));
}
