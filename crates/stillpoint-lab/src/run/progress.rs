//! How far a run has come, on standard error: a bar on a terminal, elsewhere a line for each part
//! that is done.

use std::cell::RefCell;
use std::fmt;
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

/// The lines, which stand for a bar where standard error is no terminal.
pub struct Lines {
    shown: bool,
    all: usize,
    done: usize,
    since: Instant,
}

impl Lines {
    /// For so many parts.
    pub fn new(all: usize) -> Self {
        Self {
            shown: !SILENT.load(Ordering::Relaxed) && !io::stderr().is_terminal(),
            all,
            done: 0,
            since: Instant::now(),
        }
    }

    /// Tells that another part is done, and what it took.
    pub fn end(&mut self, what: impl fmt::Display) {
        self.done += 1;
        if self.shown {
            let took = self.since.elapsed().as_secs_f64();
            eprintln!(
                "stillpoint: {} of {}: {what}: {took:.1} s",
                self.done, self.all
            );
        }
        self.since = Instant::now();
    }
}

/// A bar that counts parts, or their lines.
pub struct Progress {
    bar: ProgressBar,
    lines: RefCell<Lines>,
}

impl Progress {
    /// Of so many parts.
    pub fn new(parts: usize) -> Self {
        let style = ProgressStyle::with_template("{bar:30} {pos}/{len} {elapsed} {msg}")
            .expect("the template is a constant and well formed");
        Self {
            bar: bar_shown(ProgressBar::new(parts as u64).with_style(style)),
            lines: Lines::new(parts).into(),
        }
    }

    /// Tells what is under way.
    pub fn begin(&self, what: &str) {
        self.bar.set_message(what.to_owned());
    }

    /// Tells that it is done.
    pub fn end(&self, what: &str) {
        self.bar.inc(1);
        self.lines.borrow_mut().end(what);
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
