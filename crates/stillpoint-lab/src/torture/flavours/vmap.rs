//! The address space: writers replace areas, free the old ones, and drain; readers find areas,
//! check and copy.
//!
//! An area's bytes say whose they are: its address, its length, and a number that no other area
//! has, in every word. A section that finds an area must find these, and find them again, until its
//! end, even if another thread frees and purges it meanwhile.

use std::mem;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use parking_lot::Mutex;
use stillpoint::Domain;
use stillpoint_vmap::{Area, Arena, Builder, Checked, lab};

use super::subject::{self, Subject};
use crate::torture::session::{Session, ThreadCtx};
use crate::torture::tally::{Fault, add};

/// Places of each writer.
const PLACES: usize = 64;

/// Words that are compared at an area's beginning, its end, and one place between.
const WORDS: usize = 8;

const PAGE: usize = 4096;

/// Nothing left out.
pub fn run(session: &Arc<Session>) {
    let domain = Domain::starting_at(session.first_cookie());
    let builder = Arena::builder()
        .capacity(1 << 30)
        .lazy_limit(4 << 20)
        .domain(&domain);
    torture(session, builder, |arena, ctx| match ctx.random.u32(0..64) {
        0 => drop(arena.drain()),
        1 => drop(arena.shrink()),
        _ => {}
    });
}

/// Purges without a grace period. Without guard pages, which a reader that should have been waited
/// for would run into.
pub fn busted(session: &Arc<Session>) {
    let domain = Domain::starting_at(session.first_cookie());
    let builder = Arena::builder()
        .capacity(1 << 30)
        .lazy_limit(1 << 30)
        .guards(false)
        .domain(&domain);
    // SAFETY: readers make checked copies alone, and compare what they find.
    torture(session, builder, |arena, _| unsafe {
        lab::drain_without_grace_period(arena)
    });
}

fn torture(session: &Arc<Session>, builder: Builder, drain: fn(&Arena, &mut ThreadCtx)) {
    let test = Test {
        arena: builder.build().expect("there is room for an arena"),
        places: (0..PLACES * session.plan.writers)
            .map(|_| CachePadded::default())
            .collect(),
        areas: (0..PLACES * session.plan.writers)
            .map(|_| Mutex::default())
            .collect(),
        drain,
    };
    subject::torture(session, test.arena.domain(), &test);
    test.end(session);
}

struct Test {
    arena: Arena,
    /// Where areas are published: their addresses, 0 for none. Each writer has [`PLACES`].
    places: Box<[CachePadded<AtomicUsize>]>,
    /// The areas that are published there. Only the writer of a place locks it.
    areas: Box<[Mutex<Option<Area>>]>,
    /// What a writer does after each change, so that memory is purged.
    drain: fn(&Arena, &mut ThreadCtx),
}

impl Test {
    /// Frees all areas, after which the arena has none.
    fn end(&self, session: &Session) {
        let (arena, tally) = (&self.arena, &session.tally);
        let mut ctx = session.thread_ctx("writer", 0);
        for (place, area) in self.places.iter().zip(&self.areas) {
            place.store(0, Ordering::Release);
            free(area.lock().take(), &mut ctx);
        }
        arena.domain().kvfree_barrier();
        let left = arena.areas(&arena.read_lock()).count();
        if left > 0 {
            tally.fault(Fault::Lost, || {
                format!("{left} areas are there after the last was freed")
            });
        }
        if let Err(error) = arena.drain() {
            tally.fault(Fault::Content, || format!("the last drain failed: {error}"));
        }
        let (statistics, retired) = (arena.statistics(), tally.retired.load(Ordering::Relaxed));
        let (freed, waiting) = (
            statistics.allocated - statistics.areas,
            statistics.lazy_bytes,
        );
        add(&tally.freed, freed);
        if (retired, 0) != (freed, waiting) && !tally.is_faulty() {
            tally.fault(Fault::Lost, || {
                format!("of {retired} areas the arena has freed {freed}, and after the last drain {waiting} bytes wait")
            });
        }
    }
}

impl Subject for Test {
    /// One section: finds what is at a place, and looks at it more than once.
    fn look(&self, ctx: &mut ThreadCtx) {
        let place = &self.places[ctx.random.usize(0..self.places.len())];
        let guard = self.arena.read_lock();
        // From here on, an area found at this address was published before the section looked;
        // otherwise its address could not be in use before the section ends.
        let addr = place.load(Ordering::Acquire);
        let found = if addr == 0 {
            None
        } else {
            self.arena.find(addr, &guard)
        };
        if let Some(found) = found {
            if found.addr() != addr {
                ctx.session.tally.fault(Fault::Content, || {
                    format!("{addr:#x} was found inside an area at {:#x}", found.addr())
                });
            }
            let mut number = None;
            for _ in 0..ctx.random.u32(3..6) {
                match compare(&found, number) {
                    Ok(theirs) => number = Some(theirs),
                    Err(mismatch) => ctx
                        .session
                        .tally
                        .fault(Fault::Content, || format!("{mismatch:?}")),
                }
                ctx.delay();
            }
        }
        drop(guard);
        ctx.count();
    }

