//! What is done, the same for every subject: [`Work`]'s LRUs have a list for each tenant, each with
//! [`RESIDENTS`] items on it from the beginning.
//!
//! A **counter** counts one LRU's lists, tenant by tenant, and then looks which LRU is next. A
//! **mutator** goes over one LRU's tenants, takes one of its items off the list that it is on,
//! and adds it to the tenant's. All work on the same LRU at a time, as processes that are short of
//! memory do: the first mutator says which.
//!
//! | figure | |
//! |---|---|
//! | `counts_per_s`, `adds_per_s` | of all threads together, in [`SPAN`] |
//! | `count_ns` | of one count by one thread, before other threads start, on lists that are in its cache: the best of [`SLICES`] slices |
//! | `lock_share` | of the process's profiling-timer samples in that time, those of threads that were waiting for a lock held by another thread |
//! | `add_p999_us` | of each single add while a reclaim pass goes over all lists instead of the counters; with one mutator only (threads-2) |
//!
//! A reclaim pass looks at items 128 at a time, and makes each the newest one. Under a lock of the
//! old kind it holds that for as long as it looks at 128, which is what the kernel does.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Work, profile};
use crate::run::Sample;
use crate::scale::spawn;
use crate::scale::timing::{best_ns, no_times, note, time};

/// How long the threads count and add.
const SPAN: Duration = Duration::from_millis(500);

/// How long adds are timed behind a reclaim pass.
const BEHIND: Duration = Duration::from_millis(150);

/// Slices of `count_ns`.
const SLICES: usize = 16;

/// Number of counts in a slice, each of another tenant's list.
const SLICE: usize = 200_000;
const IN_CACHE: usize = 16;

/// Items that each list has from the beginning.
pub const RESIDENTS: usize = 2;

/// Items that each mutator moves about.
pub const MOVED: usize = 64;

/// Who takes part in a scenario.
#[derive(Clone, Copy)]
pub struct Roles {
    /// Threads that count.
    pub counters: usize,
    /// Threads that add and delete.
    pub mutators: usize,
}

/// A list: of an LRU, for a tenant.
#[derive(Clone, Copy)]
pub struct Place {
    /// The LRU.
    pub list: usize,
    /// The tenant.
    pub tenant: usize,
}

/// The lists of a subject.
pub trait Subject: Sync {
    /// Lists with their residents, and items for the mutators, which are on none.
    fn new(lists: usize, tenants: usize, mutators: usize) -> Self;

    /// How many items are there.
    fn count(&self, place: Place) -> usize;

    /// Puts item number `item` of a mutator, which is on no list, there.
    fn add(&self, place: Place, mutator: usize, item: usize);

    /// Takes it off; it is there.
    fn delete(&self, place: Place, mutator: usize, item: usize);

    /// Goes over all lists once, or over a good part of them.
    fn reclaim_pass(&self);
}

/// What one thread has done.
#[derive(Default)]
struct Done {
    counts: u64,
    adds: u64,
}

struct Shared<'a, S> {
    subject: &'a S,
    lists: usize,
    tenants: usize,
    /// The LRU that all work on.
    current: AtomicUsize,
    go: AtomicBool,
    stop: AtomicBool,
    ready: AtomicU64,
}

/// Measures one subject.
pub fn measure<S: Subject>(work: &Work, roles: Roles) -> Result<Sample> {
    let (lists, tenants) = (work.lists as usize, work.tenants as usize);
    let subject = S::new(lists, tenants, roles.mutators);
    let count_ns = count_ns(&subject, tenants);

    let shared = Shared::new(&subject, lists, tenants);
    let (done, took, shares) = run_threads(&shared, roles)?;
    let per_s =
        |what: fn(&Done) -> u64| done.iter().map(what).sum::<u64>() as f64 / took.as_secs_f64();
    let mut sample = Sample::of([
        ("counts_per_s", per_s(|done| done.counts)),
        ("adds_per_s", per_s(|done| done.adds)),
        ("count_ns", count_ns),
        ("lock_share", shares),
    ]);
    if roles.mutators == 1 {
        let p999 = add_p999_during_reclaim(&Shared::new(&subject, lists, tenants));
        sample.add([("add_p999_us", p999)]);
    }
    Ok(sample)
}

