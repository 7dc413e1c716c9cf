//! Model-checked tests of the protocols in `link.rs`, `shrinker_map.rs`, `levels.rs`, `slots.rs`,
//! `calls.rs`, `memcg/counter.rs` and `memcg/stock.rs`.
//!
//! Detects arrays of lists and charges whose orderings are weakened.

use crate::{
    calls::Calls,
    levels::{self, HasLevel, Level},
    link::{Link, List, Refused},
    memcg::{
        counter::{self, Account, Counter},
        stock::Stocks,
    },
    shrinker_map::{Index, ShrinkerMap},
    slots::Slots,
};
use stillpoint::internal::{GracePeriods, Policy, Sound};
use stillpoint_platform::{
    fork_mutex::ForkMutex,
    model::{self as loom, thread},
    sync::{Arc, AtomicBool, AtomicUsize, Ordering, UnsafeCell},
};

fn model(test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(test);
}

/// A value that one thread at a time may write, and none may read meanwhile: loom reports it otherwise.
struct Watched(UnsafeCell<u32>);

// SAFETY: loom checks each access to the cell.
unsafe impl Send for Watched {}
// SAFETY: as above.
unsafe impl Sync for Watched {}

impl Watched {
    fn new(value: u32) -> Self {
        Self(UnsafeCell::new(value))
    }

    fn read(&self) -> u32 {
        // SAFETY: loom checks that no thread writes it.
        self.0.with(|value| unsafe { *value })
    }

    fn write(&self, value: u32) {
        // SAFETY: whether it is ours is what loom checks.
        self.0.with_mut(|old| unsafe { *old = value });
    }
}

/// Two lists and an item, which the thread that has taken it writes.
struct World {
    lists: [List; 2],
    link: Link,
    item: Watched,
}

impl World {
    fn new() -> Arc<Self> {
        let world = Arc::new(Self {
            lists: [List::new(1), List::new(1)],
            link: Link::new(),
            item: Watched::new(0),
        });
        world.lists.iter().for_each(List::init);
        world
    }

    fn add(&self, list: usize) -> Result<bool, Refused> {
        // SAFETY: the world outlives the model's threads.
        unsafe { self.lists[list].lock().append(&raw const self.link) }
    }

    /// Does what `ListLru::del` does.
    fn del(&self) -> bool {
        while let Some(list) = self.link.owner() {
            // SAFETY: the lists outlive the model's threads.
            let locked = unsafe { &*list }.lock();
            if locked.has(&self.link) {
                self.item.write(self.item.read() + 1);
                locked.remove(&self.link);
                return true;
            }
        }
        false
    }

    fn counts(&self) -> [usize; 2] {
        [self.lists[0].count(), self.lists[1].count()]
    }
}

/// `owner` with `move_to`, and the second look: an item that moves to the parent's list is found
/// and removed by a concurrent `del`.
#[test]
fn loom_lru_delete_while_reparenting() {
    model(|| {
        let world = World::new();
        assert_eq!(world.add(0), Ok(true));
        let theirs = Arc::clone(&world);
        let deleter = thread::spawn(move || theirs.del());
        {
            let child = world.lists[0].lock();
            let parent = world.lists[1].lock();
            while child.move_to(&parent, 1) {}
            child.mark_dead();
        }
        assert!(
            deleter.join().unwrap(),
            "an item that was on a list all the time was not found"
        );
        assert_eq!(world.counts(), [0, 0]);
        assert_eq!(world.add(0), Err(Refused::Dead));
        assert_eq!(world.add(1), Ok(true));
    });
}

/// The same of an item that is made the newest one.
#[test]
fn loom_lru_delete_while_rotating() {
    model(|| {
        let world = World::new();
        assert_eq!(world.add(0), Ok(true));
        let theirs = Arc::clone(&world);
        let deleter = thread::spawn(move || theirs.del());
        world.lists[0].lock().rotate(&world.link);
        assert!(
            deleter.join().unwrap(),
            "an item that was on a list all the time was not found"
        );
        assert_eq!(world.counts(), [0, 0]);
    });
}

