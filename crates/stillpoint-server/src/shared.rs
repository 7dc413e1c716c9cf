//! What all threads of a server share.

use crate::{
    config::{Settings, Tls},
    directory::Directory,
    lock::lock,
    log::Log,
    net::tls::Certificate,
    store::{ManualClock, Store},
    watch::Watchers,
};
use crossbeam_utils::CachePadded;
use std::{
    collections::BTreeMap,
    fs::{self, Metadata},
    os::unix::fs::MetadataExt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
    time::{Instant, SystemTime, UNIX_EPOCH},
};

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
    /// The part of it that answers take; number of connections with answers, and with a part of a request.
    pub(crate) answer_bytes: AtomicUsize,
    pub(crate) answers: AtomicUsize,
    pub(crate) requests: AtomicUsize,
    /// Clients that came by TLS and left before their handshake was finished.
    pub(crate) handshake_errors: AtomicU64,
    /// When the certificate was read, by the store's clock.
    pub(crate) certificate_read: AtomicU32,
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
    /// What new clients by TLS are shown; `None` without TLS.
    pub(crate) certificate: Mutex<Option<ShownCertificate>>,
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

    /// Returns the seconds since the epoch.
    pub(crate) fn unix_now(&self) -> i64 {
        match &self.debug_clock {
            Some(clock) => self.unix_zero + i64::from(clock.now()),
            None => unix_now(),
        }
    }

    /// Returns the number of the directory, which is higher after each change.
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

    /// Shows a certificate to clients that come from now on. Returns whether its files were written or
    /// replaced since the one before was read, or the settings changed.
    pub(crate) fn show_certificate(&self, shown: ShownCertificate) -> bool {
        let mut current = lock(&self.certificate);
        let is_same = current
            .as_ref()
            .is_some_and(|before| before.files == shown.files && before.versions == shown.versions);
        *current = Some(shown);
        drop(current);
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

/// A certificate, and where it was read.
pub(crate) struct ShownCertificate {
    pub(crate) files: Tls,
    pub(crate) certificate: Certificate,
    /// The versions of the files, not newer than what was read.
    versions: Vec<Option<Version>>,
}

impl ShownCertificate {
    /// Reads the certificate.
    pub(crate) fn load(files: &Tls) -> Result<Self, String> {
        // Not by what is in them: one may be a pipe. Before they are read: one that is replaced meanwhile
        // has another version at the next call.
        let versions = files
            .files()
            .map(|path| Some(version(&fs::metadata(path).ok()?)))
            .collect();
        let certificate = Certificate::load(files)?;
        Ok(Self {
            files: files.clone(),
            certificate,
            versions,
        })
    }
}

/// Device, number, size and last change of a file.
type Version = (u64, u64, u64, i64, i64);

fn version(file: &Metadata) -> Version {
    let (seconds, nanos) = (file.ctime(), file.ctime_nsec());
    (file.dev(), file.ino(), file.size(), seconds, nanos)
}

/// Returns the seconds since the epoch by the system's clock.
fn unix_now() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_secs()).unwrap_or(i64::MAX)
}

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;
    use crate::tests::{make_fifo, new_path, write_private};
    use std::{io, thread};

    /// Detects a version that is newer than what was read: SIGHUP would not show that the file has changed.
    #[test]
    fn a_file_that_is_replaced_while_they_are_read_has_its_version_before() {
        let directory = new_path("shown");
        fs::create_dir(&directory).unwrap();
        let (chain, key) = (directory.join("chain"), directory.join("key"));
        let pair = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap();
        let certificate = params.self_signed(&pair).unwrap().pem();
        let write_key = |path: &std::path::Path| write_private(path, &pair.serialize_pem());
        write_key(&key);
        let before = version(&fs::metadata(&key).unwrap());
        // Reading the chain waits until the other thread writes it.
        make_fifo(&chain);
        let files = Tls {
            chain: chain.clone(),
            key: key.clone(),
            ..Tls::default()
        };
        let loaded = thread::scope(|scope| {
            let loading = scope.spawn(|| ShownCertificate::load(&files));
            let mut pipe = fs::OpenOptions::new().write(true).open(&chain).unwrap();
            let new = directory.join("new");
            write_key(&new);
            fs::rename(&new, &key).unwrap();
            io::Write::write_all(&mut pipe, certificate.as_bytes()).unwrap();
            drop(pipe);
            loading.join().unwrap()
        });
        let loaded = loaded.unwrap();
        assert_ne!(before, version(&fs::metadata(&key).unwrap()));
        assert_eq!(loaded.versions[1], Some(before));
    }
}
