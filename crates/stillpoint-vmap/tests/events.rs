//! The events and spans of `tracing` of tenants, shrinkers and areas. The program `events` of
//! stillpoint has what a subscriber may do in those of domains.
#![cfg(all(feature = "tracing", target_os = "linux", not(miri)))]

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    sync::{
        Arc, Once,
        atomic::{AtomicUsize, Ordering},
    },
};
use stillpoint_lru::{Hierarchy, Registration, Scope, Shrink};
use stillpoint_platform::trace::tracing::{
    Event, Metadata, Subscriber,
    field::{Field, Visit},
    span, subscriber,
};
use stillpoint_vmap::Arena;

/// An event, or the beginning of a span: its name and its numbers.
#[derive(Debug, Clone, Default)]
struct Seen {
    name: String,
    values: HashMap<&'static str, u64>,
}

impl Visit for Seen {
    fn record_u64(&mut self, field: &Field, value: u64) {
        self.values.insert(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.name = format!("{value:?}");
        }
    }
}

thread_local! {
    /// What has come on this thread.
    static SEEN: RefCell<Vec<Seen>> = const { RefCell::new(Vec::new()) };
    /// In how many spans the thread is.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    /// Ended when a shrinker's span begins.
    static ENDS: RefCell<Option<Registration>> = const { RefCell::new(None) };
}

struct Listens;

impl Subscriber for Listens {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn new_span(&self, span: &span::Attributes<'_>) -> span::Id {
        let mut seen = Seen::default();
        span.record(&mut seen);
        seen.name = format!("span {}", span.metadata().name());
        if seen.name == "span mm_shrink_slab" {
            drop(ENDS.take());
        }
        SEEN.with_borrow_mut(|all| all.push(seen));
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut seen = Seen::default();
        event.record(&mut seen);
        SEEN.with_borrow_mut(|all| all.push(seen));
    }

    fn enter(&self, _: &span::Id) {
        DEPTH.set(DEPTH.get() + 1);
    }

    fn exit(&self, _: &span::Id) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// What comes on this thread while `work` is done.
fn seen(work: impl FnOnce()) -> Vec<Seen> {
    static SET: Once = Once::new();
    SET.call_once(|| subscriber::set_global_default(Listens).expect("no other"));
    SEEN.take();
    work();
    assert_eq!(DEPTH.get(), 0, "no span is left open");
    SEEN.take()
}

fn named<'a>(all: &'a [Seen], name: &str) -> Vec<&'a HashMap<&'static str, u64>> {
    let named = all.iter().filter(|seen| seen.name == name);
    named.map(|seen| &seen.values).collect()
}

/// So many that a pass asks for some at once.
const OBJECTS: usize = 1 << 20;

/// Frees what it is asked for, inside of how many spans.
#[derive(Default)]
struct Frees {
    scans: AtomicUsize,
    depth: AtomicUsize,
}

impl Shrink for Frees {
    fn count(&self, _: &Scope<'_>) -> usize {
        OBJECTS
    }

    fn scan(&self, _: &Scope<'_>, objects: usize) -> Option<usize> {
        self.scans.fetch_add(1, Ordering::SeqCst);
        self.depth.store(DEPTH.get(), Ordering::SeqCst);
        Some(objects)
    }
}

#[test]
fn a_pass_has_its_events_and_spans() {
    let (hierarchy, frees) = (Hierarchy::new(), Arc::new(Frees::default()));
    let _registration = hierarchy.register(Arc::clone(&frees)).expect("memory");
    let tenant = hierarchy.root().create().expect("memory");
    let mut charge = None;
    let all = seen(|| charge = Some(tenant.charge(1 << 20).expect("no limit")));
    let [charged] = named(&all, "memcg_charge")[..] else {
        panic!("{all:?}")
    };
    assert_eq!(charged["bytes"], 1 << 20);
    assert!(charged["usage"] >= 1 << 20);

    let all = seen(|| _ = hierarchy.reclaim());
    let [pass] = named(&all, "span mm_vmscan_memcg_reclaim")[..] else {
        panic!("{all:?}")
    };
    let (begins, ends) = (
        named(&all, "mm_vmscan_memcg_reclaim_begin"),
        named(&all, "mm_vmscan_memcg_reclaim_end"),
    );
    assert_eq!((begins.len(), ends.len()), (1, 1));
    assert_eq!(begins[0]["tenant"], pass["tenant"]);
    let starts = named(&all, "mm_shrink_slab_start");
    let shrinks = named(&all, "mm_shrink_slab_end");
    let spans = named(&all, "span mm_shrink_slab");
    assert!(!starts.is_empty());
    assert_eq!((starts.len(), spans.len()), (shrinks.len(), shrinks.len()));
    assert!(
        starts
            .iter()
            .all(|start| start["freeable"] == OBJECTS as u64)
    );
    assert!(spans.iter().any(|span| span["tenant"] == charged["tenant"]));
    let freed: u64 = shrinks.iter().map(|shrink| shrink["freed"]).sum();
    assert_eq!(freed, ends[0]["freed"]);
    assert_eq!(
        frees.depth.load(Ordering::SeqCst),
        2,
        "the pass, and its own"
    );
}

/// As by one that is called itself.
#[test]
fn a_shrinker_whose_registration_a_subscriber_ends_is_not_called() {
    let (hierarchy, frees) = (Hierarchy::new(), Arc::new(Frees::default()));
    let registration = hierarchy.register(Arc::clone(&frees)).expect("memory");
    let all = seen(|| {
        ENDS.set(Some(registration));
        let _ = hierarchy.reclaim();
    });
    assert_eq!(named(&all, "span mm_shrink_slab").len(), 1);
    assert_eq!(frees.scans.load(Ordering::SeqCst), 0);
}

#[test]
fn areas_have_their_events() {
    let arena = Arena::new().expect("an arena");
    let mut area = None;
    let all = seen(|| area = Some(arena.alloc(5 << 12, 1).expect("memory")));
    let [allocated] = named(&all, "alloc_vmap_area")[..] else {
        panic!("{all:?}")
    };
    assert_eq!(allocated["bytes"], 5 << 12);
    let all = seen(|| drop(area));
    let [freed] = named(&all, "free_vmap_area_noflush")[..] else {
        panic!("{all:?}")
    };
    assert_eq!(
        (freed["arena"], freed["addr"], freed["bytes"]),
        (allocated["arena"], allocated["addr"], 5 << 12)
    );
    assert!(freed["lazy_bytes"] >= 5 << 12);
    let all = seen(|| arena.drain().expect("no section"));
    let [purged] = named(&all, "purge_vmap_area_lazy")[..] else {
        panic!("{all:?}")
    };
    assert_eq!((purged["arena"], purged["areas"]), (freed["arena"], 1));
    assert!(purged["bytes"] >= 5 << 12);

    // Also where memory is short, and the program gives back what it can.
    drop(arena.alloc(1 << 12, 1).expect("memory"));
    let all = seen(|| _ = arena.shrink());
    assert_eq!(named(&all, "purge_vmap_area_lazy").len(), 1);
    // Not inside a section, but behind it.
    let guard = arena.read_lock();
    let all = seen(|| drop(arena.alloc(1 << 12, 1).expect("memory")));
    assert!(all.is_empty(), "{all:?}");
    drop(guard);
    let all = seen(|| drop(arena.alloc(1 << 12, 1).expect("memory")));
    assert_eq!(named(&all, "alloc_vmap_area").len(), 2);
}
