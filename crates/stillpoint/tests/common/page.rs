//! The statistics page of the test's own process, as another process would see it.

use super::forking::retire;
use std::{
    fs::{self, File},
    io,
};
use stillpoint::Domain;
use stillpoint_platform::stats::read::{self, Page, Thing, Value};

/// The pages of this process.
pub fn pages() -> Vec<File> {
    let open = fs::read_dir("/proc/self/fd").expect("there is /proc");
    let is_page = |entry: &io::Result<fs::DirEntry>| {
        let Ok(entry) = entry else { return false };
        let to = fs::read_link(entry.path());
        to.is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:stillpoint-stats"))
    };
    let open = open.filter(is_page);
    let open = open.map(|entry| File::open(entry.expect("it is a page").path()));
    open.collect::<Result<_, _>>()
        .expect("our own may be opened")
}

pub fn page() -> File {
    let mut pages = pages();
    assert_eq!(pages.len(), 1);
    pages.remove(0)
}

pub fn seen() -> Page {
    read::read(&page()).expect("our page is one")
}

/// What is of this kind, and has this name.
pub fn thing(page: &Page, kind: &str, name: &str) -> Option<Thing> {
    let is_it = |thing: &&Thing| thing.kind == kind && thing.name == name;
    page.things.iter().find(is_it).cloned()
}

/// The domain of this name.
pub fn domain(page: &Page, name: &str) -> Option<Thing> {
    thing(page, "domain", name)
}

pub fn shown(name: &str) -> Thing {
    domain(&seen(), name).expect("it is in the page")
}

/// The count of a histogram.
pub fn times(thing: &Thing, name: &str) -> u64 {
    match thing.value(name) {
        Some(Value::Histogram(sum, buckets)) => stillpoint::internal::histogram(*sum, buckets)
            .expect("it is one of ours")
            .count(),
        other => panic!("{name} is {other:?}"),
    }
}

/// That all that the page and the statistics both have is the same.
#[track_caller]
pub fn assert_same(thing: &Thing, of: &Domain) {
    let statistics = of.statistics();
    let both = [
        ("grace_periods", statistics.grace_periods),
        ("heavy_barriers", statistics.heavy_barriers),
        ("assists", statistics.assists),
        ("waits", statistics.waits),
        ("stalls", statistics.stalls),
        ("callbacks_invoked", statistics.callbacks_invoked),
        ("callbacks_pending", statistics.callbacks_pending),
        ("panics", statistics.panics),
        ("budget_bytes", of.budget() as u64),
    ];
    for (name, expected) in both {
        assert_eq!(thing.number_of(name), expected, "{name}");
    }
    let histograms = [
        ("grace_period_times", statistics.grace_period_times),
        ("callback_times", statistics.callback_times),
        ("wait_times", statistics.wait_times),
    ];
    for (name, expected) in histograms {
        assert_eq!(times(thing, name), expected.count(), "{name}");
    }
}

pub fn work(domain: &Domain) {
    (0..300).for_each(|_| domain.synchronize());
    (0..100).for_each(|_| domain.call(|| ()));
    domain.barrier();
    (0..20_000_u64).for_each(|number| retire(domain, number));
    domain.kvfree_barrier();
}
