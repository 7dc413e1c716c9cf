//! LRU lists: tenants come and go, items are added, walked and taken off, arrays grow, and all the
//! while lists are counted without locks.
//!
//! Three things must hold: a tenant whose items are never removed has the same number at any
//! moment, whatever grows around it; what is added is taken off once, wherever it has been moved
//! meanwhile; and every item is dropped once. Beside the lists the array that they are found
//! through is tortured by itself, with a pause between the look at it and the look into it; that is
//! where busted-lru counts outside of a section.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use stillpoint::{global, lab::core_of};
use stillpoint_lru::{Entry, Hierarchy, Isolate, ListLru, Node, Tenant, lab::GrowingArray};

use crate::torture::harness::{Harness, ThreadSpec};
use crate::torture::runner;
use crate::torture::session::{Session, ThreadCtx};
use crate::torture::tally::{Fault, add};

/// Items of the tenant whose items are never removed.
const ANCHORED: usize = 100;

/// Nothing left out.
pub fn run(session: &Arc<Session>) {
    let lists = Lists::new(session);
    let arrays = Arrays::<true>::new();
    let visit = |ctx: &mut ThreadCtx| {
        lists.count(ctx);
        let array = arrays.present();
        arrays.count_in_section(&array, ctx);
    };
    let count = |number| {
        let (lists, arrays) = (&lists, &arrays);
        let body = move || {
            let mut ctx = session.thread_ctx("reader", number);
            while !session.is_over() {
                session.wait_while_paused(|| ());
                let array = arrays.present();
                for _ in 0..64 {
                    lists.count(&mut ctx);
                    arrays.count_in_section(&array, &mut ctx);
                }
            }
        };
        ThreadSpec::new(format!("reader {number}"), body).with_signals()
    };
    let mutate = |number| {
        let lists = &lists;
        ThreadSpec::new(format!("writer {number}"), move || {
            lists.mutate(session, number)
        })
        .with_signals()
    };
    let mut threads: Vec<ThreadSpec> = (0..session.plan.readers)
        .map(count)
        .chain((0..session.plan.writers).map(mutate))
        .collect();
    for number in 0..session.plan.fakewriters {
        let (lists, arrays) = (&lists, &arrays);
        threads.push(ThreadSpec::new(format!("fakewriter {number}"), move || {
            let (mut ctx, who) = (
                session.thread_ctx("fakewriter", number),
                session.plan.writers + number,
            );
            while !session.is_over() {
                session.beat(who);
                session.wait_while_paused(|| session.beat(who));
                arrays.grow(session, &mut ctx);
                lists.walk(&mut ctx);
            }
        }));
    }
    let visit_in_handler = || lists.count_in_handler();
    let harness = Harness {
        domain: core_of(global()),
        visit: &visit,
        visit_in_handler: Some(&visit_in_handler),
        in_child: &|| (),
    };
    runner::run(session, &harness, threads);
    lists.check_callbacks(session);
}

/// Counts outside of sections.
pub fn busted(session: &Arc<Session>) {
    // They stay where they are when they have been replaced, so that to count outside of a section
    // is a finding and no more.
    let arrays = Arrays::<false>::new();
    let arrays = &arrays;
    let count = |number| {
        ThreadSpec::new(format!("reader {number}"), move || {
            let mut ctx = session.thread_ctx("reader", number);
            while !session.is_over() {
                let array = arrays.present();
                for _ in 0..64 {
                    let index = ctx.random.usize(0..FIRST);
                    // SAFETY: these arrays stay where they are.
                    let found = unsafe { array.count_outside(index, || ctx.spin(400)) };
                    check(&mut ctx, index, found);
                }
            }
        })
    };
    let grow = |number| {
        ThreadSpec::new(format!("writer {number}"), move || {
            let mut ctx = session.thread_ctx("writer", number);
            while !session.is_over() {
                session.beat(number);
                arrays.grow(session, &mut ctx);
            }
        })
    };
    let threads = (0..session.plan.readers)
        .map(count)
        .chain((0..session.plan.writers).map(grow))
        .collect();
    let visit = |ctx: &mut ThreadCtx| global().read(|_| ctx.delay());
    runner::run(
        session,
        &Harness {
            domain: core_of(global()),
            visit: &visit,
            visit_in_handler: None,
            in_child: &|| (),
        },
        threads,
    );
}

/// Slots of an array when it is new, and when it is replaced by a new one.
const FIRST: usize = 8;
const LAST: usize = 2048;

/// An array that grows, and then another.
struct Arrays<const FREES: bool> {
    present: Mutex<(Arc<GrowingArray<FREES>>, usize)>,
}

impl<const FREES: bool> Arrays<FREES> {
    fn new() -> Self {
        Self {
            present: Mutex::new((Arc::new(GrowingArray::new(FIRST)), FIRST)),
        }
    }

    fn present(&self) -> Arc<GrowingArray<FREES>> {
        Arc::clone(&self.present.lock().0)
    }

    fn count_in_section(&self, array: &GrowingArray<FREES>, ctx: &mut ThreadCtx) {
        let index = ctx.random.usize(0..FIRST);
        let guard = global().read_lock();
        let found = array.count(index, &guard, || ctx.delay());
        drop(guard);
        check(ctx, index, found);
    }

    fn grow(&self, session: &Session, ctx: &mut ThreadCtx) {
        let mut present = self.present.lock();
        present.1 += 1 + present.1 / 4;
        if present.1 > LAST {
            *present = (Arc::new(GrowingArray::new(FIRST)), FIRST);
        } else {
            present.0.grow(present.1);
            add(&session.tally.published, 1);
        }
        drop(present);
        ctx.spin(2000);
    }
}

