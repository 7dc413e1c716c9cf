//! Memory pressure: being told that memory is short, as systemd's protocol has it, and a pass each time.
//!
//! The protocol: `$MEMORY_PRESSURE_WATCH` is a path to a file, and `$MEMORY_PRESSURE_WRITE`, if set, what to write to it first, in
//! base64. What kind of file it is says how to wait:
//!
//! | | what is waited for | then |
//! |---|---|---|
//! | `memory.pressure` of a control group, or `/proc/pressure/memory` | `POLLPRI` | nothing is read |
//! | a FIFO | `POLLIN` | what there is is read and dropped |
//! | a socket (`AF_UNIX`, stream; connected to) | `POLLIN` | the same |
//! | `/dev/null` | nothing: the program is told not to watch | |
//!
//! A file that goes away, or a peer that closes, is looked for again once a second.

use super::{Hierarchy, Relieved};
use crate::platform::{
    clock,
    fork::{self, Process},
    thread, user_code,
};
use base64ct::{Base64, Encoding};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::{
    env,
    error::Error,
    ffi::OsStr,
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, ErrorKind, Read, Write},
    net::Shutdown,
    os::{
        fd::{AsFd, BorrowedFd},
        unix::{
            fs::{FileTypeExt, MetadataExt, OpenOptionsExt},
            net::UnixStream,
        },
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

/// Tasks have lost 200 ms out of 2 s, which is also the shortest window that the kernel allows everybody. The kernel takes the last byte for
/// the end.
const DEFAULT: &[u8] = b"some 200000 2000000\0";

/// The system's own file.
const SYSTEM: &str = "/proc/pressure/memory";

/// How long until a file that has gone is looked for again.
const RETRY: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };

type After = Box<dyn FnMut(&Relieved) + Send>;

/// What to watch, and what to do about it.
///
/// ```no_run
/// use stillpoint::list_lru::{Hierarchy, PressureWatch};
/// let hierarchy = Hierarchy::new();
/// let _pressure = match PressureWatch::from_env()? {
///     Some(watch) => Some(watch.target(64 << 20).start(&hierarchy)?),
///     None => None,
/// };
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "nothing is watched before `start`"]
pub struct PressureWatch {
    path: PathBuf,
    payload: Option<Vec<u8>>,
    target: Option<u64>,
    after: Option<After>,
}