/// An addition to a list that is being marked dead is refused, or its item is moved.
#[test]
fn loom_lru_add_while_reparenting() {
    model(|| {
        let world = World::new();
        let theirs = Arc::clone(&world);
        let adder = thread::spawn(move || match theirs.add(0) {
            Err(Refused::Dead) => theirs.add(1),
            added => added,
        });
        {
            let child = world.lists[0].lock();
            let parent = world.lists[1].lock();
            while child.move_to(&parent, 1) {}
            child.mark_dead();
        }
        assert!(adder.join().unwrap().is_ok());
        assert_eq!(world.counts(), [0, 1]);
    });
}

/// `append` with `remove`: of two that add an item to two lists one wins; one that adds it after it
/// was taken off finds it whole.
#[test]
fn loom_lru_two_add_and_delete() {
    model(|| {
        let world = World::new();
        let others: Vec<_> = (0..2)
            .map(|list| {
                let theirs = Arc::clone(&world);
                thread::spawn(move || {
                    let added = theirs.add(list).is_ok();
                    added && theirs.del()
                })
            })
            .collect();
        let taken = others
            .into_iter()
            .map(|other| other.join().unwrap())
            .filter(|&taken| taken)
            .count();
        assert_eq!(world.counts(), [0, 0]);
        assert_eq!(world.item.read(), taken as u32);
        assert!(taken >= 1);
    });
}

/// `set_bit` with `clear_bit`: no item stays behind a clear bit.
#[test]
fn loom_lru_bit() {
    model(|| {
        let shared = Arc::new((ShrinkerMap::new(1), AtomicUsize::new(0)));
        let index = Index::of(0, 3);
        shared.0.set_bit(index);
        let theirs = Arc::clone(&shared);
        let adder = thread::spawn(move || {
            theirs.1.store(1, Ordering::Relaxed);
            theirs.0.set_bit(index);
        });
        let (shrinker_map, count) = &*shared;
        if count.load(Ordering::Relaxed) == 0 {
            shrinker_map.clear_bit(index);
            // The second look.
            if count.load(Ordering::Relaxed) > 0 {
                shrinker_map.set_bit(index);
            }
        }
        adder.join().unwrap();
        assert!(shrinker_map.is_set(index), "an item is overlooked");
    });
}

enum NoWait {}
// SAFETY: broken on purpose; the model's memory outlives its readers.
unsafe impl Policy for NoWait {
    const WAITS_FOR_READERS: bool = false;
}

struct Growing<P: Policy> {
    grace_periods: GracePeriods<P>,
    slots: Slots<Watched>,
    replaced: Watched,
}

/// A reader looks up two values, one of which was there before, while the array grows and the other
/// one is put into it.
fn find_while_growing<P: Policy>() {
    model(|| {
        let world = Arc::new(Growing::<P> {
            grace_periods: GracePeriods::new(),
            slots: Slots::new(),
            replaced: Watched::new(0),
        });
        world
            .slots
            .grow(2, |_, _| panic!("there is none yet"))
            .unwrap();
        world.slots.put(0, std::sync::Arc::new(Watched::new(7)));
        let theirs = Arc::clone(&world);
        let reader = thread::spawn(move || {
            let section = theirs.grace_periods.enter(1);
            // SAFETY: in a section, which the writer waits for.
            let found = |index| unsafe { theirs.slots.find_after(index, || ()) }.map(Watched::read);
            match found(1) {
                Some(new) => assert_eq!(new, 8),
                // Perhaps in the old array.
                None => {
                    theirs.replaced.read();
                }
            }
            assert_eq!(found(0), Some(7), "what was there is lost");
            drop(section);
        });
        let mut old = None;
        world
            .slots
            .grow(3, |block, layout| old = Some((block, layout)))
            .unwrap();
        // Not before: `grow` would be what publishes it.
        let new = Watched::new(0);
        new.write(8);
        world.slots.put(1, std::sync::Arc::new(new));
        let cookie = world.grace_periods.get_state();
        if world.grace_periods.try_complete(cookie, 2) {
            world.replaced.write(1);
        }
        reader.join().unwrap();
        let (block, layout) = old.expect("it has grown");
        // SAFETY: from the global allocator, with this layout; the reader has ended.
        unsafe { std::alloc::dealloc(block.as_ptr(), layout) };
    });
}

