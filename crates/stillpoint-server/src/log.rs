//! Lines on standard error. A thread writes them, so that no other waits for a pipe that is not read.

use crate::lock::lock;
use std::{
    fmt::{Arguments, Write as _},
    io::{self, Write},
    sync::{
        Arc, Condvar, Mutex, PoisonError,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

/// Bytes that may wait to be written. Lines beyond are left out, and their number is written.
const MOST_WAITING: usize = 256 << 10;

/// Time that the end of a server waits for its last lines.
const LAST_LINES: Duration = Duration::from_secs(1);

/// How much is logged: 0 is what an operator should know, 1 and more (`-v`) what happens to connections.
pub(crate) struct Log {
    level: AtomicU32,
    /// Shared with the thread that writes. `None` if nothing is logged.
    lines: Option<Arc<Lines>>,
}

#[derive(Default)]
struct Lines {
    waiting: Mutex<Waiting>,
    changed: Condvar,
    /// Number of times that the end has waited for the last lines.
    #[cfg(test)]
    waits: AtomicU32,
}

#[derive(Default)]
struct Waiting {
    text: String,
    /// Lines that were left out behind `text`.
    skipped: u64,
    is_writing: bool,
    has_ended: bool,
}

/// Logs a line at any level: `note!(log, "text with {arguments}")`.
macro_rules! note {
    ($log:expr, $($line:tt)+) => {
        $log.note(format_args!($($line)+))
    };
}
pub(crate) use note;

impl Log {
    /// Starts the thread that writes, if anything is to be logged.
    pub(crate) fn new(on: bool, level: u32) -> io::Result<Self> {
        match on {
            true => Self::on(io::stderr(), level),
            false => Ok(Self {
                level: AtomicU32::new(level),
                lines: None,
            }),
        }
    }

    fn on(out: impl Write + Send + 'static, level: u32) -> io::Result<Self> {
        let lines = Arc::<Lines>::default();
        let shared = Arc::clone(&lines);
        thread::Builder::new()
            .name("stillcache/log".into())
            .spawn(move || shared.write_to(out))?;
        Ok(Self {
            level: AtomicU32::new(level),
            lines: Some(lines),
        })
    }

    pub(crate) fn set_level(&self, level: u32) {
        self.level.store(level, Ordering::Relaxed);
    }

    pub(crate) fn level(&self) -> u32 {
        self.level.load(Ordering::Relaxed)
    }

    /// Logs a line at any level. Waits for no other thread's output.
    pub(crate) fn note(&self, line: Arguments<'_>) {
        if let Some(lines) = &self.lines {
            lines.push(line);
        }
    }

    /// Logs a line with `-v`.
    pub(crate) fn detail(&self, line: impl FnOnce() -> String) {
        if self.level() > 0 {
            self.note(format_args!("{}", line()));
        }
    }

    /// Ends the thread, and waits some time until it has written all lines. Later calls do nothing. A
    /// thread that waits for a pipe is left to the end of the process.
    pub(crate) fn end(&self) {
        if let Some(lines) = &self.lines {
            let mut waiting = lock(&lines.waiting);
            if std::mem::replace(&mut waiting.has_ended, true) {
                return;
            }
            #[cfg(test)]
            lines.waits.fetch_add(1, Ordering::Relaxed);
            lines.changed.notify_all();
            let is_left = |waiting: &mut Waiting| waiting.is_writing || !waiting.text.is_empty();
            let _ = lines
                .changed
                .wait_timeout_while(waiting, LAST_LINES, is_left);
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.end();
    }
}

impl Lines {
    fn push(&self, line: Arguments<'_>) {
        let mut waiting = lock(&self.waiting);
        if waiting.text.len() >= MOST_WAITING {
            waiting.skipped += 1;
            return;
        }
        let _ = writeln!(waiting.text, "stillcache: {line}");
        drop(waiting);
        self.changed.notify_all();
    }

    /// Writes lines until the log has ended.
    fn write_to(&self, mut out: impl Write) {
        let mut waiting = lock(&self.waiting);
        loop {
            if waiting.text.is_empty() {
                if waiting.has_ended {
                    return;
                }
                let woken = self.changed.wait(waiting);
                waiting = woken.unwrap_or_else(PoisonError::into_inner);
                continue;
            }
            let text = std::mem::take(&mut waiting.text);
            let skipped = std::mem::take(&mut waiting.skipped);
            waiting.is_writing = true;
            drop(waiting);
            // Without a standard error there is no place to say so.
            let _ = out.write_all(text.as_bytes());
            if skipped > 0 {
                let line = "lines were left out: standard error did not take them in time";
                let _ = writeln!(out, "stillcache: {skipped} {line}");
            }
            waiting = lock(&self.waiting);
            waiting.is_writing = false;
            self.changed.notify_all();
        }
    }
}

/// Writes a line before a server has started, where waiting keeps no client.
pub(crate) fn say(line: Arguments<'_>) {
    let _ = writeln!(io::stderr().lock(), "stillcache: {line}");
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{sync::mpsc, thread::ThreadId};

    /// A pipe that is not read until the other end of `gate` is gone.
    struct Pipe {
        logs: ThreadId,
        gate: mpsc::Receiver<()>,
        read: mpsc::Sender<Vec<u8>>,
    }

    impl Write for Pipe {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            assert_ne!(
                thread::current().id(),
                self.logs,
                "a thread that logs writes"
            );
            let _ = self.gate.recv();
            self.read.send(bytes.into()).expect("the test reads");
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_pipe_that_is_not_read_keeps_no_thread_and_misses_lines_by_their_number() {
        const LINES: usize = 100_000;
        let (closed, gate) = mpsc::channel();
        let (read, text) = mpsc::channel();
        let logs = thread::current().id();
        let log = Log::on(Pipe { logs, gate, read }, 0).unwrap();
        for number in 0..LINES {
            log.note(format_args!("line {number}"));
        }
        let lines = log.lines.as_ref().unwrap();
        assert!(lock(&lines.waiting).text.len() < MOST_WAITING + 100);
        drop(closed);
        let (mut all, mut written, mut skipped) = (String::new(), 0, 0);
        while written + skipped < LINES {
            let bytes = text.recv_timeout(Duration::from_secs(60));
            all.push_str(std::str::from_utf8(&bytes.unwrap()).unwrap());
            let missing = all.lines().filter(|line| line.ends_with("in time"));
            let number = |line: &str| line.split(' ').nth(1)?.parse::<usize>().ok();
            skipped = missing.filter_map(number).sum();
            written = all.lines().filter(|line| line.contains(": line ")).count();
        }
        assert_eq!(written + skipped, LINES);
        assert!(all.starts_with("stillcache: line 0\nstillcache: line 1\n"));
    }

    #[test]
    fn a_pipe_that_is_not_read_delays_the_end_once() {
        let (closed, gate) = mpsc::channel();
        let (read, _text) = mpsc::channel();
        let logs = thread::current().id();
        let log = Log::on(Pipe { logs, gate, read }, 0).unwrap();
        log.note(format_args!("line"));
        let lines = Arc::clone(log.lines.as_ref().unwrap());
        // A server ends, is dropped, and drops its log.
        log.end();
        log.end();
        drop(log);
        assert_eq!(lines.waits.load(Ordering::Relaxed), 1);
        drop(closed);
    }
}