impl PressureWatch {
    /// Watches `path`, one of those in [the protocol](https://systemd.io/MEMORY_PRESSURE), and writes nothing to it.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), payload: None, target: None, after: None }
    }

    /// What the service manager has said in the environment; `None` if it has said nothing, or, by `/dev/null` in
    /// `$MEMORY_PRESSURE_WATCH`, not to watch: then [`PressureWatch::system`] is not wanted, either.
    ///
    /// # Errors
    ///
    /// If `$MEMORY_PRESSURE_WRITE` is no base64.
    pub fn from_env() -> Result<Option<Self>, PressureError> {
        let watch = env::var_os("MEMORY_PRESSURE_WATCH");
        Self::from_variables(watch.as_deref(), env::var_os("MEMORY_PRESSURE_WRITE").as_deref())
    }

    /// As [`PressureWatch::from_env`], with the variables' values handed in.
    ///
    /// # Errors
    ///
    /// If `write` is no base64.
    pub fn from_variables(watch: Option<&OsStr>, write: Option<&OsStr>) -> Result<Option<Self>, PressureError> {
        let Some(path) = watch.filter(|path| !path.is_empty()).map(PathBuf::from) else { return Ok(None) };
        if is_null(&path) {
            return Ok(None);
        }
        let payload = write.filter(|write| !write.is_empty()).map(|write| {
            let text = write.to_str().ok_or(PressureError::Payload)?;
            let text: String = text.split_ascii_whitespace().collect();
            Base64::decode_vec(&text).map_err(|_| PressureError::Payload)
        });
        Ok(Some(Self { payload: payload.transpose()?, ..Self::new(path) }))
    }

    /// Watches this process's control group, or, where that cannot be, the whole system: 200 ms lost in 2 s.
    ///
    /// Whether it can be is found out by [`PressureWatch::start`].
    pub fn system() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").ok().and_then(|groups| {
            let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
            let path = Path::new("/sys/fs/cgroup").join(group).join("memory.pressure");
            OpenOptions::new().write(true).open(&path).is_ok().then_some(path)
        });
        Self::new(own.unwrap_or_else(|| SYSTEM.into())).payload(DEFAULT)
    }

    /// What is written to the file once it is open, as it is.
    pub fn payload(self, bytes: impl Into<Vec<u8>>) -> Self {
        Self { payload: Some(bytes.into()), ..self }
    }

    /// Each pass goes on until the hierarchy uses no more than `bytes`; a quarter less than at its beginning, if this is not said.
    pub fn target(self, bytes: u64) -> Self {
        Self { target: Some(bytes), ..self }
    }

    /// Has `after` called on the watching thread after each pass: to give what was freed back to the system (`malloc_trim`), say. If
    /// it panics that is contained.
    pub fn after_pass(self, after: impl FnMut(&Relieved) + Send + 'static) -> Self {
        Self { after: Some(Box::new(after)), ..self }
    }

    /// Opens the file and starts a thread that waits. It watches until what is returned is dropped.
    ///
    /// # Errors
    ///
    /// If the file is not there, refuses to be opened or written to, or is none of those in the protocol; if there is no thread. If it is
    /// `/dev/null` the program has been told not to watch: nothing is started, and all is well.
    pub fn start(self, hierarchy: &Hierarchy) -> Result<Pressure, PressureError> {
        let state = Arc::new(State::default());
        if is_null(&self.path) {
            return Ok(Pressure { state, thread: None });
        }
        let source = self.open()?;
        state.watching.store(true, Ordering::Release);
        let (stop, stopped) = UnixStream::pair().map_err(PressureError::Thread)?;
        let watcher = Watcher { watch: self, hierarchy: hierarchy.clone(), state: Arc::clone(&state), stopped };
        let start = || thread::spawn("stillpoint/psi".to_owned(), move || watcher.run(source));
        let handle = thread::without_signals(start).map_err(PressureError::Thread)?;
        Ok(Pressure { state, thread: Some(Running { handle, stop, process: fork::process() }) })
    }

    fn open(&self) -> Result<Source, PressureError> {
        let refused = |source| PressureError::Refused { path: self.path.clone(), source };
        let kind = fs::metadata(&self.path).map_err(refused)?;
        let open = |write| {
            let flags = libc::O_NONBLOCK | libc::O_CLOEXEC | libc::O_NOCTTY;
            OpenOptions::new().read(true).write(write).custom_flags(flags).open(&self.path)
        };
        let mut source = if kind.file_type().is_socket() {
            let socket = UnixStream::connect(&self.path).map_err(refused)?;
            socket.set_nonblocking(true).map_err(refused)?;
            Source::Socket(socket)
        } else if kind.file_type().is_fifo() {
            // For writing too, so that it does not end when the last writer closes it.
            let file = open(true).or_else(|error| if self.payload.is_none() { open(false) } else { Err(error) });
            Source::Fifo(file.map_err(refused)?)
        } else if kind.is_file() {
            let file = open(self.payload.is_some()).map_err(refused)?;
            // Others are always ready, or never.
            const PROC: i64 = 0x9fa0;
            const CGROUP2: i64 = 0x6367_7270;
            let system = rustix::fs::fstatfs(&file).map_err(|error| refused(error.into()))?.f_type;
            #[allow(clippy::unnecessary_cast, reason = "it has another type on other processors")]
            if ![PROC, CGROUP2].contains(&(system as i64)) {
                return Err(PressureError::Kind(self.path.clone()));
            }
            Source::Stall(file)
        } else {
            return Err(PressureError::Kind(self.path.clone()));
        };
        if let Some(payload) = &self.payload {
            source.write(payload).map_err(refused)?;
        }
        Ok(source)
    }
}

