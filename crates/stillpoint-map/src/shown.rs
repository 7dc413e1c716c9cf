//! A map with a name, in the statistics page: `docs/design/027-statistics-page.md`.
//!
//! Without a name a map has none of this. With one its [`Count`](crate::count::Count) is in stripes
//! from the beginning, whose threads copy what they count: a look-up writes nothing, and copies
//! nothing. What it knows of its memory it adds where tables and regions come and go.

use crossbeam_utils::CachePadded;
use std::sync::{Arc, Weak};
use stillpoint_platform::{
    barrier::{fence_after_rmw, full_fence},
    cpu,
    fork::{AtForkHandle, ForkReset},
    memory::{is_there_for, try_several},
    stats::{
        self, Published, Subject, Tap,
        layout::{Field, Kind, MOST_OF_A_KIND},
    },
    sync::{AtomicBool, AtomicU64, Ordering},
};

/// More stripes than that take more memory than they save time.
pub const MOST_STRIPES: usize = 64;

/// What a thread, or some of them, has added to the number of entries.
#[derive(Debug, Default)]
pub struct Stripe {
    number: AtomicU64,
    /// The stripe's word in the page, on the same cache line as the number.
    tap: Tap,
}

impl Stripe {
    #[inline]
    pub fn add(&self, difference: u64) {
        self.number.fetch_add(difference, Ordering::Relaxed);
    }

    /// Copies what the caller has added, if the map is in the page. Not inlined: few maps have
    /// names.
    #[cold]
    pub fn copy(&self) {
        // Fence, pairs with that of `Tap::follow` in `publish`: it sees what we have added, or we
        // see the tap open.
        fence_after_rmw();
        self.tap.follow(0, || self.get());
    }

    pub fn get(&self) -> u64 {
        self.number.load(Ordering::Relaxed)
    }
}

pub type Stripes = Box<[CachePadded<Stripe>]>;

/// Stripes for this system's processors. `None` without memory.
pub fn stripes() -> Option<Stripes> {
    let count = cpu::count().next_power_of_two().min(MOST_STRIPES);
    try_several(count, CachePadded::<Stripe>::default)
}

/// What a map has besides entries, in the order of the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// Bytes of the runs of slots that have memory.
    Slabs,
    /// Entries that the table has room for before it grows.
    Capacity,
    /// Bytes of the table, and of the one that it moves to.
    Tables,
    /// 1 while the table moves to another one.
    Moving,
    /// Tables that have been replaced.
    Moves,
}

const FIGURES: usize = Figure::Moves as usize + 1;

/// The word of a figure, behind the stripes and what was counted before there were stripes.
const fn at(figure: Figure) -> usize {
    BEFORE + 1 + figure as usize
}

const BEFORE: usize = MOST_STRIPES;

static HASHED: Kind = Kind {
    name: "map",
    most: MOST_OF_A_KIND,
    fields: &[
        Field::gauge("entries").in_parts(MOST_STRIPES + 1),
        Field::bytes("slab_bytes"),
        Field::gauge("capacity"),
        Field::bytes("table_bytes"),
        Field::gauge("resizing"),
        Field::counter("resizes"),
    ],
};

static ORDERED: Kind = Kind {
    name: "ordered_map",
    most: MOST_OF_A_KIND,
    fields: &[
        Field::gauge("entries").in_parts(MOST_STRIPES + 1),
        Field::bytes("slab_bytes"),
    ],
};

/// What a map with a name shows.
#[derive(Debug)]
pub struct Shown {
    /// First, because fields are dropped in order: no fork finds the others half dropped.
    place: AtForkHandle,
    pub stripes: Stripes,
    /// What was counted before there were these stripes.
    before: u64,
    /// Whether the map would have stripes without a name, too.
    pub is_large: AtomicBool,
    /// Not shown any more, whenever the page is made.
    has_ended: AtomicBool,
    figures: [AtomicU64; FIGURES],
    kind: &'static Kind,
    number: u64,
    name: Box<str>,
    published: Published,
}

