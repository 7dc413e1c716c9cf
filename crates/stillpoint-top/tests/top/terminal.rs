//! The state of the terminal after `stillpoint-top` has ended.

use rustix::{
    fs::{Mode, OFlags, fcntl_setfl, open},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{Action, LocalModes, Winsize, tcflow, tcgetattr, tcsetwinsize},
};
use std::{
    fs::File,
    io::Read,
    os::{fd::OwnedFd, unix::process::ExitStatusExt},
    process::{Child, Command, Stdio},
    thread,
};

/// One end of a pseudoterminal of 80 x 24, and what has been read from it.
struct Terminal {
    end: File,
    read: String,
}

impl Terminal {
    /// Opens one, and its other end.
    fn open() -> (Self, OwnedFd) {
        let end = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&end).unwrap();
        unlockpt(&end).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let other = open(ptsname(&end, Vec::new()).unwrap(), flags, Mode::empty()).unwrap();
        let size = Winsize {
            ws_row: 24,
            ws_col: 80,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        tcsetwinsize(&end, size).unwrap();
        let terminal = Self {
            end: end.into(),
            read: String::new(),
        };
        (terminal, other)
    }

    /// Opens one, and starts the program there.
    fn start() -> (Self, Child) {
        let (mut terminal, other) = Self::open();
        let child = start(other.try_clone().unwrap(), other);
        while !terminal.read.contains("stillpoint-top:") {
            assert!(terminal.read_more(), "it ends: {}", terminal.read);
        }
        (terminal, child)
    }

    /// Reads what there is. Returns false if the other end is closed.
    fn read_more(&mut self) -> bool {
        let mut bytes = [0; 4096];
        let read = self.end.read(&mut bytes).unwrap_or(0);
        self.read += &String::from_utf8_lossy(&bytes[..read]);
        read > 0
    }

    /// The settings of the other end.
    fn is_raw(&self) -> bool {
        let modes = tcgetattr(&self.end).expect("it is a terminal").local_modes;
        !modes.contains(LocalModes::ICANON)
    }
}

fn start(input: OwnedFd, output: OwnedFd) -> Child {
    Command::new(env!("CARGO_BIN_EXE_stillpoint-top"))
        .env("TERM", "xterm")
        .stdin(input)
        .stdout(output)
        .stderr(Stdio::null())
        .spawn()
        .expect("the program starts")
}

fn kill(child: &Child, signal: Signal) {
    kill_process(Pid::from_child(child), signal).expect("it is there");
}

#[test]
fn a_signal_leaves_it_as_it_was() {
    for signal in [Signal::HUP, Signal::INT, Signal::TERM] {
        let (mut terminal, mut child) = Terminal::start();
        assert!(terminal.is_raw());
        terminal.read.clear();
        kill(&child, signal);
        while terminal.read_more() {}
        let status = child.wait().expect("it ends");
        assert_eq!(status.signal(), Some(signal.as_raw()), "{status}");
        assert!(!terminal.is_raw(), "{signal:?}");
        let (_, left) = terminal.read.rsplit_once("\x1b[?1049l").expect("left");
        assert!(left.contains("\x1b[?25h"), "the cursor is hidden: {left:?}");
    }
}

/// Its reads give nothing for ever.
#[test]
fn a_signal_ends_it_after_the_terminal_has_hung_up() {
    let (terminal, mut child) = Terminal::start();
    drop(terminal);
    kill(&child, Signal::HUP);
    let status = child.wait().expect("it ends");
    assert!(!status.success(), "{status}");
}

#[test]
fn a_second_signal_ends_it_while_the_terminal_takes_nothing() {
    let (terminal, other) = Terminal::open();
    tcflow(&other, Action::OOff).unwrap();
    let mut child = start(other.try_clone().unwrap(), other);
    while !terminal.is_raw() {
        assert!(child.try_wait().unwrap().is_none(), "it ends");
        thread::yield_now();
    }
    let status = loop {
        if let Some(status) = child.try_wait().expect("it can be waited for") {
            break status;
        }
        kill(&child, Signal::TERM);
        thread::yield_now();
    };
    assert_eq!(status.signal(), Some(Signal::TERM.as_raw()), "{status}");
}

/// Its input is one terminal, and its output another one, which is stopped.
#[test]
fn a_start_that_fails_leaves_it_as_it_was() {
    let ((input, other), (_stopped, output)) = (Terminal::open(), Terminal::open());
    fcntl_setfl(&output, OFlags::NONBLOCK).unwrap();
    tcflow(&output, Action::OOff).unwrap();
    let status = start(other, output).wait().expect("it ends");
    assert_eq!(status.code(), Some(1), "{status}");
    assert!(!input.is_raw());
}