impl fmt::Debug for PressureWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut watch = f.debug_struct("PressureWatch");
        watch.field("path", &self.path).field("payload", &self.payload).field("target", &self.target).finish_non_exhaustive()
    }
}

/// Whether a path names the device that is never ready.
fn is_null(path: &Path) -> bool {
    const NULL: u64 = 1 << 8 | 3;
    path == Path::new("/dev/null") || fs::metadata(path).is_ok_and(|it| it.file_type().is_char_device() && it.rdev() == NULL)
}

/// A watch under way. Dropping it ends it: waits for a pass under way, unless it is dropped after one on that very thread.
///
/// In the child of a fork nobody watches; start another one there.
#[derive(Debug)]
#[must_use = "dropping it ends the watch"]
pub struct Pressure {
    state: Arc<State>,
    thread: Option<Running>,
}

#[derive(Debug)]
struct Running {
    handle: thread::Handle,
    /// Shutting it down wakes the thread.
    stop: UnixStream,
    process: Process,
}

#[derive(Debug, Default)]
struct State {
    watching: AtomicBool,
    events: AtomicU64,
    objects: AtomicU64,
    /// The token of the thread that watches.
    token: AtomicU64,
}

impl Pressure {
    /// How often memory was said to be short. A pass has been run each time.
    #[must_use]
    pub fn events(&self) -> u64 {
        self.state.events.load(Ordering::Acquire)
    }

    /// How many objects shrinkers have freed in those passes.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.state.objects.load(Ordering::Relaxed)
    }

    /// Whether the file is open: not, if it is `/dev/null`, or has gone away and not come back yet.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        self.state.watching.load(Ordering::Acquire)
    }
}

impl Drop for Pressure {
    fn drop(&mut self) {
        let Some(Running { handle, stop, process }) = self.thread.take() else { return };
        if process != fork::process() {
            // Of the parent, whose watch goes on: there is nothing to wait for, and nothing to detach.
            std::mem::forget(handle);
            return;
        }
        // Not by closing: a child of a fork may have a copy. It has been heard even if this says that nobody is there any more.
        let _ = stop.shutdown(Shutdown::Both);
        let own = self.state.token.load(Ordering::Relaxed) == thread::token().get();
        if !own {
            handle.join();
        }
    }
}

/// The file, by what is waited for.
enum Source {
    Stall(File),
    Fifo(File),
    Socket(UnixStream),
}

impl Source {
    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stall(file) | Self::Fifo(file) => file.write_all(bytes),
            Self::Socket(socket) => socket.write_all(bytes),
        }
    }

    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Stall(file) | Self::Fifo(file) => file.as_fd(),
            Self::Socket(socket) => socket.as_fd(),
        }
    }

    fn interest(&self) -> PollFlags {
        if let Self::Stall(_) = self { PollFlags::PRI } else { PollFlags::IN }
    }

    /// What is to be told, of which there may be much, is that there is something. Whether it goes on.
    fn take_in(&mut self) -> bool {
        let reader: &mut dyn Read = match self {
            Self::Stall(_) => return true,
            Self::Fifo(file) => file,
            Self::Socket(socket) => socket,
        };
        let mut dropped = [0; 4096];
        let mut told = false;
        // Not for ever, if somebody writes for ever.
        for _ in 0..256 {
            match reader.read(&mut dropped) {
                // Who writes and goes has told something; that it has gone is found at the next look.
                Ok(0) => return told,
                Ok(_) => told = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return told || error.kind() == ErrorKind::WouldBlock,
            }
        }
        true
    }
}

struct Watcher {
    watch: PressureWatch,
    hierarchy: Hierarchy,
    state: Arc<State>,
    stopped: UnixStream,
}

