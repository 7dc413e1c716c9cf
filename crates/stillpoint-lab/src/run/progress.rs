//! How far a run has come, on standard error: a bar on a terminal, elsewhere a line for each part
//! that is done.

use std::cell::Cell;
use std::io::{self, IsTerminal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use indicatif::{ProgressBar, ProgressStyle};

static SILENT: AtomicBool = AtomicBool::new(false);

/// Has nothing said of progress, from now on.
pub fn silence_progress() {
    SILENT.store(true, Ordering::Relaxed);
}

/// The bar, or one that is never seen.
pub fn bar_shown(bar: ProgressBar) -> ProgressBar {
    if SILENT.load(Ordering::Relaxed) {
        bar.set_draw_target(indicatif::ProgressDrawTarget::hidden());
    }
    bar
}

/// A bar that counts parts; where standard error is no terminal, a line for each.
pub struct Progress {
    bar: ProgressBar,
    lines: bool,
    since: Cell<Instant>,
}

impl Progress {
    /// Starts a display of `parts` parts.
    pub fn new(parts: usize) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}")
            .expect("the template is a constant and well formed");
        Self {
            bar: bar_shown(ProgressBar::new(parts as u64).with_style(style)),
            lines: !SILENT.load(Ordering::Relaxed) && !io::stderr().is_terminal(),
            since: Instant::now().into(),
        }
    }

    /// Tells what is under way.
    pub fn begin(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Tells that it is done, and what it took.
    pub fn end(&self, what: &str) {
        self.bar.inc(1);
        let since = self.since.replace(Instant::now());
        if self.lines {
            let (done, all) = (self.bar.position(), self.bar.length().unwrap_or_default());
            let took = since.elapsed().as_secs_f64();
            eprintln!("stillpoint: {done} of {all}: {what}: {took:.1} s");
        }
    }

    /// Draws the time that has passed.
    pub fn tick(&self) {
        self.bar.tick();
    }

    /// Prints something while the bar is away.
    pub fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Takes the bar away.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
