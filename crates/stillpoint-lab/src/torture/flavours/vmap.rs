//! The address space: writers replace areas, free the old ones, and drain; readers find areas,
//! check and copy.
//!
//! An area's bytes say whose they are: its address, its length, and a number that no other area
//! has, in every word. A section that finds an area must find these, and find them again, until its
//! end, even if another thread frees and purges it meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crossbeam_utils::CachePadded;
use stillpoint::{Domain, lab::core_of};
use stillpoint_vmap::{Area, Arena, Found, lab};

use crate::torture::harness::{Harness, ThreadSpec};
use crate::torture::runner;
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
    let arena = builder.build().expect("there is room for an arena");
    torture(session, &arena, |arena, ctx| match ctx.random.u32(0..64) {
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
    let arena = builder.build().expect("there is room for an arena");
    // SAFETY: readers make checked copies alone, and compare what they find.
    torture(session, &arena, |arena, _| unsafe {
        lab::drain_without_grace_period(arena)
    });
}

/// Where areas are published: their addresses, 0 for none.
type Places = [CachePadded<AtomicUsize>];

fn torture(session: &Arc<Session>, arena: &Arena, drain: impl Fn(&Arena, &mut ThreadCtx) + Sync) {
    let places: Box<Places> = (0..PLACES * session.plan.writers)
        .map(|_| CachePadded::default())
        .collect();
    let (places, drain) = (&*places, &drain);
    let visit = |ctx: &mut ThreadCtx| look(arena, places, ctx);
    let visit = &visit;
    let reader = |number| {
        let body = move || {
            let mut ctx = session.thread_ctx("reader", number);
            while !session.is_over() {
                session.wait_while_paused(|| ());
                visit(&mut ctx);
            }
        };
        ThreadSpec::new(format!("reader {number}"), body).with_signals()
    };
    let writer = |number: usize| {
        let own = &places[number * PLACES..][..PLACES];
        ThreadSpec::new(format!("writer {number}"), move || {
            write(session, arena, own, number, drain)
        })
        .with_signals()
    };
    let fake = |number| {
        ThreadSpec::new(format!("fakewriter {number}"), move || {
            let who = session.plan.writers + number;
            while !session.is_over() {
                session.beat(who);
                arena.domain().synchronize();
                add(&session.tally.waits, 1);
                // Over areas and holes alike: it must only come back.
                arena.read(arena.addresses().start, &mut [0; 16 * PAGE]);
                thread::sleep(Duration::from_millis(1));
            }
        })
    };
    let (readers, writers) = (
        (0..session.plan.readers).map(reader),
        (0..session.plan.writers).map(writer),
    );
    let threads = readers
        .chain(writers)
        .chain((0..session.plan.fakewriters).map(fake))
        .collect();
    let visit_in_handler = || look_in_handler(session, arena, places);
    let harness = Harness {
        domain: core_of(arena.domain()),
        visit,
        visit_in_handler: Some(&visit_in_handler),
        in_child: &|| (),
    };
    runner::run(session, &harness, threads);
    arena.domain().kvfree_barrier();
    let left = arena.areas(&arena.read_lock()).count();
    if left > 0 {
        session.tally.fault(Fault::Lost, || {
            format!("{left} areas are there after the last was freed")
        });
    }
    if let Err(error) = arena.drain() {
        session
            .tally
            .fault(Fault::Content, || format!("the last drain failed: {error}"));
    }
    let (tally, arena) = (&session.tally, arena.statistics());
    let (retired, freed) = (
        tally.retired.load(Ordering::Relaxed),
        arena.allocated - arena.areas,
    );
    add(&tally.freed, freed);
    if (retired, 0) != (freed, arena.lazy_bytes) && !tally.is_faulty() {
        let waiting = arena.lazy_bytes;
        tally.fault(Fault::Lost, || {
            format!("of {retired} areas the arena has freed {freed}, and after the last drain {waiting} bytes wait")
        });
    }
}

/// A word of an area: which one, whose, and where.
fn word(number: u64, addr: usize, index: usize) -> u64 {
    number ^ (addr as u64).rotate_left(32) ^ (index as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

fn write(
    session: &Session,
    arena: &Arena,
    places: &Places,
    number: usize,
    drain: &(impl Fn(&Arena, &mut ThreadCtx) + Sync),
) {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let mut ctx = session.thread_ctx("writer", number);
    let mut areas: Vec<Option<Area>> = places.iter().map(|_| None).collect();
    while !session.is_over() {
        session.beat(number);
        session.wait_while_paused(|| session.beat(number));
        let at = ctx.random.usize(0..places.len());
        let pages = if ctx.one_in(64) {
            ctx.random.usize(1..600)
        } else {
            ctx.random.usize(1..9)
        };
        match arena.alloc(pages * PAGE, PAGE) {
            Ok(area) => {
                stamp(&area, NEXT.fetch_add(1, Ordering::Relaxed));
                places[at].store(area.addr(), Ordering::Release);
                add(&session.tally.published, 1);
                free(session, areas[at].replace(area), &mut ctx);
            }
            Err(_) => {
                // Full: all that was freed waits for readers.
                add(&session.tally.exhausted, 1);
                places[at].store(0, Ordering::Release);
                free(session, areas[at].take(), &mut ctx);
            }
        }
        drain(arena, &mut ctx);
        ctx.spin(1000);
    }
    places
        .iter()
        .for_each(|place| place.store(0, Ordering::Release));
    areas
        .into_iter()
        .for_each(|area| free(session, area, &mut ctx));
}

fn free(session: &Session, area: Option<Area>, ctx: &mut ThreadCtx) {
    if let Some(area) = area {
        add(&session.tally.retired, 1);
        if ctx.one_in(8) {
            area.free_rcu()
        } else {
            drop(area)
        }
    }
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

/// One section: finds what is at a place, and looks at it more than once.
fn look(arena: &Arena, places: &Places, ctx: &mut ThreadCtx) {
    let place = &places[ctx.random.usize(0..places.len())];
    let guard = arena.read_lock();
    // From here on, an area found at this address was published before the section looked;
    // otherwise its address could not be in use before the section ends.
    let addr = place.load(Ordering::Acquire);
    let found = if addr == 0 {
        None
    } else {
        arena.find(addr, &guard)
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
    ctx.count(0, 0);
}

/// The same in a signal handler.
fn look_in_handler(session: &Session, arena: &Arena, places: &Places) {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let guard = arena.read_lock();
    let addr = places[NEXT.fetch_add(1, Ordering::Relaxed) % places.len()].load(Ordering::Acquire);
    if let Some(found) = arena.find(addr, &guard)
        && compare(&found, None)
            .and_then(|number| compare(&found, Some(number)))
            .is_err()
    {
        session.tally.fault_in_handler(Fault::Content);
    }
    drop(guard);
    session.tally.section_in_handler(0, 0);
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
fn compare(found: &Found, before: Option<u64>) -> Result<u64, Mismatch> {
    let (addr, len) = (found.addr(), found.len());
    let mut number = before;
    for at in parts(len) {
        let mut bytes = [0; WORDS * 8];
        // SAFETY: inside the area, which the section keeps; where it does not, the arena has no
        // guard pages and the copy finds any bytes.
        unsafe {
            lab::copy(
                bytes.as_mut_ptr(),
                found.whole().as_ptr().wrapping_add(at),
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
