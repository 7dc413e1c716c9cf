//! A server: started, reloaded, stopped.

#[cfg(feature = "metrics")]
use crate::metrics::Endpoint;
use crate::{
    config::{Listener, Settings},
    directory::Directory,
    log::{Log, note},
    net::{
        listen::{Acceptor, Open, Told, notify},
        tls,
        wake::Waker,
        worker::{Inbox, Worker},
    },
    pressure,
    reload::Reloads,
    shared::{Shared, ShownCertificate},
    store::{self, Clock, ManualClock, OnEvict, Store, TenantError},
    users::User,
    watch::Watchers,
};
use rustix::fd::{AsFd, OwnedFd};
use std::{
    collections::HashSet,
    io,
    net::SocketAddr,
    sync::{Arc, Weak},
    thread::{self, JoinHandle},
};
use stillpoint_lru::Pressure;

pub use crate::process::main;

/// A server that listens, and serves once [`Server::run`] is called.
///
/// ```
/// use std::{io::{Read, Write}, os::unix::net::UnixStream};
/// use stillpoint_server::{config::{Listener, Settings}, server::Server};
///
/// let path = std::env::temp_dir().join(format!("stillcache-doc-{}", std::process::id()));
/// let listener = Listener::unix(path.clone());
/// let server = Server::start(Settings { listeners: vec![listener], threads: 1, log: false, ..Settings::default() })?;
/// let handle = server.handle();
/// let thread = std::thread::spawn(move || server.run(None));
///
/// let mut client = UnixStream::connect(&path)?;
/// client.write_all(b"set k 0 0 5\r\nvalue\r\n")?;
/// let mut answer = [0; 8];
/// client.read_exact(&mut answer)?;
/// assert_eq!(&answer, b"STORED\r\n");
///
/// handle.stop();
/// thread.join().unwrap();
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Server {
    pub(crate) shared: Arc<Shared>,
    acceptor: Acceptor,
    waker: Arc<Waker>,
    workers: Vec<JoinHandle<()>>,
    #[cfg(feature = "metrics")]
    metrics: Option<Endpoint>,
    /// Evicts until it is dropped.
    pressure: Option<Arc<Pressure>>,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server")
            .field("threads", &self.workers.len())
            .finish_non_exhaustive()
    }
}

/// Stops a server from another thread.
#[derive(Clone)]
pub struct Handle(Arc<Shared>);

impl std::fmt::Debug for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Handle")
    }
}

impl Handle {
    /// Asks the server to stop: connections are closed, [`Server::run`] returns.
    pub fn stop(&self) {
        self.0.stop();
    }

    /// Returns the store that is served.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.0.store
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.end();
    }
}

/// Stops the server if a thread panics: its clients would wait for ever.
pub(crate) struct StopOnPanic(pub(crate) Weak<Shared>);

impl Drop for StopOnPanic {
    fn drop(&mut self) {
        if thread::panicking()
            && let Some(shared) = self.0.upgrade()
        {
            let line = format_args!("a thread has panicked; the server stops");
            shared.log.note(line);
            shared.stop();
        }
    }
}

impl Server {
    /// Makes the store, binds the sockets and starts the threads.
    ///
    /// # Errors
    ///
    /// If the settings are wrong, a socket cannot be bound, a thread cannot be started, or there is no
    /// memory.
    pub fn start(settings: Settings) -> io::Result<Self> {
        Self::start_with(settings, Vec::new())
    }

