//! What is done in each scenario, the same for every subject. A process registers its threads,
//! makes [`WARM_UPS`] waits that are not counted, and then waits again and again for a fixed time
//! (at least a few times).
//!
//! | scenario | callers | beside them | what is timed |
//! |---|---|---|---|
//! | idle | 1 | none | a wait |
//! | idle1000 | 1 | 1,000 registered threads that sleep | a wait |
//! | busy1 | 1 | a reader, sections of 200 ns without a pause | a wait |
//! | busy-oversub | 1 | two such readers, all on two CPUs | a wait |
//! | herd64 | 64, at once (`--threads`) | none | a wait |
//! | bridge | 1 | 64 registered threads that sleep | a wait, of 100 times 4; `total_s` is their sum |
//! | callback | 1 | 16 registered threads that sleep | from the call to the callback's first instruction |
//! | barrier | 1 | the same | a call and the barrier behind it |
//! | poll | 1 | the same | from the start to the first poll that says yes |
//!
//! Fair: the callers are registered as the readers are, a thread under QSBR is offline where it
//! sleeps, and one file times all. bridge is the kernel's test of adding, configuring and deleting
//! a network bridge, which waits for some four grace periods each time, without the bridge.
//! A poller never sleeps, so poll's processor time is at least the wait's length. Peers without a
//! call that waits (sdd, ps-reclaim) poll as well, and never sleep either.

use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Instant;

use anyhow::{Result, ensure};

use super::figures::{self, BUDGET, observe};
use super::ours::CallbackLatch;
use super::readers::{Latch, ReaderControl, ReaderPool, with_readers};
use crate::run::Sample;
use crate::scale::threads::spawn_small;
use crate::scale::timing::{Timed, Times, no_times, note, repeat, time};
use crate::subject::{Callbacks, Polled, Updater, poll_until};

/// The readers of the scenarios that defer or poll.
pub const IDLE_READERS: ReaderPool = ReaderPool::asleep(16);

/// Waits before the first that counts: they start the subject's threads and fill the caches.
const WARM_UPS: usize = 2;

/// The seed's test adds, configures and deletes a bridge so often.
const BRIDGE_ITERATIONS: usize = 100;

/// Grace periods that each of these waits for.
const BRIDGE_WAITS: usize = 4;

/// One for each CPU of the machine of the seed's test.
const BRIDGE_READERS: ReaderPool = ReaderPool::asleep(64);

/// One caller waits.
pub fn waits<S: Updater>(pool: ReaderPool) -> Result<Sample> {
    with_readers::<S, _>(pool, |control| {
        let mut part = S::register_thread();
        Ok(one_caller::<S>(control, || time(|| part.synchronize())))
    })
}

/// One caller waits a fixed number of times.
pub fn bridge<S: Updater>() -> Result<Sample> {
    with_readers::<S, _>(BRIDGE_READERS, |control| {
        let mut part = S::register_thread();
        (0..WARM_UPS).for_each(|_| part.synchronize());
        let ((times, total), cost) = observe::<S, _>(control, || {
            let mut times = no_times();
            let begun = Instant::now();
            for _ in 0..BRIDGE_ITERATIONS * BRIDGE_WAITS {
                note(&mut times, &time(|| part.synchronize()));
            }
            (times, begun.elapsed())
        });
        let mut sample = figures::sample(&times, &cost);
        sample.add([("total_s", total.as_secs_f64())]);
        Ok(sample)
    })
}

/// Many callers wait at once.
pub fn herd<S: Updater>(callers: usize) -> Result<Sample> {
    with_readers::<S, _>(ReaderPool::NONE, |control| {
        let gates = Gates {
            ready: Latch::new(callers),
            go: Latch::new(1),
            begun: OnceLock::new(),
            end: Latch::new(1),
        };
        let (report, reports) = mpsc::channel();
        thread::scope(|scope| {
            let _release = Release(&gates);
            for _ in 0..callers {
                let report = report.clone();
                spawn_small(scope, || herd_caller::<S>(&gates, report));
            }
            // Only the callers' own are left, so that the reports end also where a caller is lost.
            drop(report);
            gates.ready.wait();

            let ((reports, begun), cost) = observe::<S, _>(control, || {
                let begun = *gates.begun.get_or_init(Instant::now);
                gates.go.open();
                (reports.into_iter().collect::<Vec<_>>(), begun)
            });
            ensure!(reports.len() == callers, "a caller panicked");

            let mut all = no_times();
            let mut last = begun;
            for (times, ended) in reports {
                all.add(times)?;
                last = last.max(ended);
            }
            let mut sample = figures::sample(&all, &cost);
            let per_s = all.len() as f64 / (last - begun).as_secs_f64();
            sample.add([("calls_per_s", per_s)]);
            Ok(sample)
        })
    })
}

/// Where the callers of a herd wait for each other.
struct Gates {
    ready: Latch,
    go: Latch,
    /// When the gate before was opened: the time is up for all at once, whenever each gets a CPU.
    begun: OnceLock<Instant>,
    end: Latch,
}

/// Lets the callers go when it is dropped, also where not all of them could be started.
struct Release<'g>(&'g Gates);

impl Drop for Release<'_> {
    fn drop(&mut self) {
        self.0.go.open();
        self.0.end.open();
    }
}

fn herd_caller<S: Updater>(gates: &Gates, report: mpsc::Sender<(Times, Instant)>) {
    let mut part = S::register_thread();
    (0..WARM_UPS).for_each(|_| part.synchronize());
    part.offline(|| {
        gates.ready.arrive();
        gates.go.wait();
    });
    let begun = *gates.begun.get_or_init(Instant::now);
    let times = repeat(begun + BUDGET, || time(|| part.synchronize()));
    let ended = Instant::now();
    part.offline(|| {
        // There is no receiver only where the measurement has failed already.
        let _ = report.send((times, ended));
        drop(report);
        gates.end.wait();
    });
}

/// One callback at a time, by a caller that sleeps until it has been invoked.
pub fn callback<S: Callbacks>() -> Result<Sample> {
    with_readers::<S, _>(IDLE_READERS, |control| {
        let mut part = S::register_thread();
        let latch = Arc::new(CallbackLatch::default());
        Ok(one_caller::<S>(control, || {
            let callback = Arc::clone(&latch);
            let begun = Instant::now();
            part.call(move || callback.invoke());
            let invoked = part.offline(|| latch.wait());
            Timed {
                took: invoked - begun,
                ended: Instant::now(),
            }
        }))
    })
}

/// One callback, and the barrier that waits for it.
pub fn barrier<S: Callbacks>() -> Result<Sample> {
    with_readers::<S, _>(IDLE_READERS, |control| {
        let mut part = S::register_thread();
        Ok(one_caller::<S>(control, || {
            time(|| {
                part.call(|| ());
                part.offline(S::barrier);
            })
        }))
    })
}

/// A grace period started, and asked about until it has ended.
pub fn poll<S: Polled>() -> Result<Sample> {
    with_readers::<S, _>(IDLE_READERS, |control| {
        let mut part = S::register_thread();
        Ok(one_caller::<S>(control, || {
            time(|| {
                let cookie = part.start_poll();
                part.offline(|| poll_until(|| S::poll(cookie)));
            })
        }))
    })
}

/// Waits for the time that a process has, after some waits that do not count.
fn one_caller<S: Updater>(control: &ReaderControl, mut once: impl FnMut() -> Timed) -> Sample {
    for _ in 0..WARM_UPS {
        once();
    }
    let (times, cost) = observe::<S, _>(control, || repeat(Instant::now() + BUDGET, once));
    figures::sample(&times, &cost)
}
