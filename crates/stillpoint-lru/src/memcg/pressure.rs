//! Memory pressure: waits for notifications by systemd's protocol, and runs a reclaim pass for
//! each.
//!
//! In that protocol `$MEMORY_PRESSURE_WATCH` is a path to a file, and `$MEMORY_PRESSURE_WRITE`, if
//! set, is what to write to it first, in base64. The kind of the file says how to wait:
//!
//! | | what is waited for | then |
//! |---|---|---|
//! | `memory.pressure` of a control group, or `/proc/pressure/memory` | `POLLPRI` | nothing is read |
//! | a FIFO | `POLLIN` | the input is read and dropped; see `source.rs` for the payload |
//! | a socket (`AF_UNIX`, stream; connected to) | `POLLIN` | the same |
//! | `/dev/null` | nothing: the program is told not to watch | |
//!
//! If a file goes away, or a peer closes or takes no connection, the watch tries again: at once,
//! after a tenth of a second, and then more and more rarely, at last once a second. The thread
//! blocks only in `poll`, which the end of the watch wakes, and in user code.

mod error;
mod source;

pub use error::PressureError;

use super::hierarchy::Hierarchy;
use crate::statistics::Reclaimed;
use base64ct::{Base64, Encoding};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use source::{Found, LOOK, Source};
use std::{
    env,
    ffi::OsStr,
    fmt, fs,
    net::Shutdown,
    os::unix::{
        fs::{FileTypeExt, MetadataExt},
        net::UnixStream,
    },
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use stillpoint_platform::{
    clock::{self, Nanos},
    fork::{self, Process},
    thread, user_code,
};

/// The threshold of [`PressureWatch::system`]: tasks have lost 200 ms out of 2 s, the shortest window
/// that the kernel allows unprivileged processes. The kernel takes the last byte for the end.
const DEFAULT: &[u8] = b"some 200000 2000000\0";

/// The system's own file.
const SYSTEM: &str = "/proc/pressure/memory";

/// The first wait, doubled each time, and the longest wait until a file that has gone is opened again,
/// in nanoseconds. The first attempt comes at once if the file had been open for [`LAST_RETRY`].
const FIRST_RETRY: Nanos = 100_000_000;
const LAST_RETRY: Nanos = 1_000_000_000;

/// Shortest time from the end of a pass to the next one, in nanoseconds: a peer that writes without end
/// must not keep a processor busy. The kernel notifies twice a second at most.
const GAP: Nanos = 100_000_000;

type After = Box<dyn FnMut(&Reclaimed) + Send>;

/// Configures what to watch and what to do about it.
///
/// ```no_run
/// use stillpoint_lru::{Hierarchy, PressureWatch};
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
    /// Creates a watch of `path`, a file of a kind in [the
    /// protocol](https://systemd.io/MEMORY_PRESSURE), to which nothing is written.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            payload: None,
            target: None,
            after: None,
        }
    }

    /// Creates the watch that the service manager asks for in the environment. Returns `None` if it
    /// set nothing, or `/dev/null` in `$MEMORY_PRESSURE_WATCH`, which means not to watch: then do not
    /// use [`PressureWatch::system`] either.
    ///
    /// # Errors
    ///
    /// If `$MEMORY_PRESSURE_WRITE` is not base64.
    pub fn from_env() -> Result<Option<Self>, PressureError> {
        let watch = env::var_os("MEMORY_PRESSURE_WATCH");
        Self::from_variables(
            watch.as_deref(),
            env::var_os("MEMORY_PRESSURE_WRITE").as_deref(),
        )
    }

    /// Like [`PressureWatch::from_env`], with the values of the two variables.
    ///
    /// # Errors
    ///
    /// If `write` is not base64.
    pub fn from_variables(
        watch: Option<&OsStr>,
        write: Option<&OsStr>,
    ) -> Result<Option<Self>, PressureError> {
        let Some(path) = watch.filter(|path| !path.is_empty()).map(PathBuf::from) else {
            return Ok(None);
        };
        if is_null(&path) {
            return Ok(None);
        }
        let payload = write.filter(|write| !write.is_empty()).map(|write| {
            let text = write.to_str().ok_or(PressureError::Payload)?;
            let text: String = text.split_ascii_whitespace().collect();
            Base64::decode_vec(&text).map_err(|_| PressureError::Payload)
        });
        Ok(Some(Self {
            payload: payload.transpose()?,
            ..Self::new(path)
        }))
    }

    /// Creates a watch of this process's control group, with a threshold of 200 ms lost in 2 s. Watches
    /// the whole system only if the process is in the system's root group and that has no file: another
    /// group's stalls are no reason to free memory here. If version 1 of control groups manages memory,
    /// the process must be in the root group there, too.
    ///
    /// [`PressureWatch::start`] reports whether the file can be watched.
    pub fn system() -> Self {
        let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        Self::new(file_of(&groups, Path::exists)).payload(DEFAULT)
    }

    /// Returns the file that is watched.
    ///
    /// ```
    /// use std::path::Path;
    /// use stillpoint_lru::PressureWatch;
    ///
    /// let watch = PressureWatch::new("/run/pressure");
    /// assert_eq!(watch.path(), Path::new("/run/pressure"));
    /// ```
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the bytes that are written to the file once it is open.
    pub fn payload(mut self, bytes: impl Into<Vec<u8>>) -> Self {
        self.payload = Some(bytes.into());
        self
    }

    /// Sets the usage of the hierarchy, in bytes, at which a pass ends. By default it is a quarter
    /// less than at the beginning of the pass.
    pub fn target(mut self, bytes: u64) -> Self {
        self.target = Some(bytes);
        self
    }

    /// Calls `after` on the watching thread after each pass, for example to give freed memory back
    /// to the system (`malloc_trim`). A panic of it is contained, and counted by
    /// [`Pressure::panics`]. Its destructor runs on that thread, too, and its panic is contained.
    pub fn after_pass(mut self, after: impl FnMut(&Reclaimed) + Send + 'static) -> Self {
        self.after = Some(Box::new(after));
        self
    }

    /// Opens the file and starts a thread that watches it until the returned value is dropped. Does
    /// not block. If the file is `/dev/null`, the program has been told not to watch, and nothing is
    /// started.
    ///
    /// A payload for a FIFO that no process has open for reading is not written, as the program
    /// would only read it itself.
    ///
    /// # Errors
    ///
    /// If the file does not exist, cannot be opened or written to, or is of no kind in the protocol;
    /// if no thread can be started. If the file is a socket whose backlog is full, the error is
    /// [`PressureError::Refused`] with [`ErrorKind::WouldBlock`](std::io::ErrorKind::WouldBlock): try
    /// again later.
    pub fn start(self, hierarchy: &Hierarchy) -> Result<Pressure, PressureError> {
        let state = Arc::new(State::default());
        if is_null(&self.path) {
            return Ok(Pressure {
                state,
                thread: None,
            });
        }
        let source = self.open()?;
        // Release, pairs with `is_watching`: the file is open for a thread that sees it.
        state.watching.store(true, Ordering::Release);
        let (stop, stopped) = UnixStream::pair().map_err(PressureError::Thread)?;
        let process = fork::process();
        let watcher = Watcher {
            watch: self,
            hierarchy: hierarchy.clone(),
            state: Arc::clone(&state),
            stopped,
            process,
        };
        let handle = thread::spawn("stillpoint/psi", move || watcher.run(source))
            .map_err(PressureError::Thread)?;
        Ok(Pressure {
            state,
            thread: Some(Running {
                handle,
                stop,
                process,
            }),
        })
    }

    fn open(&self) -> Result<Source, PressureError> {
        Source::open(&self.path, self.payload.as_deref())
    }
}

