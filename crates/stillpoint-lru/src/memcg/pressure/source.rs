//! The source of a watch: a file, FIFO or socket, how it is opened, and what is read from it. No
//! function here blocks.
//!
//! # A FIFO and its payload
//!
//! A FIFO is one queue for all processes that have it open: we may read what we write for the other
//! end before the other end does. So the payload is written through a descriptor for writing only,
//! which is opened first; the system refuses that if no process reads, and then the payload is left
//! out. Otherwise we read nothing until the payload has been taken, or bytes have been written behind
//! it, or the other end has had [`PATIENCE`] to begin and [`READING`] to finish reading it. If we
//! then read the payload and nothing else, that is no pressure. The descriptor for reading is also
//! open for writing, so that the FIFO does not end when the last writer closes it.

use super::error::PressureError;
use rustix::{
    event::PollFlags,
    io::ioctl_fionread,
    net::{
        AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, send,
        socket_with,
    },
};
use std::{
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::fs::{FileTypeExt, OpenOptionsExt},
    },
    path::Path,
};
use stillpoint_platform::clock::{self, Nanos};

/// Longest time, in nanoseconds, that the other end of a FIFO may take to begin reading the payload
/// (`PATIENCE`), and then to read the next piece (`READING`). Until then the bytes in the FIFO may be the
/// payload or a notification. The watch looks every [`LOOK`] nanoseconds.
const PATIENCE: Nanos = 10_000_000_000;
const READING: Nanos = 100_000_000;
pub(crate) const LOOK: Nanos = 20_000_000;

/// The kinds of files, which differ in what is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Stall,
    Fifo,
    Socket,
}

/// A payload in a FIFO that the other end may not have read yet.
#[derive(Debug)]
struct Unread {
    payload: Vec<u8>,
    until: Nanos,
}

#[derive(Debug)]
pub(crate) struct Source {
    file: File,
    kind: Kind,
    unread: Option<Unread>,
}

/// The result of a look at a source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// A notification.
    Pressure,
    Nothing,
    /// The other end has gone.
    Gone,
}

impl Source {
    /// Opens `path` and writes `payload` to it.
    pub(crate) fn open(path: &Path, payload: Option<&[u8]>) -> Result<Self, PressureError> {
        let refused = |source| PressureError::Refused {
            path: path.to_owned(),
            source,
        };
        let kind = fs::metadata(path).map_err(refused)?.file_type();
        if kind.is_socket() {
            Self::connect(path, payload).map_err(refused)
        } else if kind.is_fifo() {
            Self::fifo(path, payload).map_err(refused)
        } else if kind.is_file() {
            let mut file = options(true, payload.is_some())
                .open(path)
                .map_err(refused)?;
            // Files of other systems are always ready, or never.
            const PROC: i64 = 0x9fa0;
            const CGROUP2: i64 = 0x6367_7270;
            let system = rustix::fs::fstatfs(&file)
                .map_err(|error| refused(error.into()))?
                .f_type;
            #[allow(
                clippy::unnecessary_cast,
                reason = "it has another type on other processors"
            )]
            if ![PROC, CGROUP2].contains(&(system as i64)) {
                return Err(PressureError::Kind(path.to_owned()));
            }
            payload
                .map_or(Ok(()), |payload| file.write_all(payload))
                .map_err(refused)?;
            Ok(Self {
                file,
                kind: Kind::Stall,
                unread: None,
            })
        } else {
            Err(PressureError::Kind(path.to_owned()))
        }
    }

    fn connect(path: &Path, payload: Option<&[u8]>) -> io::Result<Self> {
        // A listener with a full backlog would hold up a blocking socket without an end.
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
        connect(&socket, &SocketAddrUnix::new(path)?)?;
        let mut left = payload.unwrap_or_default();
        while !left.is_empty() {
            // A peer that has gone is an error, and sends the process no signal.
            match send(&socket, left, SendFlags::NOSIGNAL) {
                Ok(sent) => left = &left[sent..],
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Self {
            file: File::from(socket),
            kind: Kind::Socket,
            unread: None,
        })
    }

    fn fifo(path: &Path, payload: Option<&[u8]>) -> io::Result<Self> {
        // Before the descriptor for reading, which would be a reader.
        let outward = payload.map(|payload| match options(false, true).open(path) {
            Ok(outward) => Ok(Some((outward, payload))),
            Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(None),
            Err(error) => Err(error),
        });
        let outward = outward.transpose()?.flatten();
        let file = options(true, true)
            .open(path)
            .or_else(|_| options(true, false).open(path))?;
        let mut unread = None;
        if let Some((mut outward, payload)) = outward {
            outward.write_all(payload)?;
            unread = Some(Unread {
                payload: payload.to_vec(),
                until: clock::now() + PATIENCE,
            });
        }
        Ok(Self {
            file,
            kind: Kind::Fifo,
            unread,
        })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    pub(crate) fn interest(&self) -> PollFlags {
        if self.kind == Kind::Stall {
            PollFlags::PRI
        } else {
            PollFlags::IN
        }
    }

    /// Returns whether it is too early to look: the bytes in the FIFO are still for the other end.
    pub(crate) fn is_others(&mut self) -> bool {
        let Some(unread) = &mut self.unread else {
            return false;
        };
        let (now, len) = (clock::now(), unread.payload.len() as u64);
        match ioctl_fionread(&self.file) {
            Ok(0) => {
                self.unread = None;
                return false;
            }
            Ok(bytes) if bytes < len => unread.until = unread.until.min(now + READING),
            Ok(bytes) if bytes == len => {}
            _ => return false,
        }
        now < unread.until
    }

    /// Reads and drops the input.
    pub(crate) fn drop_input(&mut self) {
        if self.kind != Kind::Stall {
            empty(&mut self.file, &[]);
        }
    }

    /// Returns what a poll has found, after reading and dropping the input: what it says does not
    /// matter.
    pub(crate) fn take_in(&mut self, heard: PollFlags) -> Found {
        let gone = heard.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
        let told = heard.intersects(self.interest());
        // For a file whose group has gone the kernel sets both. There is nothing to read from it.
        if self.kind == Kind::Stall || !told {
            return match (gone, told) {
                (true, _) => Found::Gone,
                (false, true) => Found::Pressure,
                (false, false) => Found::Nothing,
            };
        }
        let unread = self.unread.take();
        empty(
            &mut self.file,
            unread.as_ref().map_or(&[], |unread| &unread.payload),
        )
    }
}

fn options(read: bool, write: bool) -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(read)
        .write(write)
        .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY);
    options
}