/// Counts without concurrent changes.
fn count_ns<S: Subject>(subject: &S, tenants: usize) -> f64 {
    best_ns(SLICES, || {
        let place = |count| Place {
            list: 0,
            tenant: count % IN_CACHE.min(tenants),
        };
        let all: usize = (0..SLICE).map(|count| subject.count(place(count))).sum();
        assert_eq!(all, SLICE * RESIDENTS);
        SLICE
    })
}

fn run_threads<S: Subject>(
    shared: &Shared<'_, S>,
    roles: Roles,
) -> Result<(Vec<Done>, Duration, f64)> {
    thread::scope(|scope| {
        let mut threads = Vec::new();
        for _ in 0..roles.counters {
            threads.push(spawn(Builder::new(), scope, || shared.count()));
        }
        for mutator in 0..roles.mutators {
            let work = move || shared.mutator(mutator, |add| add());
            threads.push(spawn(Builder::new(), scope, work));
        }
        let all = threads.len() as u64;
        while shared.ready.load(Ordering::Acquire) < all {
            thread::yield_now();
        }
        let profile = profile::start()?;
        let begun = Instant::now();
        shared.go.store(true, Ordering::Release);
        thread::sleep(SPAN);
        shared.stop.store(true, Ordering::Release);
        let took = begun.elapsed();
        let share = profile.finish();
        let done = threads
            .into_iter()
            .map(|thread| thread.join().expect("no thread panics"));
        Ok((done.collect(), took, share))
    })
}

/// The 99.9th percentile of an add, in microseconds.
fn add_p999_during_reclaim<S: Subject>(shared: &Shared<'_, S>) -> f64 {
    let mut times = no_times();
    thread::scope(|scope| {
        spawn(Builder::new(), scope, || {
            shared.enter();
            while !shared.over() {
                shared.subject.reclaim_pass();
            }
        });
        spawn(Builder::new(), scope, || {
            shared.mutator(0, |add| {
                note(&mut times, &time(add));
            });
        });
        shared.go.store(true, Ordering::Release);
        thread::sleep(BEHIND);
        shared.stop.store(true, Ordering::Release);
    });
    times.value_at_quantile(0.999) as f64 / 1e3
}

impl<'a, S: Subject> Shared<'a, S> {
    fn new(subject: &'a S, lists: usize, tenants: usize) -> Self {
        Self {
            subject,
            lists,
            tenants,
            current: AtomicUsize::new(0),
            go: AtomicBool::new(false),
            stop: AtomicBool::new(false),
            ready: AtomicU64::new(0),
        }
    }

    /// Comes, and waits until all have.
    fn enter(&self) {
        self.ready.fetch_add(1, Ordering::AcqRel);
        while !self.go.load(Ordering::Acquire) {
            thread::yield_now();
        }
    }

    fn over(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the LRU that all go over next.
    fn list(&self) -> usize {
        self.current.load(Ordering::Relaxed)
    }

    fn count(&self) -> Done {
        self.enter();
        let (mut done, mut found) = (Done::default(), 0);
        loop {
            let list = self.list();
            for tenant in 0..self.tenants {
                found += self.subject.count(Place { list, tenant });
                done.counts += 1;
                // A lock that is fought over can make a turn longer than the measurement.
                if tenant % 64 == 0 && self.over() {
                    std::hint::black_box(found);
                    return done;
                }
            }
        }
    }

    /// Each add is made by `around_add`, which may time it.
    fn mutator(&self, number: usize, mut around_add: impl FnMut(&dyn Fn())) -> Done {
        self.enter();
        let mut done = Done::default();
        let mut places = [None::<Place>; MOVED];
        for turn in 0.. {
            if number == 0 {
                self.current.store(turn % self.lists, Ordering::Relaxed);
            }
            let list = self.list();
            for step in 0..self.tenants {
                let place = Place {
                    list,
                    tenant: (step * 7 + number * 501) % self.tenants,
                };
                let item = step % MOVED;
                if let Some(old) = places[item].take() {
                    self.subject.delete(old, number, item);
                }
                around_add(&|| self.subject.add(place, number, item));
                places[item] = Some(place);
                done.adds += 1;
                if self.over() {
                    self.leave(number, &places);
                    return done;
                }
            }
        }
        done
    }

    /// Takes a mutator's items off again, so that they are on no list for the next one.
    fn leave(&self, number: usize, places: &[Option<Place>]) {
        for (item, place) in places.iter().enumerate() {
            if let Some(place) = place {
                self.subject.delete(*place, number, item);
            }
        }
    }
}