enum Heard {
    Stop,
    Pressure,
    Nothing,
    Gone,
}

impl Watcher {
    fn run(mut self, source: Source) {
        self.state.token.store(thread::token().get(), Ordering::Relaxed);
        let (mut source, mut opened) = (Some(source), clock::now());
        loop {
            match self.listen(source.as_mut()) {
                Heard::Stop => return,
                Heard::Pressure => self.relieve(),
                Heard::Nothing => {}
                Heard::Gone => source = None,
            }
            while source.is_none() {
                self.state.watching.store(false, Ordering::Release);
                // One that goes as soon as it has come must not keep a processor busy.
                let soon = clock::now() < opened + 1_000_000_000 * RETRY.tv_sec.cast_unsigned();
                if soon && matches!(self.listen(None), Heard::Stop) {
                    return;
                }
                (source, opened) = (self.watch.open().ok(), clock::now());
                self.state.watching.store(source.is_some(), Ordering::Release);
            }
        }
    }

    /// Waits for something: without a file, until it is time to look for it again.
    fn listen(&self, source: Option<&mut Source>) -> Heard {
        let Some(source) = source else {
            let mut fds = [PollFd::new(&self.stopped, PollFlags::IN)];
            let _ = poll(&mut fds, Some(&RETRY));
            return if fds[0].revents().is_empty() { Heard::Nothing } else { Heard::Stop };
        };
        let (stop, heard) = {
            let fd = source.fd();
            let mut fds = [PollFd::new(&self.stopped, PollFlags::IN), PollFd::new(&fd, source.interest())];
            if poll(&mut fds, None).is_err() {
                // Interrupted, or want of memory in the kernel.
                return Heard::Nothing;
            }
            (fds[0].revents(), fds[1].revents())
        };
        let told = heard.intersects(source.interest());
        let gone = heard.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL);
        if !stop.is_empty() {
            return Heard::Stop;
        }
        // For a file whose group has gone the kernel sets both.
        let told = told && !(gone && matches!(source, Source::Stall(_)));
        match (told, gone) {
            (true, _) if source.take_in() => Heard::Pressure,
            (false, false) => Heard::Nothing,
            _ => Heard::Gone,
        }
    }

    fn relieve(&mut self) {
        let relieved = match self.watch.target {
            Some(target) => self.hierarchy.relieve_to(target),
            None => self.hierarchy.relieve(),
        };
        if let Some(after) = &mut self.watch.after {
            user_code::panics(user_code::NO_DOMAIN, || after(&relieved));
        }
        self.state.objects.fetch_add(relieved.objects, Ordering::Relaxed);
        self.state.events.fetch_add(1, Ordering::Release);
    }
}

/// Why nothing is watched.
#[derive(Debug)]
#[non_exhaustive]
pub enum PressureError {
    /// `$MEMORY_PRESSURE_WRITE` is no base64.
    Payload,
    /// The file is none that can be watched.
    Kind(PathBuf),
    /// The file is not there, or refuses to be opened, or what is written to it.
    Refused {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no thread, or no file descriptor, to be had.
    Thread(io::Error),
}

impl fmt::Display for PressureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Payload => f.write_str("$MEMORY_PRESSURE_WRITE is no base64; see https://systemd.io/MEMORY_PRESSURE"),
            Self::Kind(path) => write!(
                f,
                "{} is no pressure file of the kernel's, FIFO or socket; name one of these, or /dev/null to watch nothing",
                path.display()
            ),
            Self::Refused { path, source } => {
                write!(f, "cannot watch {}: {source}; is it there, and may this process write to it?", path.display())
            }
            Self::Thread(error) => write!(f, "no thread to watch for memory pressure: {error}"),
        }
    }
}

impl Error for PressureError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Refused { source, .. } | Self::Thread(source) => Some(source),
            Self::Payload | Self::Kind(_) => None,
        }
    }
}
