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
use stillpoint::global;
use stillpoint_lru::{Entry, Hierarchy, Isolate, ListLru, Node, Tenant, lab::GrowingArray};

use super::subject::{self, Subject};
use crate::torture::session::{Session, ThreadCtx};
use crate::torture::tally::{Fault, add};

/// Items of the tenant whose items are never removed.
const ANCHORED: usize = 100;

/// Looks of a reader's round at the same array.
const LOOKS: usize = 64;

/// Nothing left out.
pub fn run(session: &Arc<Session>) {
    let test = Test {
        lists: Lists::new(session),
        arrays: Arrays::new(),
    };
    subject::torture(session, global(), &test);
    test.lists.check_callbacks(session);
}

struct Test<'s> {
    lists: Lists<'s>,
    arrays: Arrays<true>,
}

impl Test<'_> {
    fn count(&self, array: &GrowingArray<true>, ctx: &mut ThreadCtx) {
        self.lists.count(ctx);
        let index = ctx.random.usize(0..FIRST);
        let guard = global().read_lock();
        let found = array.count(index, &guard, || ctx.delay());
        drop(guard);
        check(ctx, index, found);
    }
}

impl Subject for Test<'_> {
    fn look(&self, ctx: &mut ThreadCtx) {
        self.count(&self.arrays.present(), ctx);
    }

    fn read(&self, ctx: &mut ThreadCtx) {
        let array = self.arrays.present();
        (0..LOOKS).for_each(|_| self.count(&array, ctx));
    }

    const HANDLERS: bool = true;

    fn look_in_handler(&self, _number: usize) -> Option<Fault> {
        self.lists.count_in_handler()
    }

    fn write(&self, ctx: &mut ThreadCtx, _writer: usize) {
        self.lists.mutate(ctx);
    }

    fn walk(&self, ctx: &mut ThreadCtx) {
        for _ in 0..16 {
            self.arrays.grow(ctx);
            self.lists.walk(ctx);
        }
    }
}

/// Counts outside of sections.
pub fn busted(session: &Arc<Session>) {
    subject::torture(session, global(), &Arrays::<false>::new());
}

// These arrays stay where they are when they have been replaced, so that to count outside of a
// section is a finding and no more.
impl Subject for Arrays<false> {
    fn look(&self, ctx: &mut ThreadCtx) {
        let array = self.present();
        for _ in 0..LOOKS {
            let index = ctx.random.usize(0..FIRST);
            // SAFETY: these arrays stay where they are.
            let found = unsafe { array.count_outside(index, || ctx.spin(400)) };
            check(ctx, index, found);
        }
    }

    fn write(&self, ctx: &mut ThreadCtx, _writer: usize) {
        self.grow(ctx);
    }
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

    fn grow(&self, ctx: &mut ThreadCtx) {
        let mut present = self.present.lock();
        present.1 += 1 + present.1 / 4;
        if present.1 > LAST {
            *present = (Arc::new(GrowingArray::new(FIRST)), FIRST);
        } else {
            present.0.grow(present.1);
            add(&ctx.session.tally.published, 1);
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
    ctx.count();
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
        ctx.count();
    }

    /// The same in a signal handler.
    fn count_in_handler(&self) -> Option<Fault> {
        let count = |node| self.lru.count_one(&self.anchor, node);
        let found: usize = Node::all().map(count).sum();
        (found != ANCHORED).then_some(Fault::Count)
    }

    /// A tenant comes, gets items, some under a child, loses some, and goes; its items,
    /// wherever they are now, come off once.
    fn mutate(&self, ctx: &mut ThreadCtx) {
        let tally = &ctx.session.tally;
        let Ok(tenant) = self.hierarchy.root().create() else {
            return;
        };
        let child = tenant.create().ok();
        let mut items = Vec::new();
        for _ in 0..ctx.random.usize(1..200) {
            let item = self.item();
            let of = child
                .as_ref()
                .filter(|_| ctx.random.bool())
                .unwrap_or(&tenant);
            if !self.lru.add(of, Arc::clone(&item)) {
                tally.fault(Fault::Twice, || {
                    "a new item was on a list already".to_owned()
                });
            }
            items.push(item);
        }
        add(&tally.retired, items.len() as u64);
        ctx.random.shuffle(&mut items);
        let early = ctx.random.usize(0..items.len());
        self.take_off(items.drain(..early));
        for gone in child.iter().chain([&tenant]) {
            if let Err(error) = gone.delete() {
                tally.fault(Fault::Count, || {
                    format!("a tenant could not be deleted: {error}")
                });
            }
        }
        self.take_off(items.drain(..));
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
        let [made, dropped] = [made, dropped].map(|all| all.load(Ordering::Relaxed));
        let what = || format!("of {made} items {dropped} were dropped");
        session.tally.compare(made, dropped, what);
    }
}