impl fmt::Debug for PressureWatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut watch = f.debug_struct("PressureWatch");
        watch
            .field("path", &self.path)
            .field("payload", &self.payload)
            .field("target", &self.target)
            .finish_non_exhaustive()
    }
}

/// Returns the pressure file of a process whose `/proc/self/cgroup` has the text `groups`. A container
/// may see its own group as the root: unlike the system's root, that has the file `cgroup.type`.
fn file_of(groups: &str, exists: impl Fn(&Path) -> bool) -> PathBuf {
    let root = Path::new("/sys/fs/cgroup");
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"));
    let own = root.join(group.unwrap_or_default()).join("memory.pressure");
    let is_in_root = group == Some("")
        && !groups.lines().any(is_memory_below_root)
        && !exists(&root.join("cgroup.type"));
    if is_in_root && !exists(&own) {
        SYSTEM.into()
    } else {
        own
    }
}

/// Returns whether a line of `/proc/self/cgroup` is that of the memory controller of version 1, and
/// names another group than the root.
fn is_memory_below_root(line: &str) -> bool {
    let mut fields = line.splitn(3, ':').skip(1);
    let controllers = fields.next().unwrap_or_default();
    controllers.split(',').any(|it| it == "memory") && fields.next() != Some("/")
}

/// Returns whether a path names the device that is never ready.
fn is_null(path: &Path) -> bool {
    const NULL: u64 = 1 << 8 | 3;
    path == Path::new("/dev/null")
        || fs::metadata(path).is_ok_and(|it| it.file_type().is_char_device() && it.rdev() == NULL)
}

/// A running watch. Dropping it ends the watch and waits for a pass under way, unless the watching
/// thread itself drops it.
///
/// In the child of a fork no thread watches; start another watch there.
#[must_use = "dropping it ends the watch"]
pub struct Pressure {
    state: Arc<State>,
    thread: Option<Running>,
}

