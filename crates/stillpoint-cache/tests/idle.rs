//! Caches that no thread uses: what is due happens all the same, on a service thread.
#![cfg(all(target_os = "linux", not(miri)))]

#[path = "../../stillpoint/tests/common/mod.rs"]
mod common;

use common::{
    Tally, Tracked, eventually,
    forking::{Forked, end, fork, fork_here},
};
use std::{
    fs,
    path::PathBuf,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};
use stillpoint_cache::{Cache, Cause};

#[test]
fn what_expires_is_dropped_though_no_thread_uses_the_cache() {
    let (tally, heard) = (Tally::new(), Arc::<AtomicUsize>::default());
    let hear = Arc::clone(&heard);
    let cache = Cache::builder()
        .max_entries(1 << 20)
        .eviction_listener(move |_: &u64, _: &Arc<Tracked>, cause| {
            assert_eq!(cause, Cause::Expired);
            hear.fetch_add(1, Ordering::Relaxed);
        })
        .build();
    // The last one first: the thread is to come earlier than it was told.
    let value = |key| Arc::new(tally.value(key));
    cache.insert_with_ttl(5000, value(5000), Duration::from_secs(3600));
    for key in 0..1000 {
        let ttl = Duration::from_millis(20 + key % 50);
        cache.insert_with_ttl(key, value(key), ttl);
    }
    eventually(|| tally.dropped() == 1000);
    assert_eq!(
        (cache.entry_count(), heard.load(Ordering::Relaxed)),
        (1, 1000)
    );
}

#[test]
fn what_is_evicted_last_is_dropped_though_no_thread_uses_the_cache() {
    let tally = Tally::new();
    let cache = Cache::builder().max_entries(10).build();
    (0..1000).for_each(|key| cache.insert(key, tally.value(key)));
    eventually(|| tally.dropped() == 990);
    assert_eq!(cache.entry_count(), 10);
}

#[test]
fn tenants_come_back_below_high_in_the_background_and_below_max_at_once() {
    let cache: Cache<u64, u64> = Cache::builder().max_entries(10_000).build();
    let (above, other) = (cache.tenant("above"), cache.tenant("other"));
    let below = above.tenant("below");
    above.set_high(1000);
    above.set_max(5000);
    other.set_min(100);
    (0..2000).for_each(|key| other.insert(1 << 32 | key, key));
    // Within a section the service thread's evictions do not wait for this, nor this for them.
    let section = stillpoint::read_lock();
    for key in 0..4000 {
        below.insert(key, key);
        assert!(above.weighted_bytes() <= 5000);
    }
    eventually(|| above.weighted_bytes() <= 1000);
    drop(section);
    assert!(above.weighted_bytes() > 900, "a little below, and no more");
    assert_eq!(other.statistics().evicted, 0);
    // A limit that is set below what is used.
    other.set_high(500);
    eventually(|| other.weighted_bytes() <= 500);
    above.set_max(100);
    assert_eq!(above.weighted_bytes(), 100, "at once");
    // What is protected stays, and inserts go on.
    other.set_high(50);
    eventually(|| other.weighted_bytes() <= 100);
    (0..500).for_each(|key| other.insert(1 << 33 | key, key));
    eventually(|| other.weighted_bytes() <= 101);
    assert!(other.weighted_bytes() >= 100);
}

#[test]
fn the_child_of_a_fork_has_a_service_thread_of_its_own() {
    let cache: Cache<u64, u64> = Cache::with_bytes(1 << 20);
    cache.insert_with_ttl(0, 0, Duration::from_secs(3600));
    let child = fork(|| {
        cache.insert_with_ttl(1, 1, Duration::from_millis(30));
        eventually(|| cache.statistics().expired == 1);
        assert_eq!(cache.entry_count(), 1);
    });
    child.well();
}

#[test]
fn what_was_due_before_a_fork_is_due_in_the_child() {
    let cache: Cache<u64, u64> = Cache::with_bytes(1 << 20);
    let group = Group::new("fork");
    let follower = group.cache();
    cache.insert_with_ttl(0, 0, Duration::from_secs(1));
    let child = fork(|| {
        cache.insert(1, 1);
        eventually(|| cache.statistics().expired == 1);
        follower.insert(1, 1);
        group.write("above/memory.max", "6000000\n");
        eventually(|| follower.max_bytes() == 3_000_000);
        assert_eq!(cache.entry_count(), 1);
    });
    child.well();
}