    /// Starts like [`Server::start`], with sockets that the service manager has opened instead of the settings' own.
    pub fn start_with(mut settings: Settings, inherited: Vec<OwnedFd>) -> io::Result<Self> {
        if !inherited.is_empty() {
            settings.listeners = Listener::inherited(&inherited)?;
            if let Some(flags) = &mut settings.flags {
                // SIGHUP takes the listeners from the flags.
                let flags = Arc::make_mut(flags);
                flags.inherited.clone_from(&settings.listeners);
            }
        }
        settings
            .check()
            .map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        let debug_clock = settings.debug.then(ManualClock::new);
        let watchers = Arc::<Watchers>::default();
        let evictions = Arc::clone(&watchers.evictions);
        let store = Store::new(store::Config {
            on_evict: Some(OnEvict::new(move |evicted| evictions.note(evicted))),
            limit: settings.limit,
            item_max: settings.item_max,
            evict: settings.evict,
            clock: debug_clock.clone().map_or(Clock::System, Clock::Manual),
            ..store::Config::default()
        })?;
        store.set_search(store::Search {
            on: settings.lru_crawler,
            rest: settings.lru_crawler_sleep,
            most: settings.lru_crawler_tocrawl,
        });
        let tls = settings.tls.as_ref();
        let (mut inherited, mut listeners) = (inherited.into_iter(), Vec::new());
        for setting in &mut settings.listeners {
            if let Some(socket) = inherited.next() {
                listeners.push(Open::inherited(socket, setting, tls)?);
                continue;
            }
            setting.look_up().map_err(io::Error::other)?;
            listeners.extend(Open::bind(setting, tls, settings.backlog)?);
        }
        let log = Log::new(settings.log, settings.verbosity)?;
        let waker = Arc::new(Waker::new()?);
        let wake = Arc::clone(&waker);
        let shared = Arc::new(Shared::new(
            store,
            settings,
            log,
            debug_clock,
            Box::new(move || wake.wake()),
            watchers,
        ));
        if let Some(files) = &shared.settings.tls {
            shared.show_certificate(ShownCertificate::load(files).map_err(io::Error::other)?);
        }
        let (tenants, users) = (
            shared.settings.tenants.clone(),
            shared.settings.users.clone(),
        );
        apply(&shared, &tenants, users).map_err(io::Error::other)?;
        let pressure = match &shared.settings.memory_pressure {
            Some(setting) => pressure::watch(setting, &shared)?,
            None => None,
        };
        let mut inboxes = Vec::new();
        let mut workers = Vec::new();
        for index in 0..shared.settings.threads {
            match start_worker(&shared, index, &mut inboxes) {
                Ok(handle) => workers.push(handle),
                Err(error) => return Err(abandon(&shared, &inboxes, error)),
            }
        }
        for open in &listeners {
            let text = open.description();
            note!(shared.log, "listens on {text}");
        }
        if let Some(line) = note_of_tls(&shared.settings, shared.buffer_limit()) {
            note!(shared.log, "{line}");
        }
        #[cfg(not(feature = "metrics"))]
        if shared.settings.metrics.is_some() {
            let error =
                "--metrics: this program was built without it; build with the feature `metrics`";
            return Err(abandon(&shared, &inboxes, io::Error::other(error)));
        }
        #[cfg(feature = "metrics")]
        let metrics = shared.settings.metrics.map(|address| {
            Endpoint::start(&shared, address, pressure.as_ref()).map_err(|error| {
                io::Error::new(error.kind(), format!("--metrics {address}: {error}"))
            })
        });
        #[cfg(feature = "metrics")]
        let metrics = metrics
            .transpose()
            .map_err(|error| abandon(&shared, &inboxes, error))?;
        #[cfg(feature = "metrics")]
        if let Some(endpoint) = &metrics {
            let address = endpoint.address();
            note!(shared.log, "metrics at http://{address}/metrics");
        }
        let acceptor = Acceptor::new(Arc::clone(&shared), listeners, inboxes.clone(), &waker)
            .map_err(|error| abandon(&shared, &inboxes, error))?;
        Ok(Self {
            #[cfg(feature = "metrics")]
            metrics,
            pressure,
            shared,
            acceptor,
            waker,
            workers,
        })
    }

    /// Returns a handle that stops it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle(Arc::clone(&self.shared))
    }

    /// Returns the TCP addresses that it listens on, with the port that was free where none was given.
    #[must_use]
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.acceptor.addresses()
    }

    /// Returns the address at which it answers with metrics.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        #[cfg(feature = "metrics")]
        let address = self.metrics.as_ref().map(Endpoint::address);
        #[cfg(not(feature = "metrics"))]
        let address = None;
        address
    }

    /// Serves until it is asked to stop, by its handle, a client, or a signal.
    pub fn run(mut self, signals: Option<Signals>) {
        let reloads = signals.as_ref().map(|signals| {
            self.acceptor.watch(signals.0.as_fd())?;
            Reloads::start(&self.shared)
        });
        let reloads = reloads.transpose().unwrap_or_else(|error| {
            note!(self.shared.log, "signals: {error}; the server stops");
            self.shared.stop();
            None
        });
        let clock = self
            .shared
            .debug_clock
            .clone()
            .map(|clock| self.tick(clock));
        notify("READY=1");
        while self.acceptor.run(&self.waker) == Told::Signal {
            let Some(signals) = &signals else { break };
            match signals.next() {
                Some(libc::SIGHUP) => {
                    if let Some(reloads) = &reloads {
                        reloads.ask();
                    }
                }
                Some(signal) => {
                    note!(self.shared.log, "stops on signal {signal}");
                    break;
                }
                None => {}
            }
        }
        notify("STOPPING=1");
        drop(reloads);
        self.end();
        if let Some(clock) = clock {
            let _ = clock.join();
        }
    }

    /// Stops the threads, and waits for them.
    fn end(&mut self) {
        self.shared.stop();
        #[cfg(feature = "metrics")]
        drop(self.metrics.take());
        drop(self.pressure.take());
        self.acceptor.wake_workers();
        for worker in self.workers.drain(..) {
            // One that has panicked has said so.
            let _ = worker.join();
        }
        self.acceptor.remove_sockets();
        self.shared.log.end();
    }

    /// Moves a clock that clients move too on, second by second, and does what is due then: the store
    /// has no background thread for it.
    fn tick(&self, clock: ManualClock) -> JoinHandle<()> {
        let shared = Arc::clone(&self.shared);
        thread::spawn(move || {
            while !shared.is_stopping() {
                thread::sleep(std::time::Duration::from_secs(1));
                clock.advance(1);
                shared.store.maintain();
            }
        })
    }
}