struct Running {
    handle: thread::Handle,
    /// Shutting it down wakes the thread.
    stop: UnixStream,
    process: Process,
}

#[derive(Default)]
struct State {
    watching: AtomicBool,
    /// Set at the end of the watch, for a thread that cannot poll.
    stop: AtomicBool,
    events: AtomicU64,
    coalesced: AtomicU64,
    panics: AtomicU64,
    objects: AtomicU64,
    /// Token of the thread that watches.
    token: AtomicU64,
}

impl Pressure {
    /// Returns the number of passes run because of memory pressure.
    #[must_use]
    pub fn events(&self) -> u64 {
        // Acquire, pairs with `run_pass`: what the passes that are counted did is seen.
        self.state.events.load(Ordering::Acquire)
    }

    /// Returns the number of passes that were put off because a notification came less than a tenth
    /// of a second after a pass. Such a pass stands for all notifications until it begins: so there
    /// are at most ten passes in a second, however much a peer writes.
    #[must_use]
    pub fn coalesced(&self) -> u64 {
        self.state.coalesced.load(Ordering::Relaxed)
    }

    /// Returns the number of objects that shrinkers have freed in those passes.
    #[must_use]
    pub fn objects(&self) -> u64 {
        self.state.objects.load(Ordering::Relaxed)
    }

    /// Returns how often a pass, or the function called [after](PressureWatch::after_pass) it, has
    /// panicked; the watch goes on. [`Registration::panics`](super::Registration::panics) counts
    /// panics of shrinkers.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.state.panics.load(Ordering::Relaxed)
    }

    /// Returns whether a thread watches and the file is open. False for `/dev/null`, while a file
    /// that has gone away is not back yet, and in the child of a fork.
    #[must_use]
    pub fn is_watching(&self) -> bool {
        let here = self
            .thread
            .as_ref()
            .is_some_and(|thread| thread.process == fork::process());
        // Acquire, pairs with `start`, `run` and `watch`: the file is open, or closed, as they
        // found it.
        here && self.state.watching.load(Ordering::Acquire)
    }
}

impl fmt::Debug for Pressure {
    /// Shows the counts of the watch.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pressure")
            .field("watching", &self.is_watching())
            .field("events", &self.events())
            .field("coalesced", &self.coalesced())
            .field("objects", &self.objects())
            .field("panics", &self.panics())
            .finish()
    }
}

impl Drop for Pressure {
    fn drop(&mut self) {
        let Some(running) = self.thread.take() else {
            return;
        };
        if running.process != fork::process() {
            // The thread is the parent's, where the watch goes on: there is nothing to wait for or
            // to detach.
            return std::mem::forget(running.handle);
        }
        self.state.stop.store(true, Ordering::Relaxed);
        // Not by closing: a child of a fork may have a copy. If this fails, the other end is closed,
        // and the thread has ended.
        let _ = running.stop.shutdown(Shutdown::Both);
        if self.state.token.load(Ordering::Relaxed) != thread::token().get() {
            running.handle.join();
        }
    }
}

struct Watcher {
    watch: PressureWatch,
    hierarchy: Hierarchy,
    state: Arc<State>,
    stopped: UnixStream,
    process: Process,
}

impl Watcher {
    fn run(mut self, source: Source) {
        self.state
            .token
            .store(thread::token().get(), Ordering::Relaxed);
        let state = Arc::clone(&self.state);
        let _ = user_code::contained(|| self.watch(source));
        // However the watch has ended.
        // Release, pairs with `is_watching`: a thread that sees its end sees what the watch did.
        state.watching.store(false, Ordering::Release);
        user_code::panics(user_code::NO_DOMAIN, move || drop(self));
    }

    fn watch(&mut self, mut source: Source) {
        let (mut opened, mut retry, mut last_pass) = (clock::now(), FIRST_RETRY, None);
        loop {
            match self.listen(&mut source) {
                None => return,
                Some(Found::Pressure) => {
                    if !self.run_pass(&mut source, last_pass) {
                        return;
                    }
                    last_pass = Some(clock::now());
                }
                Some(Found::Nothing) => {}
                Some(Found::Gone) => {
                    // Release, pairs with `is_watching`: a thread that sees it gone sees the passes
                    // before.
                    self.state.watching.store(false, Ordering::Release);
                    if clock::now() > opened + LAST_RETRY {
                        retry = 0;
                    }
                    source = loop {
                        // A file that disappears as soon as it appears must not keep a processor
                        // busy.
                        if self.pauses(retry) {
                            return;
                        }
                        retry = (2 * retry).clamp(FIRST_RETRY, LAST_RETRY);
                        if let Ok(source) = self.watch.open() {
                            break source;
                        }
                    };
                    opened = clock::now();
                    // Release, pairs with `is_watching`: the file is open again for a thread that
                    // sees it.
                    self.state.watching.store(true, Ordering::Release);
                }
            }
        }
    }