impl Shown {
    /// Shows a hashed or an ordered map, which has `entries` now. `None` without memory.
    pub fn new(name: Box<str>, is_ordered: bool, entries: u64) -> Option<Arc<Self>> {
        // Not the platform's: in models it is a step.
        static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
        if !is_there_for(size_of::<Self>() + 2 * size_of::<usize>()) {
            return None;
        }
        let shown = Arc::new(Self {
            place: AtForkHandle::reserve(),
            stripes: stripes()?,
            before: entries,
            is_large: AtomicBool::new(false),
            has_ended: AtomicBool::new(false),
            figures: Default::default(),
            kind: if is_ordered { &ORDERED } else { &HASHED },
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            name,
            published: Published::new(),
        });
        // SAFETY: complete, and in its place for as long as it lives; `place` is the first of its
        // fields to be dropped.
        unsafe { shown.place.occupy(&*shown) };
        let subject: Weak<Self> = Arc::downgrade(&shown);
        stats::add(subject);
        Some(shown)
    }

    /// Adds to a figure. A part is taken away as it wraps.
    #[cold]
    pub fn add(&self, figure: Figure, difference: u64) {
        self.figures[figure as usize].fetch_add(difference, Ordering::Relaxed);
        self.copy(figure as usize);
    }

    /// Overwrites a figure; under a lock.
    #[cold]
    pub fn set(&self, figure: Figure, value: u64) {
        self.figures[figure as usize].store(value, Ordering::Relaxed);
        self.copy(figure as usize);
    }

    fn copy(&self, figure: usize) {
        let at = at(Figure::Slabs) + figure;
        // An ordered map has fewer.
        if at < self.kind.block_words() {
            let figure = || self.figures[figure].load(Ordering::Relaxed);
            self.published.tap().follow(at, figure);
        }
    }

    /// Copies all: what is changed meanwhile is copied by the thread that changes it.
    fn copy_all(&self) {
        self.published.tap().set(BEFORE, self.before);
        (0..FIGURES).for_each(|figure| self.copy(figure));
        for stripe in &self.stripes {
            stripe.tap.follow(0, || stripe.get());
        }
    }

    /// The map has ended, and is not shown any more. What is left of it may still count.
    pub fn end(&self) {
        self.has_ended.store(true, Ordering::Relaxed);
        // Fence, pairs with `publish`: we find the block, or it finds that the map has ended.
        full_fence();
        self.published.end();
    }
}

impl Subject for Shown {
    fn publish(&self) {
        if self.has_ended.load(Ordering::Relaxed) {
            return;
        }
        if self.published.open(self.kind, self.number, &self.name)
            && let Some(words) = self.published.tap().words()
        {
            for (at, stripe) in self.stripes.iter().enumerate() {
                stripe.tap.open(words.part(at, 1));
            }
            self.copy_all();
        }
        // Fence, pairs with `end`: it finds the block, or we find that the map has ended.
        full_fence();
        if self.has_ended.load(Ordering::Relaxed) {
            self.published.end();
        }
    }
}

impl ForkReset for Shown {
    unsafe fn reset_in_child(&self) {
        self.copy_all();
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_number_is_that_of_its_field() {
        let numbers = [
            ("entries", 0),
            ("slab_bytes", at(Figure::Slabs)),
            ("capacity", at(Figure::Capacity)),
            ("table_bytes", at(Figure::Tables)),
            ("resizing", at(Figure::Moving)),
            ("resizes", at(Figure::Moves)),
        ];
        assert_eq!(numbers.len(), HASHED.fields.len());
        for (name, at) in numbers {
            assert_eq!(HASHED.place_of(name), Some(at), "{name}");
        }
        for field in ORDERED.fields {
            assert_eq!(ORDERED.place_of(field.name), HASHED.place_of(field.name));
        }
    }
}