/// `grow` with `slots`, `put` with `find_after`.
#[test]
fn loom_slots_find_while_growing() {
    find_while_growing::<Sound>();
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_slots_freed_without_a_grace_period() {
    find_while_growing::<NoWait>();
}

/// A charge of `bytes` to the levels with these numbers, the root last.
type Request = (&'static [usize], u64);

/// Which requests were admitted, and then usage and peak of every level.
#[derive(Debug, PartialEq)]
struct Outcome {
    admitted: Vec<bool>,
    usage: Vec<u64>,
    peak: Vec<u64>,
}

/// Returns the outcome of the requests one after the other, in this order.
fn in_order(limits: &[u64], requests: &[Request], order: &[usize]) -> Outcome {
    let none = vec![0; limits.len()];
    let mut outcome = Outcome {
        admitted: vec![false; requests.len()],
        usage: none.clone(),
        peak: none,
    };
    for &number in order {
        let (path, bytes) = requests[number];
        if path
            .iter()
            .all(|&level| outcome.usage[level] + bytes <= limits[level])
        {
            outcome.admitted[number] = true;
            for &level in path {
                outcome.usage[level] += bytes;
                outcome.peak[level] = outcome.peak[level].max(outcome.usage[level]);
            }
        }
    }
    outcome
}

fn orders(count: usize) -> Vec<Vec<usize>> {
    if count == 0 {
        return vec![Vec::new()];
    }
    let shorter = orders(count - 1);
    let longer =
        |order: &Vec<usize>, at: usize| [&order[..at], &[count - 1], &order[at..]].concat();
    (0..count)
        .flat_map(|at| shorter.iter().map(move |order| longer(order, at)))
        .collect()
}

/// Makes each request in a separate thread, which takes the lock with its number in `locks`. The
/// outcome must be that of some order of the requests, one after the other.
fn charge_together(limits: &'static [u64], requests: &'static [Request], locks: &'static [usize]) {
    model(move || {
        let levels: Arc<Vec<Level>> = Arc::new(limits.iter().map(|_| Level::new()).collect());
        for (level, &max) in levels.iter().zip(limits) {
            level.set_max(max);
        }
        let exact: Arc<Vec<ForkMutex<()>>> =
            Arc::new(locks.iter().map(|_| ForkMutex::new(())).collect());
        let charge = |number: usize| {
            let (levels, exact) = (Arc::clone(&levels), Arc::clone(&exact));
            move || {
                let (path, bytes) = requests[number];
                levels::charge(
                    path.iter().map(|&level| &levels[level]),
                    bytes,
                    true,
                    &exact[locks[number]],
                )
                .is_ok()
            }
        };
        let others: Vec<_> = (1..requests.len())
            .map(|number| thread::spawn(charge(number)))
            .collect();
        let mut admitted = vec![charge(0)()];
        admitted.extend(others.into_iter().map(|other| other.join().unwrap()));
        let read = |of: fn(&Level) -> u64| levels.iter().map(of).collect::<Vec<_>>();
        let outcome = Outcome {
            admitted,
            usage: read(Level::usage),
            peak: read(Level::peak),
        };
        let possible = orders(requests.len())
            .iter()
            .any(|order| in_order(limits, requests, order) == outcome);
        assert!(possible, "no order of the charges explains it: {outcome:?}");
    });
}

/// 0 is the root, with a limit of 10; 1 is below it, with one of 6; 2 is below the root, without.
const LIMITS: &[u64] = &[10, 6, u64::MAX];

/// One of the first two is refused, by the root or by the tenant of both. A request that the root
/// refuses is never in the third one's way.
const REQUESTS: &[Request] = &[(&[1, 0], 5), (&[2, 0], 6), (&[1, 0], 4)];

#[test]
fn loom_levels_refused_charges_are_not_seen() {
    charge_together(LIMITS, REQUESTS, &[0, 0, 0]);
}

/// Charges with several limits in their way need a common lock: otherwise each may fit beside the
/// usage before the other one.
#[test]
#[should_panic(expected = "no order of the charges explains it")]
fn loom_levels_without_a_common_lock() {
    charge_together(LIMITS, REQUESTS, &[0, 1, 2]);
}

/// One limit needs no lock.
#[test]
fn loom_levels_one_limit_decides_alone() {
    charge_together(&[10, u64::MAX, u64::MAX], REQUESTS, &[0, 1, 2]);
}

/// Charges that are counted first, then compared, and subtracted again if they are refused.
#[test]
#[should_panic(expected = "is refused for what was never charged")]
fn loom_levels_counted_before_decided() {
    model(|| {
        let level = Arc::new(Level::new());
        level.set_max(10);
        let charge = |level: &Level, bytes: u64| {
            let admitted = level.add(bytes).unwrap() <= level.max();
            if !admitted {
                level.subtract(bytes);
            }
            admitted
        };
        let theirs = Arc::clone(&level);
        let greedy = thread::spawn(move || charge(&theirs, 11));
        assert!(
            charge(&level, 1),
            "one byte of ten is refused for what was never charged"
        );
        greedy.join().unwrap();
    });
}

/// Calls of two threads, each of which owns a cell while it is inside.
struct Callers {
    calls: Calls,
    used: [Watched; 2],
}

impl Callers {
    fn call(&self, thread: usize) {
        if self.calls.enter() {
            self.used[thread].write(1);
            self.calls.leave();
        }
    }

    /// Checks that no call is under way, and that what calls did is seen.
    fn is_over(&self) {
        self.used.iter().for_each(|used| used.write(2));
    }
}

/// `enter` and `leave` with `end`. Time stands still in the model: an end that misses the last call's
/// signal is a deadlock, which loom reports. If `inside`, the ending thread is in a call itself, like
/// a shrinker that drops its registration.
fn calls_end(inside: bool) {
    model(move || {
        let shared = Arc::new(Callers {
            calls: Calls::new(),
            used: [Watched::new(0), Watched::new(0)],
        });
        if inside {
            assert!(shared.calls.enter());
        }
        let callers: Vec<_> = (0..2)
            .map(|caller| {
                let shared = Arc::clone(&shared);
                thread::spawn(move || shared.call(caller))
            })
            .collect();
        shared.calls.end(inside);
        shared.is_over();
        assert!(!shared.calls.enter());
        if inside {
            shared.calls.leave();
        }
        callers
            .into_iter()
            .for_each(|caller| caller.join().unwrap());
    });
}

#[test]
fn loom_calls_end() {
    calls_end(false);
}

#[test]
fn loom_calls_end_inside_one() {
    calls_end(true);
}

/// A tenant, whose end writes a cell that its users read.
struct Owner {
    counter: Counter,
    is_deleted: AtomicBool,
    used: Arc<Watched>,
    ends: Arc<AtomicUsize>,
}

impl HasLevel for Owner {
    fn level(&self) -> &Level {
        self.counter.level()
    }

    fn high(&self) -> u64 {
        u64::MAX
    }
}

// SAFETY: the counter is a field, and `Tenancy::new` alone makes an `Owner`.
unsafe impl Account for Owner {
    fn counter(&self) -> &Counter {
        &self.counter
    }

    fn parent(&self) -> Option<&Self> {
        None
    }

    fn is_deleted(&self) -> bool {
        self.is_deleted.load(Ordering::Relaxed)
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.used.write(1);
        self.ends.fetch_add(1, Ordering::Relaxed);
    }
}

/// A tenant, and what is left when it has ended. Its pointer, as a charge has it, is passed to another
/// thread.
#[derive(Clone)]
struct Tenancy {
    account: *const Owner,
    used: Arc<Watched>,
    ends: Arc<AtomicUsize>,
}

// SAFETY: the account is kept by its charges and handles.
unsafe impl Send for Tenancy {}

impl Tenancy {
    /// Makes a tenant that has its handles, and a charge of `bytes`.
    fn charged(bytes: u64) -> Self {
        let used = Arc::new(Watched::new(0));
        let ends = Arc::new(AtomicUsize::new(0));
        let account = counter::new_account(Owner {
            counter: Counter::new(),
            is_deleted: AtomicBool::new(false),
            used: Arc::clone(&used),
            ends: Arc::clone(&ends),
        });
        // The handles' hold keeps it, of which the model knows the ordering, unlike of this `Arc`.
        let account = std::sync::Arc::as_ptr(&account);
        let this = Self {
            account,
            used,
            ends,
        };
        let charged = counter::charge(this.account(), bytes, true, &ForkMutex::new(()));
        assert!(matches!(charged, Ok(false)));
        this
    }

    fn account(&self) -> &Owner {
        // SAFETY: the caller has a charge or the handles.
        unsafe { &*self.account }
    }

    /// Ends what one thread has of the tenant by `end`, after a use or, to see that the model finds
    /// it, before.
    fn leave(&self, late: bool, end: impl FnOnce(*const Owner)) {
        if !late {
            self.used.read();
        }
        end(self.account);
        if late {
            self.used.read();
        }
    }

    fn assert_ended(&self) {
        assert_eq!(self.ends.load(Ordering::Relaxed), 1, "the tenant stays");
    }
}

/// `put` with `put`: the tenant of a charge and of handles is freed once, after all uses by either.
fn counter_end(late: bool) {
    model(move || {
        let tenancy = Tenancy::charged(1);
        let theirs = tenancy.clone();
        let other = thread::spawn(move || {
            // SAFETY: charged above.
            theirs.leave(late, |account| unsafe { counter::uncharge(account, 1) });
        });
        // SAFETY: once.
        tenancy.leave(false, |account| unsafe { counter::put_handles(account) });
        other.join().unwrap();
        tenancy.assert_ended();
    });
}

#[test]
fn loom_counter_end() {
    counter_end(false);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_counter_use_after_the_charge() {
    counter_end(true);
}

/// `try_take_now` with `drop`, and the mark of a tenant that goes: bytes that are given back while it
/// goes do not stay in stock, and it is freed after all uses.
fn stock_of_a_tenant_that_goes(late: bool) {
    model(move || {
        let tenancy = Tenancy::charged(8);
        let stocks = Arc::new(Stocks::new().unwrap());
        let (theirs, their_stocks) = (tenancy.clone(), Arc::clone(&stocks));
        let other = thread::spawn(move || {
            // SAFETY: charged above, and all accounts have these stocks.
            theirs.leave(late, |account| unsafe {
                Stocks::give(&raw const *their_stocks, account, 8)
            });
        });
        tenancy.account().is_deleted.store(true, Ordering::Relaxed);
        stocks.drain(Some(tenancy.account()));
        // SAFETY: once.
        tenancy.leave(false, |account| unsafe { counter::put_handles(account) });
        other.join().unwrap();
        tenancy.assert_ended();
    });
}

#[test]
fn loom_stock_of_a_tenant_that_goes() {
    stock_of_a_tenant_that_goes(false);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn loom_stock_use_after_the_bytes() {
    stock_of_a_tenant_that_goes(true);
}

/// Two threads take from one processor's stock, which has room for one of them: its entries are as
/// the last taker left them.
#[test]
fn loom_stock_two_takers() {
    model(|| {
        let tenancy = Tenancy::charged(8);
        let stocks = Arc::new(Stocks::new().unwrap());
        // SAFETY: charged just now, and all accounts have these stocks.
        unsafe { Stocks::give(&raw const *stocks, tenancy.account, 8) };
        let (theirs, their_stocks) = (tenancy.clone(), Arc::clone(&stocks));
        let other = thread::spawn(move || their_stocks.take(theirs.account(), 5));
        let takers = u64::from(stocks.take(tenancy.account(), 5));
        let takers = takers + u64::from(other.join().unwrap());
        assert_eq!(takers, 1, "the first to come takes it, the other must not");
        assert_eq!(stocks.of_subtree(tenancy.account()), 3);
        stocks.drain(None);
        // SAFETY: what was taken from stock, and the handles.
        unsafe {
            counter::uncharge(tenancy.account, 5);
            counter::put_handles(tenancy.account);
        }
        tenancy.assert_ended();
    });
}