fn check(ctx: &mut ThreadCtx, index: usize, found: Option<usize>) {
    if found != Some(index) {
        ctx.session.tally.fault(Fault::Count, || {
            format!("in an array that grew, count number {index} was found to be {found:?}")
        });
    }
    ctx.count(0, 0);
}

/// Something on a list; its end is counted.
struct Item(Arc<AtomicU64>);

impl Drop for Item {
    fn drop(&mut self) {
        add(&self.0, 1);
    }
}

/// Lists of tenants that come and go around one that stays.
struct Lists<'s> {
    session: &'s Session,
    hierarchy: Hierarchy,
    lru: ListLru<Item>,
    anchor: Tenant,
    made: Arc<AtomicU64>,
    dropped: Arc<AtomicU64>,
}

impl<'s> Lists<'s> {
    fn new(session: &'s Session) -> Self {
        let hierarchy = Hierarchy::new();
        let lru = ListLru::for_tenants(&hierarchy);
        let anchor = hierarchy
            .root()
            .create()
            .expect("there is memory for a tenant");
        let lists = Self {
            session,
            hierarchy,
            lru,
            anchor,
            made: Arc::default(),
            dropped: Arc::default(),
        };
        for _ in 0..ANCHORED {
            lists.lru.add(&lists.anchor, lists.item());
        }
        lists
    }

    fn item(&self) -> Arc<Entry<Item>> {
        add(&self.made, 1);
        Arc::new(Entry::new(Item(Arc::clone(&self.dropped))))
    }

    /// The tenant that stays has what it has.
    fn count(&self, ctx: &mut ThreadCtx) {
        let count = |node: Node| {
            if ctx.random.bool() {
                self.lru.count_one(&self.anchor, node)
            } else {
                let guard = global().read_lock();
                let count = self.lru.count_one_in(&self.anchor, node, &guard);
                ctx.delay();
                count
            }
        };
        let found: usize = Node::all().map(count).sum();
        if found != ANCHORED {
            self.session.tally.fault(Fault::Count, || {
                format!("an unchanged list of {ANCHORED} items had {found}")
            });
        }
        ctx.count(0, 0);
    }

    /// The same in a signal handler.
    fn count_in_handler(&self) {
        let found: usize = Node::all()
            .map(|node| self.lru.count_one(&self.anchor, node))
            .sum();
        if found != ANCHORED {
            self.session.tally.fault_in_handler(Fault::Count);
        }
        self.session.tally.section_in_handler(0, 0);
    }

    /// A tenant comes, gets items, some under a child of its own, loses some, and goes; its items,
    /// wherever they are now, come off once.
    fn mutate(&self, session: &Session, number: usize) {
        let mut ctx = session.thread_ctx("writer", number);
        while !session.is_over() {
            session.beat(number);
            session.wait_while_paused(|| session.beat(number));
            let (Ok(tenant), mut items) = (self.hierarchy.root().create(), Vec::new()) else {
                continue;
            };
            let child = tenant.create().ok();
            for _ in 0..ctx.random.usize(1..200) {
                let item = self.item();
                let of = child
                    .as_ref()
                    .filter(|_| ctx.random.bool())
                    .unwrap_or(&tenant);
                if !self.lru.add(of, Arc::clone(&item)) {
                    session.tally.fault(Fault::Twice, || {
                        "a new item was on a list already".to_owned()
                    });
                }
                items.push(item);
            }
            add(&session.tally.retired, items.len() as u64);
            ctx.random.shuffle(&mut items);
            let early = ctx.random.usize(0..items.len());
            self.take_off(items.drain(..early));
            for gone in child.iter().chain([&tenant]) {
                if let Err(error) = gone.delete() {
                    session.tally.fault(Fault::Count, || {
                        format!("a tenant could not be deleted: {error}")
                    });
                }
            }
            self.take_off(items.drain(..));
        }
    }

    fn take_off(&self, items: impl Iterator<Item = Arc<Entry<Item>>>) {
        for item in items {
            let first = self.lru.del(&item).is_some();
            let second = self.lru.del(&item).is_some();
            if (first, second) != (true, false) {
                let fault = if second { Fault::Twice } else { Fault::Lost };
                self.session.tally.fault(fault, || {
                    format!("an item came off a list: {first}, and again: {second}")
                });
            }
            add(&self.session.tally.freed, 1);
        }
    }

    /// Looks at items, moves some to the end; takes none.
    fn walk(&self, ctx: &mut ThreadCtx) {
        let budget = ctx.random.usize(1..200);
        let taken = self.lru.walk(budget, |_| {
            if ctx.random.bool() {
                Isolate::Rotate
            } else {
                Isolate::Skip
            }
        });
        if taken != 0 {
            self.session.tally.fault(Fault::Count, || {
                format!("a walk that takes nothing took {taken} items")
            });
        }
    }

    /// All that was made is dropped once the lists are.
    fn check_callbacks(self, session: &Session) {
        let Self {
            lru,
            made,
            dropped,
            hierarchy,
            anchor,
            ..
        } = self;
        let left = lru.count();
        if left != ANCHORED {
            session.tally.fault(Fault::Count, || {
                format!("{left} items were left instead of {ANCHORED}")
            });
        }
        drop((lru, anchor, hierarchy));
        global().barrier();
        let (made, dropped) = (
            made.load(Ordering::Relaxed),
            dropped.load(Ordering::Relaxed),
        );
        if made != dropped {
            let fault = if made > dropped {
                Fault::Lost
            } else {
                Fault::Twice
            };
            session
                .tally
                .fault(fault, || format!("of {made} items {dropped} were dropped"));
        }
    }
}
