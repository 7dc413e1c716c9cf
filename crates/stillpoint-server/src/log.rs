//! Lines on standard error, as many as `-v` asks for.

use std::{
    fmt::Arguments,
    io::Write,
    sync::atomic::{AtomicU32, Ordering},
};

/// How much is logged: 0 is what an operator should know, 1 and more (`-v`) what happens to connections.
#[derive(Debug, Default)]
pub(crate) struct Log {
    on: bool,
    level: AtomicU32,
}

impl Log {
    pub(crate) fn new(on: bool, level: u32) -> Self {
        Self {
            on,
            level: AtomicU32::new(level),
        }
    }

    pub(crate) fn set_level(&self, level: u32) {
        self.level.store(level, Ordering::Relaxed);
    }

    pub(crate) fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    /// Always logged.
    pub(crate) fn note(&self, line: Arguments<'_>) {
        if !self.on {
            return;
        }
        // Without a standard error there is no place to say so.
        let _ = writeln!(std::io::stderr().lock(), "stillcache: {line}");
    }

    /// Logged by `-v`.
    pub(crate) fn detail(&self, line: impl FnOnce() -> String) {
        if self.level() > 0 {
            self.note(format_args!("{}", line()));
        }
    }
}
