//! What all threads of a server share.

use crate::{
    config::{Settings, Tls},
    log::Log,
    net::tls::Certificate,
    space::Directory,
    store::{ManualClock, Store},
    watch::Watchers,
};
use crossbeam_utils::CachePadded;
use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// Locks, whatever happened to the thread that had it before.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a thread counts for the whole server. Only that thread writes it.
#[derive(Debug, Default)]
pub(crate) struct ThreadCounts {
    pub(crate) bytes_read: AtomicU64,
    pub(crate) bytes_written: AtomicU64,
    pub(crate) yields: AtomicU64,
    pub(crate) auth: AtomicU64,
    pub(crate) auth_errors: AtomicU64,
}

/// Adds to a counter that one thread writes.
#[inline]
pub(crate) fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed) + by, Ordering::Relaxed);
}

/// What `stats conns` says of a connection or a listener.
#[derive(Debug)]
pub(crate) struct Card {
    pub(crate) peer: String,
    pub(crate) local: String,
    pub(crate) transport: &'static str,
    /// The tenant that the client works on, for clients that may ask only about that.
    pub(crate) tenant: Mutex<Arc<str>>,
    /// An index into [`STATES`].
    pub(crate) state: AtomicU8,
    /// The store's clock at the last command.
    pub(crate) last: AtomicU32,
}

/// What a connection may be doing, in memcached's words.
pub(crate) const STATES: [&str; 5] = [
    "conn_listening",
    "conn_read",
    "conn_nread",
    "conn_parse_cmd",
    "conn_mwrite",
];

/// Counters that any thread may write, each rarely.
#[derive(Debug, Default)]
pub(crate) struct Totals {
    pub(crate) connections: Arc<AtomicUsize>,
    /// Of those, clients that have logged in or need not.
    pub(crate) known: Arc<AtomicUsize>,
    pub(crate) connections_total: AtomicU64,
    pub(crate) connections_rejected: AtomicU64,
    pub(crate) accept_paused: AtomicBool,
    pub(crate) accept_pauses: AtomicU64,
    pub(crate) accept_paused_us: AtomicU64,
    pub(crate) idle_kicks: AtomicU64,
    pub(crate) dropped_slow: AtomicU64,
    pub(crate) dropped_memory: AtomicU64,
    /// Of those, connections beyond a limit of buffers, and not without memory of the system.
    pub(crate) over_limit: AtomicU64,
    /// Answers that there was no room for: [`NoRoom::Limit`](crate::output::NoRoom::Limit).
    pub(crate) no_room: AtomicU64,
    pub(crate) buffer_bytes: AtomicUsize,
    /// What of that is kept of answers, of how many connections; how many have part of a request.
    pub(crate) answer_bytes: AtomicUsize,
    pub(crate) answers: AtomicUsize,
    pub(crate) requests: AtomicUsize,
    /// Clients that came by TLS and left before their handshake was finished.
    pub(crate) handshake_errors: AtomicU64,
    /// When the certificate was read, by the store's clock.
    pub(crate) certificate_read: AtomicU32,
}

/// What all threads share.
pub(crate) struct Shared {
    pub(crate) store: Store,
    pub(crate) settings: Settings,
    pub(crate) log: Log,
    pub(crate) watchers: Arc<Watchers>,
    pub(crate) totals: Totals,
    pub(crate) threads: Box<[CachePadded<ThreadCounts>]>,
    pub(crate) cards: Mutex<BTreeMap<i32, Arc<Card>>>,
    pub(crate) started: Instant,
    /// For tests: a clock that clients move, and the system's time when it stood at 0.
    pub(crate) debug_clock: Option<ManualClock>,
    unix_zero: i64,
    /// What new clients by TLS are shown, and where it was read; none without TLS.
    pub(crate) certificate: Mutex<Option<(Tls, Certificate)>>,
    /// The versions of its files, as they were then.
    certificate_versions: Mutex<Vec<Option<Version>>>,
    directory: Mutex<Arc<Directory>>,
    version: AtomicU64,
    stopping: AtomicBool,
    /// Wakes the thread that listens, which wakes the others: the directory has changed, the server
    /// stops, or a thread needs buffers that others have.
    pub(crate) wake: Box<dyn Fn() + Send + Sync>,
}

