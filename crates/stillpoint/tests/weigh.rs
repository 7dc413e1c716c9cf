//! Weights: the memory that values own is counted, whatever a weigher does, and no value is lost.

mod common;
#[path = "common/counting.rs"]
mod counting;

use common::{
    Reader, Tally, Tracked, assert_counts, eventually, leak, panic_message, quietly, retire,
    retire_inline, returns, stalls::Stalls,
};
use counting::kept_by;
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet, LinkedList, VecDeque},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};
use stillpoint::{Domain, Rcu, RcuOption, Weigh, global, read_lock};

/// Checks that the result of `make` reports the bytes that it has allocated, to within `percent`.
#[track_caller]
fn assert_owns<T: Weigh>(percent: usize, make: impl FnOnce() -> T) {
    let (value, owned) = kept_by(make);
    let said = value.heap_bytes();
    assert!(
        said.abs_diff(owned) * 100 <= owned * percent,
        "said {said}, has {owned}"
    );
}

#[test]
fn std_types_say_what_they_own() {
    assert_owns(0, || 7_u64);
    assert_owns(0, String::new);
    assert_owns(0, || "text".repeat(100));
    assert_owns(0, || PathBuf::from("a/path"));
    assert_owns(0, || Vec::<u32>::with_capacity(1000));
    assert_owns(0, || VecDeque::<u16>::with_capacity(1000));
    assert_owns(0, || BinaryHeap::<u16>::with_capacity(1000));
    assert_owns(0, || Box::new([0_u64; 100]));
    assert_owns(0, || Box::<[u64]>::from([0_u64; 100]));
    assert_owns(0, || Box::<str>::from("text"));
    assert_owns(0, || Box::new("text".to_string()));
    assert_owns(0, || Arc::new("text".repeat(10)));
    assert_owns(0, || Some("text".repeat(10)));
    assert_owns(0, || Ok::<_, u8>("text".repeat(10)));
    assert_owns(0, || Cow::<str>::Owned("text".repeat(10)));
    assert_owns(0, || ("one".to_string(), 2, Box::new(3_u16)));
    assert_owns(0, || ["one".to_string(), "three".to_string()]);
    assert_owns(0, || (0..100).collect::<LinkedList<u64>>());
    for entries in [0, 1, 3, 4, 7, 14, 15, 100, 1_000, 10_000] {
        let keys = || (0..entries as u64).map(|key| key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        assert_owns(40, || keys().collect::<HashSet<u64>>());
        assert_owns(40, || {
            keys().map(|key| (key, 1)).collect::<HashMap<u64, u8>>()
        });
    }
    for entries in [100, 1_000, 10_000] {
        let keys = || (0..entries as u64).map(|key| key.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        assert_owns(60, || keys().collect::<BTreeSet<u64>>());
        assert_owns(60, || {
            let mut map = BTreeMap::new();
            map.extend(keys().map(|key| (key, [key; 2])));
            map
        });
    }
}

#[test]
fn what_is_shared_counts_for_each_and_what_is_borrowed_is_not_owned() {
    let shared = Arc::new([0_u64; 100]);
    let other = Arc::clone(&shared);
    assert_eq!((shared.heap_bytes(), other.heap_bytes()), (816, 816));
    assert_eq!(Weigh::heap_bytes(&&"text".to_string()), 0);
    assert_eq!(Cow::Borrowed("text").heap_bytes(), 0);
    // What elements own is not looked for.
    assert_eq!(vec!["text".repeat(100)].heap_bytes(), size_of::<String>());
}

/// A value that says what it weighs, and counts how often it is asked.
struct Weighed {
    bytes: usize,
    asked: Arc<AtomicUsize>,
    value: Tracked,
}

/// Makes values, and knows how often they have been asked.
#[derive(Default)]
struct Scales {
    tally: Tally,
    asked: Arc<AtomicUsize>,
}

impl Scales {
    fn value(&self, bytes: usize) -> Weighed {
        Weighed {
            bytes,
            asked: Arc::clone(&self.asked),
            value: self.tally.value(bytes as u64),
        }
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

fn weigh(value: &Weighed) -> usize {
    value.value.get();
    value.asked.fetch_add(1, Ordering::Relaxed);
    value.bytes
}

fn cell_in(domain: &Domain, value: Weighed) -> Rcu<Weighed> {
    Rcu::new_in(domain, value).weighing(weigh)
}

fn pending(domain: &Domain) -> usize {
    domain.statistics().bytes_pending as usize
}

/// Everything has been freed, nothing is counted any more, and no section is open.
#[track_caller]
fn assert_at_rest(domain: &Domain) {
    assert!(domain.poll(domain.start_poll()), "a section is left open");
    domain.kvfree_barrier();
    assert_counts!(domain, bytes_pending: 0, objects_pending: 0);
}

/// What the values' own boxes weigh is less than this in all.
const BOXES: usize = 10_000;

#[track_caller]
fn assert_about(bytes: usize, expected: usize) {
    assert!(
        (expected..expected + BOXES).contains(&bytes),
        "{bytes} bytes, expected {expected}"
    );
}

#[test]
fn each_way_out_of_a_cell_is_weighed_once() {
    const WEIGHT: usize = 1 << 20;
    let domain = Domain::new();
    let scales = Scales::default();
    let guard = domain.read_lock();
    let cell = cell_in(&domain, scales.value(WEIGHT));
    assert_eq!(
        (scales.asked(), pending(&domain)),
        (0, 0),
        "not when stored"
    );
    cell.store(scales.value(WEIGHT));
    assert_about(pending(&domain), WEIGHT);
    drop(cell.swap(scales.value(WEIGHT)));
    drop(cell.update(|_| scales.value(WEIGHT)));
    drop(cell.try_update(|_| Ok::<_, ()>(scales.value(WEIGHT))));
    assert!(cell.try_update(|_| Err(())).is_err());
    let current = cell.load(&guard);
    drop(cell.compare_exchange(current, Box::new(scales.value(WEIGHT)), &guard));
    let lost = cell.compare_exchange(current, Box::new(scales.value(WEIGHT)), &guard);
    drop(lost.err().expect("it holds another value"));
    assert_eq!(scales.asked(), 5);
    assert_about(pending(&domain), 5 * WEIGHT);
    drop(cell);
    let option = RcuOption::new_in(&domain, scales.value(WEIGHT)).weighing(weigh);
    drop(option.take());
    option.modify(|value| *value = None);
    option.update(|_| Some(scales.value(WEIGHT)));
    drop(option);
    assert_eq!(scales.asked(), 8);
    assert_about(pending(&domain), 8 * WEIGHT);
    drop(guard);
    assert_at_rest(&domain);
    assert!(scales.tally.all_dropped());
}

impl Clone for Weighed {
    fn clone(&self) -> Self {
        unreachable!("an empty cell is modified")
    }
}

#[test]
fn what_is_given_back_is_not_weighed() {
    let domain = Domain::new();
    let scales = Scales::default();
    let cell = cell_in(&domain, scales.value(1));
    drop(cell.swap(scales.value(2)).wait());
    let mut retired = cell.swap(scales.value(3));
    let _ = retired.cookie();
    domain.synchronize();
    let back = retired.try_into_box().ok();
    drop(back.expect("a grace period has ended"));
    let mut cell = cell;
    cell.get_mut().bytes = 4;
    drop(cell.into_inner());
    assert_eq!((scales.asked(), domain.statistics().objects_freed), (0, 0));
    assert!(scales.tally.all_dropped());
}

#[test]
fn weights_are_of_the_cells_own_domain() {
    let (one, other) = (Domain::new(), Domain::new());
    let scales = Scales::default();
    let of_one = cell_in(&one, scales.value(1 << 20));
    let of_other = cell_in(&other, scales.value(3 << 20));
    let guards = (one.read_lock(), other.read_lock());
    of_one.store(scales.value(0));
    of_other.store(scales.value(0));
    assert_about(pending(&one), 1 << 20);
    assert_about(pending(&other), 3 << 20);
    drop(guards);
    assert_at_rest(&one);
    assert_at_rest(&other);
}

#[test]
fn a_static_is_weighed_but_for_its_first_value() {
    fn weigh(bytes: &usize) -> usize {
        assert_ne!(*bytes, 1 << 20, "the first value is never freed");
        *bytes
    }
    static FULL: Rcu<usize> = Rcu::from_static(&(1 << 20)).weighing(weigh);
    static EMPTY: RcuOption<Vec<u8>> = RcuOption::empty().weighing(Weigh::heap_bytes);
    let guard = read_lock();
    FULL.store(2 << 20);
    assert_about(pending(global()), 0);
    FULL.store(0);
    assert_about(pending(global()), 2 << 20);
    EMPTY.store(vec![0; 1 << 20]);
    drop(EMPTY.take());
    assert_about(pending(global()), 3 << 20);
    let weighed = Rcu::weighed(vec![0_u8; 1 << 20]);
    let weighing = RcuOption::new([0_u8; 8]).weighing(|_| 1 << 20);
    drop((weighed, weighing));
    assert_about(pending(global()), 5 << 20);
    drop(guard);
    assert_at_rest(global());
    assert_eq!(global().statistics().panics, 0);
}

#[test]
fn a_weigher_that_panics_costs_a_count_and_nothing_else() {
    let (domain, tally) = (Domain::new(), Tally::new());
    let cell = Rcu::new_in(&domain, tally.value(0)).weighing(|_| panic!("in a weigher"));
    quietly(|| {
        cell.store(tally.value(1));
        drop(cell.update(|_| tally.value(2)));
        // Within a section, and in a destructor that runs because of another panic.
        domain.read(|_| cell.store(tally.value(3)));
        assert_eq!(
            panic_message(|| {
                let _old = cell.swap(tally.value(4));
                panic!("another")
            }),
            "another"
        );
        drop(cell);
    });
    assert_at_rest(&domain);
    assert_eq!(domain.statistics().panics, 5);
    assert_eq!((tally.made(), tally.dropped()), (5, 5));
}

#[test]
fn a_weigher_that_lies_does_not_harm_the_counts() {
    const MOST: usize = 1 << 39;
    let domain = Domain::new();
    let scales = Scales::default();
    let cell = cell_in(&domain, scales.value(usize::MAX));
    let guard = domain.read_lock();
    for bytes in [usize::MAX, usize::MAX - 1, 1 << 40, 0] {
        cell.store(scales.value(bytes));
    }
    assert_about(pending(&domain), 4 * MOST);
    drop(guard);
    assert_at_rest(&domain);

    // Another answer each time, some of which fill a page, and all of it in few sections.
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let tally = Tally::new();
    let cell = Rcu::new_in(&domain, tally.value(0)).weighing(|_| {
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        [0, 100_000, 1, usize::MAX, 300, 70_000, 1 << 20][number % 7]
    });
    for section in 0..20 {
        domain.read(|_| (0..70).for_each(|number| cell.store(tally.value(section + number))));
        domain.set_budget((section as usize % 3) << 20);
    }
    drop(cell);
    assert_at_rest(&domain);
    assert!(tally.all_dropped() && scales.asked() == 4);
    assert_eq!(NUMBER.load(Ordering::Relaxed), 1401);
}

/// The service thread copies what an idle thread has left in its open page, which keeps its weight.
#[test]
fn weights_survive_the_hand_over_to_the_service_thread() {
    const WEIGHT: usize = 5_000;
    let domain = Domain::new();
    let reader = Reader::enter(&domain);
    let scales = Scales::default();
    let cell = cell_in(&domain, scales.value(WEIGHT));
    for taken_over in 1..=5 {
        cell.store(scales.value(WEIGHT));
        let before = pending(&domain);
        assert_about(before, taken_over * WEIGHT);
        // One page more: that of the copy.
        let pages = domain.statistics().pages;
        if !cfg!(miri) {
            eventually(|| domain.statistics().pages > pages);
        }
        eventually(|| pending(&domain) == before);
    }
    reader.leave();
    domain.kvfree_barrier();
    assert_at_rest(&domain);
}

#[test]
fn a_weigher_may_use_the_library() {
    struct Value(Arc<Shared>);
    struct Shared {
        domains: [Domain; 2],
        cells: [RcuOption<Value>; 2],
        asked: AtomicUsize,
    }
    fn weigh(value: &Value) -> usize {
        let shared = &value.0;
        shared.asked.fetch_add(1, Ordering::Relaxed);
        for (cell, domain) in shared.cells.iter().zip(&shared.domains) {
            // Its own cell, and another that does the same: what they held is not weighed.
            cell.store(Value(Arc::clone(shared)));
            assert!(cell.read(|value| value.is_some()));
            domain.synchronize();
            domain.kvfree_barrier();
        }
        1
    }
    let domains = [Domain::new(), Domain::new()];
    let shared = Arc::new(Shared {
        cells: domains
            .each_ref()
            .map(|domain| RcuOption::empty_in(domain).weighing(weigh)),
        domains,
        asked: AtomicUsize::new(0),
    });
    let theirs = Arc::clone(&shared);
    returns(move || {
        theirs.cells[0].store(Value(Arc::clone(&theirs)));
        theirs.cells[0].store(Value(Arc::clone(&theirs)));
        assert_eq!(theirs.asked.load(Ordering::Relaxed), 1, "not within itself");
        for cell in &theirs.cells {
            drop(cell.take());
        }
        assert_eq!(theirs.asked.load(Ordering::Relaxed), 3);
        // The first left one in the second; and the second in the first.
        let rest = theirs.cells.each_ref().map(RcuOption::take);
        drop(rest.map(|rest| rest.map(stillpoint::Retired::wait)));
    });
    for domain in &shared.domains {
        assert_at_rest(domain);
        assert_eq!(domain.statistics().panics, 0);
    }
    assert_eq!(Arc::strong_count(&shared), 1);
}

#[test]
fn a_report_says_how_memory_grew() {
    const WEIGHT: usize = 2 << 20;
    let grown = || {
        let domain = Domain::new();
        let stalls = Stalls::of(&domain);
        let reader = Reader::enter(&domain);
        let scales = Scales::default();
        let cell = cell_in(&domain, scales.value(WEIGHT));
        cell.store(scales.value(WEIGHT));
        // The service thread finds it held up meanwhile, unless the machine is busy.
        thread::sleep(Duration::from_millis(20));
        cell.store(scales.value(WEIGHT));
        let report = stalls.next();
        let text = report.to_string();
        reader.leave();
        drop(cell);
        assert_at_rest(&domain);
        let (pending, grown) = (report.bytes_pending as usize, report.bytes_grown as usize);
        let is_told = text.contains("; unreclaimed: 4.0 MiB (2.0 MiB more since the stall began)");
        (WEIGHT..WEIGHT + BOXES).contains(&grown)
            && (2 * WEIGHT..2 * WEIGHT + BOXES).contains(&pending)
            && is_told
    };
    assert!((0..20).any(|_| grown()));
}

/// Such an object may own any amount of memory: if its weight is not known, few of them wait, and what
/// they own is bounded with their number.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn objects_with_a_destructor_that_are_not_weighed_count_for_a_kibibyte() {
    const BUDGET: usize = 1 << 20;
    /// Objects in two pages that are open, or were not full when the budget was used up.
    const OPEN: usize = 2 * 253;
    type Retire = fn(&Domain, &Rcu<Vec<u64>>);
    let ways: [Retire; 3] = [
        |domain, _| retire(domain, vec![1]),
        |domain, _| retire_inline(domain, vec![1]),
        |_, cell| cell.store(vec![1]),
    ];
    for retire in ways {
        let domain = Domain::new();
        domain.set_budget(BUDGET);
        domain.set_stall_timeout(Duration::MAX);
        let cell = Rcu::new_in(&domain, Vec::new());
        let reader = Reader::enter(&domain);
        while domain.statistics().waits == 0 {
            retire(&domain, &cell);
        }
        let pending = domain.statistics().objects_pending as usize;
        assert!(pending <= BUDGET / 1024 + OPEN, "{pending} objects wait");
        reader.leave();
        assert_at_rest(&domain);
    }
}

/// If the caller says what an object owns, it counts for exactly that.
#[test]
fn a_small_weight_counts_as_it_is() {
    let domain = Domain::new();
    let reader = Reader::enter(&domain);
    let cell = Rcu::new_in(&domain, Vec::<u64>::new()).weighing(Weigh::heap_bytes);
    cell.store(Vec::new());
    // SAFETY: no other thread has ever known the object.
    unsafe { domain.retire_weighed(leak(Vec::<u64>::new()), 0) };
    assert_eq!(pending(&domain), 64, "two blocks of 24 bytes");
    reader.leave();
    assert_at_rest(&domain);
}
