//! Caches, futures and measurements that several test programs use.
#![allow(dead_code, reason = "each test program uses a part of this")]

use std::{
    future::Future,
    hash::{BuildHasher, Hash},
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Waker},
};
use stillpoint_cache::{Cache, Cause};
use stillpoint_lru::Hierarchy;

/// A cache whose values are weights.
pub type Weighed = Cache<u64, u64>;

/// Returns a cache for entries of a total weight of `max`.
pub fn weighed(max: u64) -> Weighed {
    Cache::builder()
        .max_weight(max, |_, &weight| weight)
        .build()
}

/// As [`weighed`], with a listener that calls `work` once: when it is told of the first entry that leaves.
pub fn with_listener(max: u64, work: impl Fn(&Weighed) + Send + Sync + 'static) -> Weighed {
    let slot: Arc<OnceLock<Weighed>> = Arc::default();
    let (own, done) = (Arc::clone(&slot), AtomicBool::new(false));
    let cache = Cache::builder()
        .max_weight(max, |_: &u64, &weight: &u64| weight)
        .eviction_listener(move |_, _, _: Cause| {
            if !done.swap(true, Ordering::Relaxed) {
                work(own.get().unwrap());
            }
        })
        .build();
    assert!(slot.set(cache.clone()).is_ok());
    cache
}

/// Evicts all that memory pressure takes from a view.
pub fn press<K, V, S>(view: &Cache<K, V, S>)
where
    K: Hash + Eq + Send + Sync + 'static,
    V: Send + Sync + 'static,
    S: BuildHasher + Send + Sync + 'static,
{
    let hierarchy = Hierarchy::new();
    let _registered = hierarchy.register(Arc::new(view.shrinker())).unwrap();
    // Nothing is charged: the pass asks for all that there is.
    let _charge = hierarchy.root().charge(1000).unwrap();
    hierarchy.root().reclaim(1000);
}

/// Polls a future with a waker that does nothing.
pub fn poll<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

/// Pends once.
pub async fn pend() {
    let mut pended = false;
    std::future::poll_fn(|_| match std::mem::replace(&mut pended, true) {
        true => Poll::Ready(()),
        false => Poll::Pending,
    })
    .await;
}

/// Returns the resident memory in bytes. Counted anew: `statm` adds up what processors have counted, and is late.
#[cfg(all(target_os = "linux", not(miri)))]
pub fn resident() -> u64 {
    let rollup = std::fs::read_to_string("/proc/self/smaps_rollup").unwrap();
    let rss = rollup.lines().find_map(|line| line.strip_prefix("Rss:"));
    let kib = rss.unwrap().trim().trim_end_matches(" kB");
    kib.parse::<u64>().unwrap() << 10
}
