//! Lines on stderr, from threads that others wait for.
//!
//! std's stderr has a lock, which a stuck thread, or one that vanished in a fork, may hold. It
//! panics if it cannot write, and a write to a full pipe blocks until the pipe is read. A line from
//! here takes no lock, allocates nothing, and is dropped if it cannot be written at once.

use std::fmt::{self, Write};

/// The longest line, with its newline: what a pipe takes as a whole or not at all (`PIPE_BUF`).
const LONGEST: usize = 4096;

/// The end of a line that was too long.
const CUT: &[u8] = b" ...";

/// One line, which begins with the library's name. What does not fit is cut off.
pub struct Line {
    bytes: [u8; LONGEST],
    length: usize,
    is_cut: bool,
}

impl Line {
    /// Makes an empty line.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "it is written to at once")]
    pub fn new() -> Self {
        let mut line = Self {
            bytes: [0; LONGEST],
            length: 0,
            is_cut: false,
        };
        line.push(b"stillpoint: ");
        line
    }

    /// Adds bytes, which need not be UTF-8.
    pub fn push(&mut self, text: &[u8]) {
        let end = LONGEST - CUT.len() - 1;
        let fits = text.len().min(end - self.length);
        self.bytes[self.length..self.length + fits].copy_from_slice(&text[..fits]);
        self.length += fits;
        self.is_cut |= fits < text.len();
    }

    /// Writes the line, by one system call that is no cancellation point. Does nothing where that
    /// would block, or stderr is closed: a line is not worth a thread that hangs, or a `SIGPIPE`.
    pub fn send(mut self) {
        if self.is_cut {
            self.bytes[self.length..][..CUT.len()].copy_from_slice(CUT);
            self.length += CUT.len();
        }
        self.bytes[self.length] = b'\n';
        if can_write() {
            write(&self.bytes[..=self.length]);
        }
    }
}

impl Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.push(text.as_bytes());
        Ok(())
    }
}

impl fmt::Debug for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Line")
            .field(&String::from_utf8_lossy(&self.bytes[..self.length]))
            .finish()
    }
}

/// Writes a line: `what`, behind the library's name.
pub fn line(what: fmt::Arguments<'_>) {
    let mut line = Line::new();
    // Our writer never fails. If a `Display` does, the line has what it had written.
    let _ = line.write_fmt(what);
    line.send();
}

/// Returns whether a line can be written without blocking. Another thread may fill the pipe between
/// this question and the write, which then blocks until the pipe is read.
#[cfg(all(target_os = "linux", not(miri)))]
fn can_write() -> bool {
    let mut stderr = libc::pollfd {
        fd: libc::STDERR_FILENO,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: plain integers, for which zeroes are a value.
    let mut at_once: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: one descriptor, a time that may be written to, and no signal mask.
    let found = unsafe {
        libc::syscall(
            libc::SYS_ppoll,
            &raw mut stderr,
            1,
            &raw mut at_once,
            std::ptr::null::<libc::sigset_t>(),
            8,
        )
    };
    let broken = libc::POLLERR | libc::POLLHUP | libc::POLLNVAL;
    // A filter that forbids `ppoll` may still permit the write.
    found < 0 || stderr.revents & libc::POLLOUT != 0 && stderr.revents & broken == 0
}

#[cfg(not(all(target_os = "linux", not(miri))))]
fn can_write() -> bool {
    true
}

fn write(bytes: &[u8]) {
    let (stderr, start, length) = (libc::STDERR_FILENO, bytes.as_ptr(), bytes.len());
    #[cfg(all(target_os = "linux", not(miri)))]
    // SAFETY: the bytes are there.
    unsafe {
        libc::syscall(libc::SYS_write, stderr, start, length)
    };
    #[cfg(not(all(target_os = "linux", not(miri))))]
    // SAFETY: the bytes are there.
    unsafe {
        libc::write(stderr, start.cast(), length)
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_cut_off_and_said() {
        let mut line = Line::new();
        line.push(b"short");
        assert!(!line.is_cut && line.bytes.starts_with(b"stillpoint: short\0"));
        for _ in 0..2 {
            line.push(&[b'x'; LONGEST]);
        }
        assert!(line.is_cut && line.length + CUT.len() + 1 == LONGEST);
    }
}