/// Reads and drops the input. If `payload` comes first, that part is our own and no notification.
fn empty(file: &mut File, mut payload: &[u8]) -> Found {
    let mut dropped = [0; 4096];
    let (mut some, mut told) = (false, false);
    // A bound, in case that the other end writes for ever.
    for _ in 0..256 {
        match file.read(&mut dropped) {
            // A peer that writes and goes has notified us; the next look finds that it has gone.
            Ok(0) if some => break,
            Ok(0) => return Found::Gone,
            Ok(bytes) => {
                some = true;
                match payload.strip_prefix(&dropped[..bytes]) {
                    Some(rest) => payload = rest,
                    None => told = true,
                }
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock || some => break,
            Err(_) => return Found::Gone,
        }
    }
    // A part of the payload counts as a notification: better one pass too many than one too few.
    if told || some && !payload.is_empty() {
        Found::Pressure
    } else {
        Found::Nothing
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// A FIFO with its other end, which has not read the payload.
    fn fifo(name: &str) -> (Source, File) {
        let path =
            std::env::temp_dir().join(format!("stillpoint-source-{}-{name}", std::process::id()));
        rustix::fs::mkfifoat(rustix::fs::CWD, &path, 0o600.into()).unwrap();
        let other = options(true, true).open(&path).unwrap();
        let source = Source::open(&path, Some(b"payload")).unwrap();
        fs::remove_file(&path).unwrap();
        (source, other)
    }

    fn queued(source: &Source) -> u64 {
        ioctl_fionread(&source.file).unwrap()
    }

    #[test]
    fn unread_payload_is_taken_back_after_a_timeout() {
        let (mut source, _other) = fifo("back");
        assert!(source.is_others());
        source.unread.as_mut().unwrap().until = clock::now();
        assert!(!source.is_others());
        assert_eq!(
            (source.take_in(PollFlags::IN), queued(&source)),
            (Found::Nothing, 0)
        );
    }

    #[test]
    fn input_beside_the_payload_is_pressure() {
        for (taken, written) in [(0, "x"), (7, "x"), (3, "payload"), (7, "payloadpayload")] {
            let (mut source, mut other) = fifo(&format!("{taken}-{written}"));
            other.read_exact(&mut [0; 8][..taken]).unwrap();
            other.write_all(written.as_bytes()).unwrap();
            if let Some(unread) = source.unread.as_mut().filter(|_| taken > 0) {
                unread.until = clock::now();
            }
            assert!(!source.is_others(), "{taken}, {written}");
            assert_eq!(
                (source.take_in(PollFlags::IN), queued(&source)),
                (Found::Pressure, 0),
                "{taken}, {written}"
            );
            assert_eq!(source.take_in(PollFlags::IN), Found::Nothing);
        }
    }

    #[test]
    fn partly_read_payload_is_waited_for() {
        let (mut source, mut other) = fifo("reading");
        other.read_exact(&mut [0; 3]).unwrap();
        let begun = clock::now();
        assert!(source.is_others() || clock::now() > begun + READING);
        assert!(
            source
                .unread
                .as_ref()
                .is_some_and(|unread| unread.until <= clock::now() + READING)
        );
        other.read_exact(&mut [0; 4]).unwrap();
        assert!(!source.is_others() && source.unread.is_none());
        other.write_all(b"payload").unwrap();
        assert_eq!(source.take_in(PollFlags::IN), Found::Pressure);
    }
}
