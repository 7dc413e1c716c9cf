//! Limits that fall, while threads store.

use super::{beside, model};
use crate::store::{Clock, Config, ManualClock, ceiling::Ceiling};
use stillpoint_platform::sync::{Arc, AtomicU64, Mutex, Ordering, lock};

/// What a limit is about.
struct Store {
    ceiling: Ceiling,
    /// Held while it is changed; what the charges meet.
    limiting: Mutex<u64>,
    max: AtomicU64,
    usage: AtomicU64,
    config: Config,
}

impl Store {
    fn new(limit: u64, usage: u64) -> Arc<Self> {
        let store = Self {
            ceiling: Ceiling::none(),
            limiting: Mutex::new(0),
            max: AtomicU64::new(0),
            usage: AtomicU64::new(usage),
            config: Config {
                clock: Clock::Manual(ManualClock::new()),
                ..Config::default()
            },
        };
        store.ask(limit);
        Arc::new(store)
    }

    /// As `Limit::follow`.
    fn follow(&self, room: bool) {
        let usage = self.usage.load(Ordering::Relaxed);
        let holds = self.ceiling.follow(usage, room, &self.config);
        self.max.store(holds, Ordering::Relaxed);
    }

    fn ask(&self, bytes: u64) {
        let _limiting = lock(&self.limiting);
        let set_max = |bytes| self.max.store(bytes, Ordering::Relaxed);
        self.ceiling.ask(bytes, set_max);
        self.follow(true);
    }

    fn follow_limit(&self) {
        let _limiting = lock(&self.limiting);
        self.follow(false);
    }

    /// As a charge: whether there was room.
    fn charge(&self, bytes: u64) -> bool {
        let max = self.max.load(Ordering::Relaxed);
        let fits = |usage: u64| (usage + bytes <= max).then_some(usage + bytes);
        let usage = &self.usage;
        usage
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .is_ok()
    }

    /// As an eviction for the limit.
    fn evict(&self, bytes: u64) {
        self.usage.fetch_sub(bytes, Ordering::Relaxed);
        self.follow_limit();
    }
}

/// What holds is never below what was asked for: a store that fits that is not refused.
#[test]
fn loom_a_limit_that_falls_and_a_store() {
    model(|| {
        let store = Store::new(100, 80);
        let stores = beside(1, &store, move |other| other.charge(10));
        store.ask(40);
        assert!(store.ceiling.holds() >= 40);
        store.evict(30);
        store.evict(30);
        let stored = stores.join().unwrap();
        store.follow_limit();
        let usage = store.usage.load(Ordering::Relaxed);
        assert_eq!(usage, if stored { 30 } else { 20 });
        assert_eq!(
            (store.ceiling.holds(), store.ceiling.is_falling()),
            (40, false)
        );
        assert!(store.charge(10), "there is room");
    });
}

/// Raised in the middle of a fall: what is under way does not lower it again.
#[test]
fn loom_a_limit_that_is_raised_while_it_falls() {
    model(|| {
        let store = Store::new(100, 80);
        store.ask(40);
        let evicts = beside(1, &store, move |other| other.evict(10));
        store.ask(90);
        evicts.join().unwrap();
        assert_eq!(
            (store.ceiling.holds(), store.ceiling.is_falling()),
            (90, false)
        );
        assert_eq!(store.max.load(Ordering::Relaxed), 90);
        assert!(store.charge(10));
    });
}

/// A store that sees a limit that was raised is not refused by the one before.
#[test]
fn loom_a_limit_that_is_raised_and_a_store() {
    model(|| {
        let store = Store::new(40, 40);
        let stores = beside(1, &store, move |other| {
            if other.ceiling.asked() == 90 {
                assert!(other.charge(10), "there is room");
            }
        });
        store.ask(90);
        stores.join().unwrap();
    });
}