/// Returns a line for the log if idle clients by TLS, which are ended for no other, may take more than
/// all `buffers`.
fn note_of_tls(settings: &Settings, buffers: usize) -> Option<String> {
    let most = settings.max_connections;
    let idle = most.saturating_mul(tls::IDLE);
    (settings.tls.is_some() && idle > buffers).then(|| {
        format!(
            "-c allows {most} clients, which by TLS keep {} MiB when idle: raise buffer-limit, or one tenant's may leave no buffers to others",
            idle.div_ceil(1 << 20)
        )
    })
}

fn start_worker(
    shared: &Arc<Shared>,
    index: usize,
    inboxes: &mut Vec<Arc<Inbox>>,
) -> io::Result<JoinHandle<()>> {
    let inbox = Arc::new(Inbox::new()?);
    let mut worker = Worker::new(Arc::clone(shared), index, Arc::clone(&inbox))?;
    inboxes.push(inbox);
    let guard = StopOnPanic(Arc::downgrade(shared));
    let run = move || {
        let _guard = guard;
        worker.run();
    };
    thread::Builder::new()
        .name(format!("stillcache/{index}"))
        .spawn(run)
}

/// Stops the threads of a server that cannot start.
fn abandon(shared: &Shared, inboxes: &[Arc<Inbox>], error: io::Error) -> io::Error {
    shared.stop();
    inboxes.iter().for_each(|inbox| inbox.waker.wake());
    error
}

/// Creates or changes the tenants that the file names, and replaces the users. Other tenants stay as they
/// are. On an error, nothing is changed.
pub(crate) fn apply(
    shared: &Shared,
    tenants: &[crate::config::Tenant],
    users: Option<Vec<User>>,
) -> Result<(), String> {
    let store = &shared.store;
    let mut created = Vec::new();
    let get_or_create = |setting: &crate::config::Tenant| {
        let name = &setting.name;
        let there = match store.tenant(name) {
            Err(TenantError::NotFound) => {
                let new = store.create_tenant(name);
                new.inspect(|_| created.push(name.clone()))
            }
            there => there,
        };
        there.map_err(|error| format!("tenant {name}: {error}"))
    };
    let there = tenants.iter().map(get_or_create).collect();
    let there: Vec<_> = match there {
        Ok(there) => there,
        Err(error) => {
            // They are in no directory yet: no client can work on them.
            for name in &created {
                // It fails if an admin has deleted it meanwhile.
                let _ = store.delete_tenant(name);
            }
            return Err(error);
        }
    };
    for (tenant, setting) in there.iter().zip(tenants) {
        tenant.request_limits(setting.limits());
    }
    let threads = shared.settings.threads;
    shared.change(|directory: &mut Directory| {
        directory.follow(store, threads);
        let of = |setting: &crate::config::Tenant| {
            let space = directory.spaces.get(setting.name.as_str())?;
            let prefixes = setting.prefixes.iter();
            Some(
                prefixes
                    .map(|prefix| (prefix.clone().into_bytes(), Arc::clone(space)))
                    .collect::<Vec<_>>(),
            )
        };
        let prefixes = tenants.iter().filter_map(of).flatten().collect();
        directory.set_prefixes(prefixes);
        let users = users.unwrap_or_default();
        let by_user = users.iter().map(|user| &*user.tenant);
        let listeners = shared.settings.listeners.iter();
        let by_socket = listeners.map(|listener| &*listener.tenant);
        directory.homes = by_user.chain(by_socket).collect::<HashSet<_>>().len();
        directory.users = users.into();
    });
    Ok(())
}

