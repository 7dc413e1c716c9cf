//! A server whose connections each have a ring buffer in its own area, and that checks every
//! range before it copies.
//!
//! The workload of the seed: a message is copied into its connection's ring by the writing end and
//! out of it by the reading end, and each copy asks whether its range lies inside one live area. A
//! thread serves its connections in turn, both ends of each, so that what is measured is the check
//! and the copy, and not the scheduler. Beside the rings there are [`OTHERS`], which an index has
//! to know too. `requests_per_s` counts messages that have gone through.

use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::Work;
use super::index::{Index, OwnCopy, Unchecked, unchecked_copy_from, unchecked_copy_to};
use crate::run::Sample;
use crate::scale::{join, span, spawn};

/// Messages in a ring.
const RING: usize = 8;

/// Areas that are no rings.
const OTHERS: usize = 1000;

/// The rings are in areas, and `I` checks.
pub fn in_areas<I: Index>(work: &Work, threads: u32, message: usize) -> Result<Sample> {
    let arena = super::arena()?;
    let _others = (0..OTHERS)
        .map(|number| arena.alloc((1 + number % 20) * 4096, 1))
        .collect::<Result<Vec<_>, _>>()?;
    let rings = (0..work.connections)
        .map(|_| arena.alloc(RING * message, 1))
        .collect::<Result<Vec<_>, _>>()?;
    let guard = arena.read_lock();
    let areas: Vec<Range<usize>> = arena.areas(&guard).map(|found| found.addresses()).collect();
    drop(guard);
    let index = I::new(&arena, &areas);
    let rings = rings.iter().map(|ring| ring.as_ptr().expose_provenance());
    let rings: Vec<usize> = rings.collect();
    let addresses = arena.addresses();
    ensure!(
        rings.iter().all(|ring| addresses.contains(ring)),
        "a ring is outside the arena"
    );
    serve(work, threads, message, &rings, |turn: Turn<'_>| {
        index.serve(&arena, turn)
    })
}

/// The rings are in areas, without checks. The faster of the arena's own copy and `memcpy`, for
/// half of the time each.
pub fn unchecked(work: &Work, threads: u32, message: usize) -> Result<Sample> {
    let half = Work {
        copy_ms: work.copy_ms.div_ceil(2),
        ..*work
    };
    let both = [
        in_areas::<OwnCopy>(&half, threads, message)?,
        in_areas::<Unchecked>(&half, threads, message)?,
    ];
    let rate = |sample: &Sample| sample.metrics["requests_per_s"];
    let [own, other] = both;
    Ok(if rate(&own) > rate(&other) {
        own
    } else {
        other
    })
}

/// The rings are on the heap, without checks: the seed's kzalloc.
pub fn on_the_heap(work: &Work, threads: u32, message: usize) -> Result<Sample> {
    let mut rings: Vec<Vec<u8>> = (0..work.connections)
        .map(|_| vec![0; RING * message])
        .collect();
    let addresses: Vec<usize> = rings
        .iter_mut()
        .map(|ring| ring.as_mut_ptr().expose_provenance())
        .collect();
    serve(work, threads, message, &addresses, |turn: Turn<'_>| {
        turn.each(
            |to, from| {
                unchecked_copy_from(to, from);
                true
            },
            |from, to| {
                unchecked_copy_to(from, to);
                true
            },
        )
    })
}

/// One message of each of a thread's connections, which is copied in and out.
pub struct Turn<'t> {
    rings: &'t [usize],
    /// Where the message lies in its ring.
    at: usize,
    sent: &'t [u8],
    received: &'t mut [u8],
}

impl Turn<'_> {
    /// Copies by these two; false if one of them has refused.
    #[inline(always)]
    pub fn each(
        self,
        copy_from: impl Fn(usize, &[u8]) -> bool,
        copy_to: impl Fn(usize, &mut [u8]) -> bool,
    ) -> bool {
        self.rings.iter().all(|ring| {
            copy_from(ring + self.at, self.sent) && copy_to(ring + self.at, self.received)
        })
    }

    /// Like [`Turn::each`], but finds a ring's area once, by `of_ring`, for both copies, which are
    /// given the bytes of the area to copy.
    #[inline(always)]
    pub fn each_in<R>(
        self,
        of_ring: impl Fn(usize) -> Option<R>,
        copy_from: impl Fn(&R, Range<usize>, &[u8]) -> bool,
        copy_to: impl Fn(&R, Range<usize>, &mut [u8]) -> bool,
    ) -> bool {
        let bytes = self.at..self.at + self.sent.len();
        self.rings.iter().all(|&ring| {
            of_ring(ring).is_some_and(|area| {
                copy_from(&area, bytes.clone(), self.sent)
                    && copy_to(&area, bytes.clone(), self.received)
            })
        })
    }
}

fn serve(
    work: &Work,
    threads: u32,
    message: usize,
    rings: &[usize],
    turn: impl Fn(Turn<'_>) -> bool + Sync,
) -> Result<Sample> {
    let threads = threads.min(work.connections) as usize;
    let (together, over) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let serve_some = |number: usize| -> Option<Served> {
        let mine = rings.iter().copied().skip(number).step_by(threads);
        let mine: Vec<usize> = mine.collect();
        let (sent, mut received) = (vec![number as u8 + 1; message], vec![0; message]);
        let mut served = 0_u64;
        together.wait();
        let begun = Instant::now();
        // At least once, however late this thread gets a processor.
        loop {
            let at = served as usize / mine.len() % RING * message;
            let all = turn(Turn {
                rings: &mine,
                at,
                sent: &sent,
                received: &mut received,
            });
            if !all {
                return None;
            }
            served += mine.len() as u64;
            if over.load(Ordering::Relaxed) {
                break;
            }
        }
        (received == sent).then(|| Served {
            messages: served,
            begun,
            ended: Instant::now(),
        })
    };
    let served: Vec<Option<Served>> = thread::scope(|scope| {
        let serve_some = &serve_some;
        let started: Vec<_> = (0..threads)
            .map(|number| spawn(Builder::new(), scope, move || serve_some(number)))
            .collect();
        together.wait();
        thread::sleep(Duration::from_millis(work.copy_ms.into()));
        over.store(true, Ordering::Relaxed);
        started.into_iter().map(join).collect::<Result<_>>()
    })?;
    let served: Option<Vec<Served>> = served.into_iter().collect();
    let served = served.context("a message was refused, or came out changed")?;
    // This thread may be late at the beginning and at the end.
    let took = span(served.iter().map(|served| (served.begun, served.ended)))?;
    let messages: u64 = served.iter().map(|served| served.messages).sum();
    Ok(Sample::of([(
        "requests_per_s",
        messages as f64 / took.as_secs_f64(),
    )]))
}

/// What one thread has done.
struct Served {
    messages: u64,
    begun: Instant,
    ended: Instant,
}
