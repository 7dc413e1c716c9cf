//! A server whose connections each have a ring buffer in an area of its own, and that checks every
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

use anyhow::{Context, Result, anyhow, ensure};
use stillpoint_vmap::Arena;

use super::Work;
use super::index::{Index, OwnCopy, Unchecked};
use crate::run::Sample;
use crate::scale::spawn;

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
    let rings: Vec<usize> = rings
        .iter()
        .map(|ring| ring.as_ptr().expose_provenance())
        .collect::<Vec<_>>();
    let addresses = arena.addresses();
    ensure!(
        rings.iter().all(|ring| addresses.contains(ring)),
        "a ring is outside the arena"
    );
    serve(
        work,
        threads,
        message,
        &rings,
        |arena: &Arena, to, from| index.copy_from(arena, to, from),
        |arena, from, to| index.copy_to(arena, from, to),
        &arena,
    )
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
    Ok(both
        .into_iter()
        .max_by(|a, b| rate(a).total_cmp(&rate(b)))
        .expect("there are two"))
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
    // SAFETY: each ring is one thread's, and there until all have ended.
    let copy_from = |(): &(), to: usize, from: &[u8]| unsafe {
        std::ptr::copy_nonoverlapping(
            from.as_ptr(),
            std::ptr::with_exposed_provenance_mut(to),
            from.len(),
        );
        true
    };
    // SAFETY: the same.
    let copy_to = |(): &(), from: usize, to: &mut [u8]| unsafe {
        std::ptr::copy_nonoverlapping(
            std::ptr::with_exposed_provenance(from),
            to.as_mut_ptr(),
            to.len(),
        );
        true
    };
    serve(work, threads, message, &addresses, copy_from, copy_to, &())
}

fn serve<A: Sync>(
    work: &Work,
    threads: u32,
    message: usize,
    rings: &[usize],
    copy_from: impl Fn(&A, usize, &[u8]) -> bool + Sync,
    copy_to: impl Fn(&A, usize, &mut [u8]) -> bool + Sync,
    arena: &A,
) -> Result<Sample> {
    let threads = threads.min(work.connections) as usize;
    let (together, over) = (Barrier::new(threads + 1), AtomicBool::new(false));
    let serve_some = |number: usize| -> Option<Served> {
        let mine: Vec<usize> = rings
            .iter()
            .copied()
            .skip(number)
            .step_by(threads)
            .collect();
        let (sent, mut received) = (vec![number as u8 + 1; message], vec![0; message]);
        let mut served = 0;
        together.wait();
        let begun = Instant::now();
        // At least once, however late this thread gets a processor.
        loop {
            let at = served as usize / mine.len() % RING * message;
            for ring in &mine {
                if !copy_from(arena, ring + at, &sent) || !copy_to(arena, ring + at, &mut received)
                {
                    return None;
                }
                served += 1;
            }
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
        started
            .into_iter()
            .map(|thread| thread.join().map_err(|_| anyhow!("a thread panicked")))
            .collect::<Result<_>>()
    })?;
    let served: Option<Vec<Served>> = served.into_iter().collect();
    let served = served.context("a message was refused, or came out changed")?;
    // From the first thread's beginning to the last one's end: this thread may be late at both.
    let begun = served
        .iter()
        .map(|served| served.begun)
        .min()
        .context("no thread")?;
    let ended = served
        .iter()
        .map(|served| served.ended)
        .max()
        .context("no thread")?;
    let messages: u64 = served.iter().map(|served| served.messages).sum();
    Ok(super::sample([(
        "requests_per_s",
        messages as f64 / (ended - begun).as_secs_f64(),
    )]))
}

/// What one thread has done.
struct Served {
    messages: u64,
    begun: Instant,
    ended: Instant,
}