    /// Waits for `nanos` at most. Returns whether the watch ends.
    fn pauses(&self, nanos: Nanos) -> bool {
        let mut fds = [PollFd::new(&self.stopped, PollFlags::IN)];
        self.polls(&mut fds, Some(nanos)) && !fds[0].revents().is_empty()
            || self.state.stop.load(Ordering::Relaxed)
    }

    /// Polls, and returns whether that succeeded. If not, it has slept for a moment, so that trying
    /// again keeps no processor busy.
    fn polls(&self, fds: &mut [PollFd<'_>], nanos: Option<Nanos>) -> bool {
        let timeout = nanos.map(|nanos| Timespec {
            tv_sec: (nanos / 1_000_000_000).cast_signed(),
            tv_nsec: (nanos % 1_000_000_000).cast_signed(),
        });
        let polled = poll(fds, timeout.as_ref()).is_ok();
        if !polled {
            // Interrupted, without memory in the kernel, or beyond what the process may have open.
            std::thread::sleep(Duration::from_nanos(LOOK));
        }
        polled
    }

    /// Waits for the source. Returns `None` if the watch ends.
    fn listen(&self, source: &mut Source) -> Option<Found> {
        if source.is_others() {
            return (!self.pauses(LOOK)).then_some(Found::Nothing);
        }
        let heard = {
            let fd = source.fd();
            let mut fds = [
                PollFd::new(&self.stopped, PollFlags::IN),
                PollFd::new(&fd, source.interest()),
            ];
            let polled = self.polls(&mut fds, None);
            if polled && !fds[0].revents().is_empty() || self.state.stop.load(Ordering::Relaxed) {
                return None;
            }
            if polled {
                fds[1].revents()
            } else {
                PollFlags::empty()
            }
        };
        Some(source.take_in(heard))
    }

    /// Runs a pass, not too soon after the last. Returns whether the watch goes on.
    fn run_pass(&mut self, source: &mut Source, last_pass: Option<Nanos>) -> bool {
        let wait = last_pass.map_or(0, |last| (last + GAP).saturating_sub(clock::now()));
        if wait > 0 {
            self.state.coalesced.fetch_add(1, Ordering::Relaxed);
            if self.pauses(wait) {
                return false;
            }
            // This pass also answers the input that has come meanwhile. If the other end has gone,
            // the next look finds that.
            source.drop_input();
        }
        let mut reclaimed = Reclaimed::default();
        let pass = || match self.watch.target {
            Some(target) => self.hierarchy.reclaim_to(target),
            None => self.hierarchy.reclaim(),
        };
        let mut panics = u64::from(user_code::contained(|| reclaimed = pass()).is_none());
        if let Some(after) = &mut self.watch.after {
            panics += u64::from(user_code::panics(user_code::NO_DOMAIN, || {
                after(&reclaimed)
            }));
        }
        self.state.panics.fetch_add(panics, Ordering::Relaxed);
        self.state
            .objects
            .fetch_add(reclaimed.objects, Ordering::Relaxed);
        // Release, pairs with `events`: the pass, its counts included, is over for a thread that
        // sees it counted.
        self.state.events.fetch_add(1, Ordering::Release);
        // User code may have forked, and the child must not read what is for the parent.
        self.process == fork::process()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_watched_only_from_a_root_group_without_a_file() {
        let service = "1:cpu:/\n0::/system.slice/a.service\n";
        let own = "/sys/fs/cgroup/system.slice/a.service/memory.pressure";
        let root = "/sys/fs/cgroup/memory.pressure";
        let group_type = "/sys/fs/cgroup/cgroup.type";
        let [none, has_pressure, has_type, has_both]: [&[&str]; 4] =
            [&[], &[root], &[group_type], &[root, group_type]];
        for (groups, files, file) in [
            (service, &[own][..], own),
            (service, none, own),
            ("0::/\n", has_pressure, root),
            ("0::/\n", none, SYSTEM),
            // The root of a container, where the kernel has pressure files, or not.
            ("0::/\n", has_both, root),
            ("0::/\n", has_type, root),
            // Version 1 manages memory.
            ("4:memory:/some/group\n0::/\n", none, root),
            ("4:cpu,memory:/a:b\n0::/\n", none, root),
            ("4:memory:/\n0::/\n", none, SYSTEM),
            ("5:name=memory:/a\n3:cpu:/a\n0::/\n", none, SYSTEM),
            // No unified hierarchy.
            ("1:cpu:/a\n", none, root),
            ("", none, root),
        ] {
            let exists = |path: &Path| files.iter().any(|it| path == Path::new(it));
            assert_eq!(
                file_of(groups, exists),
                Path::new(file),
                "{groups}{files:?}"
            );
        }
    }
}
