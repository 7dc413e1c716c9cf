//! Key spaces that are flushed.

use super::{beside, model, model_of, spawn};
use crate::store::{
    flush::{Flush, Flushed},
    rcu::{Watch, global, read_lock},
};
use stillpoint_platform::sync::{Arc, AtomicBool, AtomicU64, Ordering};

/// A tenant's key spaces, by number; the first has a segment.
struct Tenant {
    flush: Flush,
    space: AtomicU64,
    flushed: Flushed,
    deleted: AtomicBool,
    segment: Watch,
}

impl Tenant {
    fn new() -> Arc<Self> {
        super::be(0);
        Arc::new(Self {
            flush: Flush::new(),
            space: AtomicU64::new(0),
            flushed: Flushed::new(),
            deleted: AtomicBool::new(false),
            segment: Watch::default(),
        })
    }

    /// As `TenantState::begin_space`, with orderings as of `Rcu::swap` and `Rcu::load`.
    fn begin(&self) {
        // Release, pairs with `space`.
        self.space.fetch_add(1, Ordering::AcqRel);
        self.flushed.set();
    }

    /// As `TenantState::flush_later`.
    fn later(&self, at: u32, now: u32) {
        self.flush.later(at, now, || self.begin());
    }

    fn space(&self) -> u64 {
        // Acquire, pairs with `begin`.
        self.space.load(Ordering::Acquire)
    }

    /// What a command comes to at that second.
    fn space_at(&self, now: u32) -> u64 {
        self.flush.if_due(now, || self.begin());
        self.space()
    }
}

#[test]
fn loom_a_flush_that_is_due_is_done_once_and_seen_by_all() {
    model(|| {
        let tenant = Tenant::new();
        tenant.later(5, 0);
        let threads = [1, 2].map(|number| {
            let tenant = Arc::clone(&tenant);
            spawn(number, move || tenant.space_at(5))
        });
        assert!(tenant.space_at(4) <= 1, "once");
        assert!(
            threads
                .into_iter()
                .all(|thread| thread.join().unwrap() == 1)
        );
        assert_eq!(tenant.space(), 1);
    });
}

/// It is due, and another client has it flushed at once: none finds what was there before.
#[test]
fn loom_a_flush_that_is_due_and_one_at_once() {
    model(|| {
        let tenant = Tenant::new();
        tenant.later(5, 0);
        let looks = beside(1, &tenant, move |other| other.space_at(5));
        tenant.flush.at_once(|| tenant.begin());
        assert!(looks.join().unwrap() > 0, "before the flush");
    });
}

/// A flush for later is not lost to one that is under way.
#[test]
fn loom_a_flush_for_later_beside_one_that_is_due() {
    model(|| {
        let tenant = Tenant::new();
        tenant.later(5, 0);
        let due = beside(1, &tenant, move |other| other.space_at(5));
        tenant.later(9, 4);
        due.join().unwrap();
        let before = tenant.space();
        assert_eq!(tenant.space_at(9), before + 1, "it is lost");
    });
}

/// What is due is done, though another one is asked for: who sees that sees the new key space.
#[test]
fn loom_a_flush_for_later_behind_one_that_is_due() {
    model(|| {
        let tenant = Tenant::new();
        tenant.later(5, 0);
        let looks = beside(1, &tenant, move |other| other.space_at(5));
        tenant.later(9, 5);
        assert_eq!(looks.join().unwrap(), 1, "before the flush");
    });
}

/// The segments of a key space that was flushed are freed without a look at its index.
#[test]
fn loom_a_reader_and_a_segment_of_a_key_space_that_was_flushed() {
    model_of(2, || {
        let tenant = Tenant::new();
        let reader = beside(1, &tenant, move |reads| {
            let _section = read_lock();
            if reads.space() == 0 {
                reads.segment.note_read();
            }
        });
        let freer = beside(2, &tenant, move |frees| {
            if frees.flushed.is_set() && global().poll(global().get_state()) {
                frees.segment.note_free();
            }
        });
        tenant.begin();
        reader.join().unwrap();
        freer.join().unwrap();
    });
}

/// A thread that comes to the last key space of a tenant stores nothing there.
#[test]
fn loom_a_store_and_the_deletion_of_its_tenant() {
    model(|| {
        let tenant = Tenant::new();
        let stores = beside(1, &tenant, move |other| {
            if other.space() == 1 {
                assert!(other.deleted.load(Ordering::Relaxed), "it is not seen");
            }
        });
        // As `Owner::delete`.
        tenant.deleted.store(true, Ordering::Relaxed);
        tenant.flush.at_once(|| tenant.begin());
        stores.join().unwrap();
    });
}