/// The listener forks on the service thread, and has the child start another one before it returns.
#[test]
fn a_visit_in_which_user_code_forks_is_followed_by_the_next_in_the_child() {
    let child = Arc::<Mutex<Option<Forked>>>::default();
    let (forked, is_child) = (Arc::clone(&child), AtomicBool::new(false));
    let other: Cache<u64, u64> = Cache::with_bytes(1 << 20);
    let cache = Cache::builder()
        .max_bytes(1 << 20)
        .eviction_listener(move |&key: &u64, _: &u64, _| match key {
            0 => match fork_here() {
                Some(child) => *forked.lock().unwrap() = Some(child),
                None => {
                    is_child.store(true, Ordering::Relaxed);
                    other.insert_with_ttl(0, 0, Duration::from_secs(3600));
                }
            },
            _ if is_child.load(Ordering::Relaxed) => end(false),
            _ => {}
        })
        .build();
    cache.insert_with_ttl(0, 0, Duration::from_millis(20));
    cache.insert_with_ttl(1, 1, Duration::from_secs(1));
    let forked = || child.lock().unwrap().take();
    let mut child = None;
    eventually(|| {
        child = forked();
        child.is_some()
    });
    child.unwrap().well();
}

/// A control group as the kernel shows it, and one above it.
struct Group(PathBuf);

impl Group {
    fn new(name: &str) -> Self {
        let root =
            std::env::temp_dir().join(format!("stillpoint-cache-{}-{name}", std::process::id()));
        fs::create_dir_all(root.join("above/group")).unwrap();
        let group = Self(root);
        group.write("above/memory.max", "8000000\n");
        group.write("above/memory.high", "max\n");
        group.write("above/group/memory.max", "max\n");
        group.write("above/group/memory.high", "max\n");
        group.write("above/memory.current", "7600000\n");
        group.write("above/memory.stat", "anon 1\ninactive_file 90000\n");
        group.events(0, 0);
        group
    }

    /// At once, as the kernel would: not empty at any instant.
    fn write(&self, file: &str, text: &str) {
        fs::write(self.0.join("new"), text).unwrap();
        fs::rename(self.0.join("new"), self.0.join(file)).unwrap();
    }

    fn events(&self, high: u32, max: u32) {
        let text = format!("low 7\nhigh {high}\nmax {max}\noom 0\noom_kill 0\n");
        self.write("above/memory.events", &text);
    }

    fn cache(&self) -> Cache<u64, u64> {
        Cache::builder()
            .weigher(|_, _| 1000 - 128)
            .container(&self.0, "above/group")
            .build()
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_cache_without_a_limit_follows_its_container() {
    let group = Group::new("follows");
    let cache = group.cache();
    assert_eq!(cache.max_bytes(), 4_000_000);
    (0..4000).for_each(|key| cache.insert(key, key));
    assert_eq!(cache.weighted_bytes(), 4_000_000);
    group.write("above/group/memory.max", "6000000\n");
    eventually(|| cache.max_bytes() == 3_000_000 && cache.weighted_bytes() <= 3_000_000);
    group.write("above/group/memory.high", "2000000\n");
    eventually(|| cache.max_bytes() == 1_000_000 && cache.weighted_bytes() <= 1_000_000);
    group.write("above/group/memory.high", "max\n");
    group.write("above/group/memory.max", "max\n");
    eventually(|| cache.max_bytes() == 4_000_000);
    // The program's own limit counts from now on.
    cache.set_max_bytes(500_000);
    let other = group.cache();
    group.write("above/memory.max", "4000000\n");
    eventually(|| other.max_bytes() == 2_000_000);
    assert_eq!(cache.max_bytes(), 500_000);
}

/// Whether the process watches the file, as the kernel says.
fn is_watched(file: &std::path::Path) -> bool {
    let inode = std::os::unix::fs::MetadataExt::ino(&fs::metadata(file).unwrap());
    let inode = format!(" ino:{inode:x} ");
    let all = fs::read_dir("/proc/self/fdinfo").unwrap();
    let mut all = all.map(|one| fs::read_to_string(one.unwrap().path()).unwrap_or_default());
    all.any(|info| {
        let mut lines = info.lines();
        lines.any(|line| line.starts_with("inotify ") && line.contains(&inode))
    })
}

#[test]
fn a_file_is_watched_while_a_cache_follows_it() {
    let group = Group::new("watched");
    let events = group.0.join("above/memory.events");
    let (dropped, own_limit) = (group.cache(), group.cache());
    eventually(|| is_watched(&events));
    // The one goes on as long as the other.
    drop(dropped);
    let other = Group::new("other");
    let cache = other.cache();
    eventually(|| is_watched(&other.0.join("above/memory.events")));
    assert!(is_watched(&events));
    own_limit.set_max_bytes(1000);
    eventually(|| !is_watched(&events));
    // A new follower has it watched again.
    let again = group.cache();
    eventually(|| is_watched(&events));
    drop((again, cache));
    eventually(|| !is_watched(&events));
}

#[test]
fn a_container_that_meets_its_limits_shrinks_the_cache_by_a_part_and_spares_minima() {
    let group = Group::new("events");
    let cache = group.cache();
    let kept = cache.tenant("kept");
    kept.set_min(100_000);
    (0..100).for_each(|key| kept.insert(key, key));
    (100..1000).for_each(|key| cache.insert(key, key));
    group.events(1, 0);
    eventually(|| cache.entry_count() == 875);
    group.events(1, 5);
    eventually(|| cache.entry_count() == 875 - 110);
    assert_eq!((kept.entry_count(), cache.max_bytes()), (100, 4_000_000));
}
