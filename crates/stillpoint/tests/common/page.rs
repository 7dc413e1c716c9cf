//! The statistics page of the test's own process, as another process would see it.

use super::{forking::ALARM, retire};
use std::{
    fs::{self, File},
    io,
    os::{fd::AsRawFd, unix::fs::MetadataExt},
    path::Path,
    thread,
    time::{Duration, Instant},
};
use stillpoint::{Domain, Histogram};
use stillpoint_platform::stats::read::{self, Page, Thing, Value};

/// Returns the pages of this process, each once: other threads may have one open as well, and close
/// it.
pub fn pages() -> Vec<File> {
    let mut pages: Vec<File> = Vec::new();
    let inode = |file: &File| file.metadata().expect("it is open").ino();
    for entry in fs::read_dir("/proc/self/fd").expect("there is /proc") {
        let path = entry.expect("of a descriptor").path();
        let is_page = |path: &Path| {
            let to = fs::read_link(path);
            to.is_ok_and(|to| to.to_string_lossy().starts_with("/memfd:stillpoint-stats"))
        };
        if !is_page(&path) {
            continue;
        }
        let file = match File::open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => panic!("our own may be opened: {error}"),
        };
        // The number may be another file's by then.
        let own = format!("/proc/self/fd/{}", file.as_raw_fd());
        if is_page(Path::new(&own)) && !pages.iter().any(|page| inode(page) == inode(&file)) {
            pages.push(file);
        }
    }
    pages
}

pub fn page() -> File {
    let mut pages = pages();
    assert_eq!(pages.len(), 1);
    pages.remove(0)
}

pub fn seen() -> Page {
    read::read(&page()).expect("our page is one")
}

/// Returns the domain of this name.
pub fn domain(page: &Page, name: &str) -> Option<Thing> {
    page.things.iter().find(|thing| thing.name == name).cloned()
}

pub fn shown(name: &str) -> Thing {
    domain(&seen(), name).expect("it is in the page")
}

/// Returns the count of a histogram.
pub fn times(thing: &Thing, name: &str) -> u64 {
    match thing.value(name) {
        Some(Value::Times(sum, buckets)) => stillpoint::internal::histogram(*sum, buckets)
            .expect("it is one of ours")
            .count(),
        other => panic!("{name} is {other:?}"),
    }
}

/// Waits until all numbers that are both in the page and in the statistics are the same: a service
/// thread may be counting, and copies a count after it. If some stay different, fails the test with
/// their names and both values; in a forked child, before the alarm ends that.
#[track_caller]
pub fn assert_same(name: &str, of: &Domain) {
    let start = Instant::now();
    loop {
        let (thing, statistics) = (shown(name), of.statistics());
        let number = |of: &'static str, is: u64| (of, thing.number_of(of), is);
        let histogram = |of: &'static str, is: Histogram| (of, times(&thing, of), is.count());
        let different: Vec<_> = [
            number("grace_periods", statistics.grace_periods),
            number("heavy_barriers", statistics.heavy_barriers),
            number("assists", statistics.assists),
            number("waits", statistics.waits),
            number("stalls", statistics.stalls),
            number("callbacks_invoked", statistics.callbacks_invoked),
            number("callbacks_pending", statistics.callbacks_pending),
            number("panics", statistics.panics),
            number("budget_bytes", of.budget() as u64),
            histogram("grace_period_times", statistics.grace_period_times),
            histogram("callback_times", statistics.callback_times),
            histogram("wait_times", statistics.wait_times),
        ]
        .into_iter()
        .filter(|(_, shown, is)| shown != is)
        .collect();
        if different.is_empty() {
            return;
        }
        assert!(
            start.elapsed() < Duration::from_secs(u64::from(ALARM) * 2 / 3),
            "of {name}, in the page and in the statistics: {different:?}"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

pub fn work(domain: &Domain) {
    (0..300).for_each(|_| domain.synchronize());
    (0..100).for_each(|_| domain.call(|| ()));
    domain.barrier();
    (0..20_000_u64).for_each(|number| retire(domain, number));
    domain.kvfree_barrier();
}