    const HANDLERS: bool = true;

    fn look_in_handler(&self, number: usize) -> Option<Fault> {
        let guard = self.arena.read_lock();
        let addr = self.places[number % self.places.len()].load(Ordering::Acquire);
        let found = self.arena.find(addr, &guard)?;
        let twice = compare(&found, None).and_then(|number| compare(&found, Some(number)));
        twice.is_err().then_some(Fault::Content)
    }

    /// Replaces an area by a new one.
    fn write(&self, ctx: &mut ThreadCtx, writer: usize) {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let tally = &ctx.session.tally;
        let at = writer * PLACES + ctx.random.usize(0..PLACES);
        let pages = if ctx.one_in(64) {
            ctx.random.usize(1..600)
        } else {
            ctx.random.usize(1..9)
        };
        let area = self.arena.alloc(pages * PAGE, PAGE).ok();
        match &area {
            Some(area) => {
                stamp(area, NEXT.fetch_add(1, Ordering::Relaxed));
                add(&tally.published, 1);
            }
            // Full: all that was freed waits for readers.
            None => add(&tally.exhausted, 1),
        }
        // Release: readers that find the address find the stamp, too.
        self.places[at].store(area.as_ref().map_or(0, Area::addr), Ordering::Release);
        let old = mem::replace(&mut *self.areas[at].lock(), area);
        free(old, ctx);
        (self.drain)(&self.arena, ctx);
        ctx.spin(1000);
    }

    /// Reads areas and holes alike: it must only come back.
    fn walk(&self, _ctx: &mut ThreadCtx) {
        let first = self.arena.addresses().start;
        self.arena.read(first, &mut [0; 16 * PAGE]);
        thread::sleep(Duration::from_millis(1));
    }
}

fn free(area: Option<Area>, ctx: &mut ThreadCtx) {
    if let Some(area) = area {
        add(&ctx.session.tally.retired, 1);
        if ctx.one_in(8) {
            area.free_rcu()
        } else {
            drop(area)
        }
    }
}

/// A word of an area: which one, whose, and where.
fn word(number: u64, addr: usize, index: usize) -> u64 {
    number ^ (addr as u64).rotate_left(32) ^ (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The places of an area that are stamped and compared: its first words, its last, and some
/// between.
fn parts(len: usize) -> [usize; 3] {
    let last = len - WORDS * 8;
    [0, (last / 2) & !7, last]
}

/// The number is the first word; all others depend on it.
fn stamp(area: &Area, number: u64) {
    for at in parts(area.len()) {
        let mut bytes = [0; WORDS * 8];
        for (index, bytes) in bytes.chunks_exact_mut(8).enumerate() {
            bytes.copy_from_slice(&word(number, area.addr(), at / 8 + index).to_ne_bytes());
        }
        area.copy_from(at, &bytes).expect("inside the area");
    }
}

/// What was in an area instead of its writer's bytes.
#[derive(Debug)]
#[expect(dead_code, reason = "for people, by Debug")]
struct Mismatch {
    number: u64,
    addr: usize,
    len: usize,
    at: usize,
    seen: u64,
}

/// Looks at an area; its number, which must be `before` if that is known.
fn compare(found: &Checked<'_>, before: Option<u64>) -> Result<u64, Mismatch> {
    let (addr, len) = (found.addr(), found.len());
    let mut number = before;
    for at in parts(len) {
        let mut bytes = [0; WORDS * 8];
        // SAFETY: inside the area, which the section keeps; where it does not, the arena has no
        // guard pages and the copy finds any bytes.
        unsafe {
            lab::copy(
                bytes.as_mut_ptr(),
                found.as_ptr().wrapping_add(at),
                bytes.len(),
            )
        };
        for (index, bytes) in bytes.chunks_exact(8).enumerate() {
            let seen = u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
            let theirs = seen ^ word(0, addr, at / 8 + index);
            let expected = *number.get_or_insert(theirs);
            if theirs != expected {
                return Err(Mismatch {
                    number: expected,
                    addr,
                    len,
                    at: at + 8 * index,
                    seen,
                });
            }
        }
    }
    Ok(number.expect("there are parts, and words in them"))
}