impl Shared {
    pub(crate) fn new(
        store: Store,
        settings: Settings,
        log: Log,
        debug_clock: Option<ManualClock>,
        wake: Box<dyn Fn() + Send + Sync>,
        watchers: Arc<Watchers>,
    ) -> Self {
        let unix_zero = unix_now() - i64::from(store.now());
        Self {
            threads: (0..settings.threads)
                .map(|_| CachePadded::default())
                .collect(),
            store,
            settings,
            log,
            watchers,
            totals: Totals::default(),
            cards: Mutex::default(),
            started: Instant::now(),
            debug_clock,
            unix_zero,
            certificate: Mutex::default(),
            certificate_versions: Mutex::default(),
            directory: Mutex::default(),
            version: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
            wake,
        }
    }

    /// Returns the most bytes that the buffers of all connections may take.
    pub(crate) fn buffer_limit(&self) -> usize {
        match self.settings.buffer_max {
            0 => usize::MAX,
            most => most,
        }
    }

    /// Seconds since the epoch.
    pub(crate) fn unix_now(&self) -> i64 {
        match &self.debug_clock {
            Some(clock) => self.unix_zero + i64::from(clock.now()),
            None => unix_now(),
        }
    }

    /// The number of the directory, which is higher after each change.
    #[inline]
    pub(crate) fn version(&self) -> u64 {
        // Acquire: pairs with the release in `change`; the directory itself is read under its lock.
        self.version.load(Ordering::Acquire)
    }

    pub(crate) fn directory(&self) -> Arc<Directory> {
        Arc::clone(&lock(&self.directory))
    }

    /// Changes the directory, and wakes all threads, which then take over the new one.
    pub(crate) fn change<R>(&self, f: impl FnOnce(&mut Directory) -> R) -> R {
        let mut current = lock(&self.directory);
        let mut next = Directory::clone(&current);
        let result = f(&mut next);
        next.version += 1;
        let version = next.version;
        *current = Arc::new(next);
        // Release: pairs with the acquire in `version`.
        self.version.store(version, Ordering::Release);
        drop(current);
        (self.wake)();
        result
    }

    /// Shows a certificate, read from those files, to clients that come from now on. Returns whether the
    /// files were written or replaced since the last call, or the settings changed.
    pub(crate) fn show_certificate(&self, files: &Tls, certificate: Certificate) -> bool {
        // Not by what is in them: one may be a pipe.
        let versions = files
            .files()
            .map(|path| Some(version(&fs::metadata(path).ok()?)));
        let versions: Vec<_> = versions.collect();
        let before = lock(&self.certificate).replace((files.clone(), certificate));
        let is_same = versions == *lock(&self.certificate_versions)
            && before.is_some_and(|(before, _)| before == *files);
        *lock(&self.certificate_versions) = versions;
        let now = self.store.now();
        self.totals.certificate_read.store(now, Ordering::Relaxed);
        !is_same
    }

    /// Asks all threads to stop.
    pub(crate) fn stop(&self) {
        // Release: pairs with the acquire in `is_stopping`.
        self.stopping.store(true, Ordering::Release);
        (self.wake)();
    }

    pub(crate) fn is_stopping(&self) -> bool {
        // Acquire: pairs with the release in `stop`.
        self.stopping.load(Ordering::Acquire)
    }
}

/// Device, number, size and last change of a file.
type Version = (u64, u64, u64, i64, i64);

fn version(file: &Metadata) -> Version {
    let (seconds, nanos) = (file.ctime(), file.ctime_nsec());
    (file.dev(), file.ino(), file.size(), seconds, nanos)
}

/// Seconds since the epoch, by the system's clock.
fn unix_now() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}
