//! The memory of this process over a run: resident pages, as the kernel counts them.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use procfs::process::{ClearRefs, Process};

use crate::run::Curve;

/// One sample of the curve in every such span.
const INTERVAL: Duration = Duration::from_millis(5);

/// Bytes of memory of this process that are resident.
pub fn resident() -> Result<u64> {
    let pages = Process::myself()?.statm()?.resident;
    Ok(pages * procfs::page_size())
}

/// Resident memory that has not changed for this time has settled.
const STILL: Duration = Duration::from_millis(50);

/// Longest wait for that.
const SETTLED_WITHIN: Duration = Duration::from_secs(2);

/// Waits until garbage is freed and memory is given back. Returns the resident memory in bytes.
pub fn settle() -> Result<u64> {
    let begun = Instant::now();
    let (mut since, mut last) = (begun, resident()?);
    while since.elapsed() < STILL && begun.elapsed() < SETTLED_WITHIN {
        thread::sleep(STILL / 10);
        let now = resident()?;
        if now != last {
            (since, last) = (Instant::now(), now);
        }
    }
    #[cfg(target_env = "gnu")]
    // SAFETY: it may be called at any time.
    unsafe {
        libc::malloc_trim(0);
    }
    resident()
}

/// MiB between two numbers of bytes; negative where memory was given back.
pub fn mib(from: f64, to: f64) -> f64 {
    (to - from) / f64::from(1 << 20)
}

/// Watches the memory from its start to its end. It samples on its own thread, for the curve;
/// the highest value comes from the kernel's own mark, which misses nothing, unless the system
/// forbids resetting that mark: then from the samples.
pub struct Watch {
    /// Resident when the watch began.
    base: u64,
    mark: bool,
    stop: mpsc::Sender<()>,
    sampler: JoinHandle<Result<Vec<(Instant, u64)>>>,
}

/// What a watch saw, in MiB above the start.
pub struct Seen {
    /// The highest value.
    pub peak_mib: f64,
    /// The value over time.
    pub curve: Curve,
}

impl Watch {
    /// Begins a watch.
    pub fn start() -> Result<Self> {
        let (stop, stopped) = mpsc::channel();
        let sampler = thread::Builder::new()
            .name("memory".to_owned())
            .spawn(move || sample_until(&stopped))?;
        let mark = Process::myself()?.clear_refs(ClearRefs::PeakRSS).is_ok();
        Ok(Self {
            base: resident()?,
            mark,
            stop,
            sampler,
        })
    }

    /// Bytes that were resident when the watch began.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Ends the watch; the curve's time 0 is `origin`.
    pub fn finish(self, origin: Instant) -> Result<Seen> {
        drop(self.stop);
        let samples = self
            .sampler
            .join()
            .map_err(|_| anyhow!("the memory sampler panicked"))??;
        let sampled = samples
            .iter()
            .map(|&(_, bytes)| bytes)
            .max()
            .unwrap_or(self.base);
        // The kernel's two accounts may differ by what each CPU has yet to hand in.
        let peak = if self.mark { highest()? } else { sampled }.max(self.base);
        let above = |bytes: u64| mib(self.base as f64, bytes as f64);
        // The curve's digits are no finer than its clock and a page.
        let rounded = |value: f64, digits: f64| (value * digits).round() / digits;
        let points = samples
            .into_iter()
            .filter(|&(at, _)| at >= origin)
            .map(|(at, bytes)| {
                (
                    rounded((at - origin).as_secs_f64(), 1e6),
                    rounded(above(bytes), 1e3),
                )
            })
            .collect();
        let curve = Curve {
            x: "since_start_s".to_owned(),
            y: "above_start_mib".to_owned(),
            points,
        };
        Ok(Seen {
            peak_mib: above(peak),
            curve,
        })
    }
}

/// The kernel's mark of the most memory that was resident, in bytes.
fn highest() -> Result<u64> {
    let kib = Process::myself()?
        .status()?
        .vmhwm
        .context("the kernel tells no VmHWM")?;
    Ok(kib * 1024)
}

/// Samples until the other end is dropped, and once more then.
fn sample_until(stopped: &mpsc::Receiver<()>) -> Result<Vec<(Instant, u64)>> {
    let mut samples = Vec::new();
    loop {
        samples.push((Instant::now(), resident()?));
        if stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Disconnected) {
            samples.push((Instant::now(), resident()?));
            return Ok(samples);
        }
    }
}