/// Signals that stop or reload a server, as a descriptor.
#[derive(Debug)]
pub struct Signals(OwnedFd);

impl Signals {
    /// Blocks SIGTERM, SIGINT and SIGHUP in this thread, and those that it starts from now on.
    ///
    /// # Errors
    ///
    /// If there is no descriptor for them.
    pub fn block() -> io::Result<Self> {
        use std::os::fd::FromRawFd;
        // SAFETY: an all-zero set is valid memory for `sigemptyset`, which makes it an empty set; the calls only read and write it.
        let fd = unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&raw mut set);
            for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1] {
                libc::sigaddset(&raw mut set, signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is open, and no other owner knows it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// Returns the next signal that has arrived.
    fn next(&self) -> Option<i32> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        let bytes = rustix::io::read(&self.0, &mut info).ok()?;
        // The number comes first.
        let number = info[..bytes].first_chunk::<4>()?;
        i32::try_from(u32::from_ne_bytes(*number)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{config::flags::Flags, users::Users};

    #[cfg(feature = "tls")]
    #[test]
    fn the_log_says_if_idle_clients_by_tls_may_take_all_buffers() {
        let note = |max_connections, tls| {
            let settings = Settings {
                max_connections,
                tls,
                ..Settings::default()
            };
            note_of_tls(&settings, settings.buffer_max)
        };
        let tls = || Some(crate::config::Tls::default());
        assert_eq!((note(1638, tls()), note(9999, None)), (None, None));
        let line = note(1639, tls()).unwrap();
        assert!(
            line.contains("1639 clients") && line.contains(" 65 MiB"),
            "{line}"
        );
    }

    /// The settings show the sockets in use, not the configured places.
    #[test]
    fn sockets_that_are_handed_over_replace_the_listeners() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        for listeners in [vec![], vec![Listener::unix("/nonexistent/s".into())]] {
            let flags = Flags::parse_from(["stillcache", "-t", "1"]).unwrap();
            let settings = Settings {
                flags: Some(Arc::new(flags)),
                listeners,
                threads: 1,
                log: false,
                ..Settings::default()
            };
            let sockets = vec![socket.try_clone().unwrap().into()];
            let server = Server::start_with(settings, sockets).unwrap();
            assert_eq!(server.addresses(), [address]);
            let now = &server.shared.settings;
            let shown = now.listeners.iter().map(Listener::place);
            assert_eq!(shown.collect::<Vec<_>>(), [address.to_string()]);
            let flags = now.flags.as_ref().unwrap();
            let (.., later) = flags.again(now, now.limit, false).unwrap();
            assert_eq!(later, [""; 0]);
        }
    }

    /// It is told nothing of what happens after that, and closed at the next event.
    #[test]
    fn a_user_who_is_gone_watches_no_longer() {
        use crate::watch;
        use std::{
            io::{Read, Write},
            os::unix::net::UnixStream,
        };
        let path = crate::tests::new_path("gone");
        let user = User {
            name: "u".into(),
            password: b"p".to_vec(),
            tenant: String::new(),
            admin: false,
        };
        let settings = Settings {
            listeners: vec![Listener::unix(path.clone())],
            threads: 1,
            users: Some(vec![user]),
            log: false,
            ..Settings::default()
        };
        let server = Server::start(settings).unwrap();
        let shared = Arc::clone(&server.shared);
        let thread = thread::spawn(move || server.run(None));
        let mut client = UnixStream::connect(&path).unwrap();
        for (request, answer) in [
            ("set k 0 0 3\r\nu p\r\n", "STORED\r\n"),
            ("watch\r\n", "OK\r\n"),
        ] {
            client.write_all(request.as_bytes()).unwrap();
            let mut got = vec![0; answer.len()];
            client.read_exact(&mut got).unwrap();
            assert_eq!(got, answer.as_bytes());
        }
        shared.change(|directory| directory.users = Users::default());
        let directory = shared.directory();
        let home = Some(&directory.spaces[""]);
        shared.watchers.tell(watch::FETCHERS, home, "x", |_| {});
        let mut rest = Vec::new();
        client.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"");
        shared.stop();
        thread.join().unwrap();
    }
}
