//! Sockets that are listened on, and the thread that accepts.

use super::{
    tls,
    wake::Waker,
    worker::{Arrival, Inbox},
};
use crate::{
    config::{Listener, Tls},
    lock::lock,
    log::note,
    places::{OVER, Place, enter, may_enter},
    session::{Access, Session},
    shared::{Card, Shared},
};
use rustix::{
    event::{
        Timespec,
        epoll::{self, EventData, EventFlags},
    },
    fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    io::Errno,
    net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt},
};
use std::{
    fmt::Display,
    fs,
    io::{self, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    os::{
        linux::net::SocketAddrExt,
        unix::{
            fs::{FileTypeExt, PermissionsExt},
            net::{UnixListener, UnixStream},
        },
    },
    path::Path,
    sync::{Arc, Mutex, atomic::Ordering},
    time::{Duration, Instant},
};

/// The token of the eventfd, by which the thread is asked to stop.
const WAKE: u64 = u64::MAX;
/// The token of the signals.
const SIGNALS: u64 = u64::MAX - 1;
/// The pause of accepting if there is no descriptor or no memory for another connection.
const PAUSE: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 100_000_000,
};

/// Number of connections of a listener after which other listeners, and signals, have their turn.
const AT_ONCE: u32 = 64;

/// Shortest time between two lines of the log that say why nothing is accepted.
const COMPLAINT: Duration = Duration::from_secs(1);

/// A socket that is listened on.
#[derive(Debug)]
pub(crate) enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Tcp(socket) => socket.as_fd(),
            Self::Unix(socket) => socket.as_fd(),
        }
    }
}

/// A socket with the rights of the clients that connect to it.
#[derive(Debug)]
pub(crate) struct Open {
    socket: Socket,
    setting: Listener,
    /// Whether its clients speak TLS.
    tls: bool,
    pub(crate) name: String,
    transport: &'static str,
    /// Whether this process has created it, and so removes its file.
    owned: bool,
}

impl Open {
    /// Binds the sockets of a setting: one for each address of a name.
    pub(crate) fn bind(
        setting: &Listener,
        tls: Option<&Tls>,
        backlog: u32,
    ) -> io::Result<Vec<Self>> {
        let backlog = i32::try_from(backlog).unwrap_or(i32::MAX);
        let open = |socket: io::Result<Socket>, place: &dyn Display| {
            let open = socket.and_then(|socket| Self::of(socket, setting.clone(), tls, true));
            open.map_err(|error| io::Error::new(error.kind(), format!("{place}: {error}")))
        };
        if let Some(path) = &setting.path {
            let socket = listen_at(path, setting.mode.0, backlog).map(Socket::Unix);
            return Ok(vec![open(socket, &path.display())?]);
        }
        let listen = |address| open(listen_on(address, backlog).map(Socket::Tcp), address);
        setting.found.iter().map(listen).collect()
    }

    /// Takes over a socket that the service manager has opened.
    pub(crate) fn inherited(
        fd: OwnedFd,
        setting: &Listener,
        tls: Option<&Tls>,
    ) -> io::Result<Self> {
        let socket = match setting.path {
            Some(_) => Socket::Unix(fd.into()),
            None => Socket::Tcp(fd.into()),
        };
        Self::of(socket, setting.clone(), tls, false)
    }

    fn of(socket: Socket, setting: Listener, tls: Option<&Tls>, owned: bool) -> io::Result<Self> {
        let (name, transport) = match &socket {
            Socket::Tcp(socket) => {
                socket.set_nonblocking(true)?;
                (format!("tcp:{}", socket.local_addr()?), "tcp")
            }
            Socket::Unix(socket) => {
                socket.set_nonblocking(true)?;
                (format!("unix:{}", setting.place()), "local")
            }
        };
        Ok(Self {
            socket,
            tls: setting.speaks_tls(tls),
            setting,
            name,
            transport,
            owned,
        })
    }

    /// Returns its address and the rights of its clients, for the log.
    pub(crate) fn description(&self) -> String {
        let setting = &self.setting;
        let tenant = match &*setting.tenant {
            "" => String::new(),
            name => format!(", for tenant {name}"),
        };
        let parts = [
            (true, &*self.name),
            (self.tls, ", with TLS"),
            (setting.admin, ", for admins"),
            (true, &tenant),
            (!setting.login, ", without a login"),
        ];
        let parts = parts.into_iter().filter(|(is, _)| *is);
        parts.map(|(_, part)| part).collect()
    }

    /// Returns the address of a TCP socket.
    pub(crate) fn local(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(socket) => socket.local_addr().ok(),
            Socket::Unix(_) => None,
        }
    }

    fn accept(&self) -> io::Result<(OwnedFd, String)> {
        match &self.socket {
            Socket::Tcp(socket) => {
                let (stream, peer) = socket.accept()?;
                stream.set_nonblocking(true)?;
                // It fails only if the connection has ended, which the first read reports.
                let _ = stream.set_nodelay(true);
                let _ = sockopt::set_socket_keepalive(&stream, true);
                Ok((stream.into(), format!("tcp:{peer}")))
            }
            Socket::Unix(socket) => {
                let (stream, _) = socket.accept()?;
                stream.set_nonblocking(true)?;
                Ok((stream.into(), "unix:".into()))
            }
        }
    }

    /// Removes the file of a Unix socket that this process has created.
    pub(crate) fn remove(&mut self) {
        if std::mem::take(&mut self.owned)
            && let Some(path) = &self.setting.path
        {
            let _ = fs::remove_file(path);
        }
    }
}

impl Drop for Open {
    /// Removes the file if the server could not start. A server that ends has done so before.
    fn drop(&mut self) {
        self.remove();
    }
}

/// Listens on an address.
fn listen_on(address: &SocketAddr, backlog: i32) -> io::Result<TcpListener> {
    let family = match address {
        SocketAddr::V4(_) => AddressFamily::INET,
        SocketAddr::V6(_) => AddressFamily::INET6,
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(family, SocketType::STREAM, flags, None)?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        // Otherwise it would take the port of `0.0.0.0` too.
        sockopt::set_ipv6_v6only(&socket, true)?;
    }
    rustix::net::bind(&socket, address)?;
    rustix::net::listen(&socket, backlog)?;
    Ok(socket.into())
}

/// Listens on a Unix socket, which it creates with the permissions `mode`.
fn listen_at(path: &Path, mode: u32, backlog: i32) -> io::Result<UnixListener> {
    remove_stale(path)?;
    // Others have no permissions before these are set.
    let old = rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o177));
    let socket = UnixListener::bind(path);
    rustix::process::umask(old);
    let socket = socket?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))?;
    rustix::net::listen(&socket, backlog)?;
    Ok(socket)
}

/// Removes a Unix socket on which no server listens.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(metadata) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    if !metadata.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "there is a file of that name, which is no socket",
        ));
    }
    if UnixStream::connect(path).is_ok() {
        return Err(io::ErrorKind::AddrInUse.into());
    }
    fs::remove_file(path)
}

/// The reason why the thread that accepts has stopped waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// To stop.
    Stop,
    /// A signal has arrived.
    Signal,
}

pub(crate) struct Acceptor {
    shared: Arc<Shared>,
    epoll: OwnedFd,
    listeners: Vec<Open>,
    workers: Vec<Arc<Inbox>>,
    next: usize,
    paused: Option<Instant>,
    /// Time of the last line of the log that says why nothing is accepted.
    complained: Option<Instant>,
}

impl Acceptor {
    pub(crate) fn new(
        shared: Arc<Shared>,
        listeners: Vec<Open>,
        workers: Vec<Arc<Inbox>>,
        waker: &Waker,
    ) -> io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&epoll, &waker.0, EventData::new_u64(WAKE), EventFlags::IN)?;
        let acceptor = Self {
            shared,
            epoll,
            listeners,
            workers,
            next: 0,
            paused: None,
            complained: None,
        };
        acceptor.listen(true)?;
        for open in &acceptor.listeners {
            let card = Card {
                peer: open.name.clone(),
                local: String::new(),
                transport: open.transport,
                tenant: Mutex::new(open.setting.tenant.as_str().into()),
                state: 0.into(),
                last: acceptor.shared.store.now().into(),
            };
            lock(&acceptor.shared.cards).insert(open.socket.as_fd().as_raw_fd(), Arc::new(card));
        }
        Ok(acceptor)
    }

    /// Makes [`Acceptor::run`] return when a signal arrives.
    pub(crate) fn watch(&self, signals: BorrowedFd<'_>) -> Result<(), Errno> {
        let token = EventData::new_u64(SIGNALS);
        epoll::add(&self.epoll, signals, token, EventFlags::IN)
    }

    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.listeners.iter().filter_map(Open::local).collect()
    }

    fn listen(&self, on: bool) -> Result<(), Errno> {
        for (index, open) in self.listeners.iter().enumerate() {
            if on {
                let token = EventData::new_u64(index as u64);
                epoll::add(&self.epoll, &open.socket, token, EventFlags::IN)?;
            } else {
                epoll::delete(&self.epoll, &open.socket)?;
            }
        }
        Ok(())
    }

    /// Accepts connections until there is something else to do.
    pub(crate) fn run(&mut self, waker: &Waker) -> Told {
        let mut events = Vec::with_capacity(16);
        loop {
            if self.shared.is_stopping() {
                return Told::Stop;
            }
            events.clear();
            let timeout = self.paused.map(|_| PAUSE);
            match epoll::wait(
                &self.epoll,
                rustix::buffer::spare_capacity(&mut events),
                timeout.as_ref(),
            ) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => {
                    note!(self.shared.log, "epoll: {error}; the server stops");
                    return Told::Stop;
                }
            }
            self.resume();
            for event in &events {
                match event.data.u64() {
                    WAKE => {
                        waker.clear();
                        self.wake_workers();
                    }
                    SIGNALS => return Told::Signal,
                    index => self.accept(index as usize),
                }
            }
        }
    }

    /// Accepts up to [`AT_ONCE`] of the connections that wait. If some are left, the next wait returns at
    /// once.
    fn accept(&mut self, index: usize) {
        for _ in 0..AT_ONCE {
            // An event before this one has found no descriptors.
            if self.paused.is_some() {
                return;
            }
            let open = &self.listeners[index];
            match open.accept() {
                Ok((fd, peer)) => self.admit(index, fd, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                // The client left before it was accepted.
                Err(error)
                    if matches!(
                        error.kind(),
                        io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted
                    ) => {}
                Err(error) => return self.pause(&error),
            }
            if self.shared.is_stopping() {
                return;
            }
        }
    }

    fn admit(&mut self, index: usize, fd: OwnedFd, peer: String) {
        let open = &self.listeners[index];
        let (settings, totals) = (&self.shared.settings, &self.shared.totals);
        let directory = self.shared.directory();
        let Some(home) = directory.spaces.get(open.setting.tenant.as_str()) else {
            // Its tenant was deleted.
            return;
        };
        let most = settings.max_connections;
        // Admins get in even if everything else is full.
        let is_admin = open.setting.admin;
        // Clients that have not logged in leave their places to others.
        let may_replace = !is_admin && settings.authenticates();
        let has_to_log_in = may_replace && open.setting.login;
        let mut is_full = false;
        let place = Place::take(&totals.connections, |all| {
            is_full = all >= most;
            is_admin || !is_full || (may_replace && all < most + OVER)
        });
        let replaces = is_full && may_replace;
        let thread = match replaces {
            // The thread ends the client that has taken longest to log in.
            true => oldest_unknown(&self.workers, self.next),
            false => Some(self.next),
        };
        let places = place.zip(thread).and_then(|(place, thread)| {
            let (known, own) = if has_to_log_in {
                let unknown = &self.workers[thread].unknown;
                (None, Place::take(unknown, |_| true)?)
            } else {
                let (known, own) = enter(&totals.known, &home.clients, |own, all| {
                    is_admin || may_enter(own, all, most, directory.homes)
                })?;
                (Some(known), own)
            };
            Some((thread, place, known, own))
        });
        let Some((thread, place, known, own)) = places else {
            totals.connections_rejected.fetch_add(1, Ordering::Relaxed);
            if !open.tls {
                // The client is told, if its socket takes that at once.
                let mut stream = TcpStream::from(fd);
                let _ = stream.write(b"ERROR Too many open connections\r\n");
            }
            return;
        };
        let tls = match open.tls {
            false => None,
            true => {
                let certificate = lock(&self.shared.certificate)
                    .as_ref()
                    .map(|shown| shown.certificate.clone());
                let stream = certificate.and_then(|certificate| tls::Stream::new(&certificate));
                let Some(stream) = stream else {
                    totals.dropped_memory.fetch_add(1, Ordering::Relaxed);
                    return;
                };
                Some(Box::new(stream))
            }
        };
        let number = totals.connections_total.fetch_add(1, Ordering::Relaxed) + 1;
        let access = Access {
            home: Arc::clone(home),
            place: own,
            admin: is_admin || (settings.admin_clients && !settings.authenticates()),
            known,
            user: None,
        };
        let card = Card {
            peer,
            local: open.name.clone(),
            transport: open.transport,
            tenant: Mutex::new(Arc::clone(&home.name)),
            state: 1.into(),
            last: 0.into(),
        };
        let (id, version) = (fd.as_raw_fd(), directory.version);
        let session = Session::new(access, id, Arc::new(card), settings.binding, version);
        let arrival = Arrival {
            fd,
            tls,
            number,
            place,
            session,
            replaces,
        };
        self.workers[thread].push(arrival);
        self.next = (thread + 1) % self.workers.len();
    }

    fn pause(&mut self, error: &io::Error) {
        if self.paused.is_some() {
            return;
        }
        let totals = &self.shared.totals;
        if self
            .complained
            .is_none_or(|last| last.elapsed() >= COMPLAINT)
        {
            self.complained = Some(Instant::now());
            note!(
                self.shared.log,
                "cannot accept: {error}; trying again ten times a second (is `ulimit -n` above -c?)"
            );
        }
        if self.listen(false).is_err() {
            return self.shared.stop();
        }
        totals.accept_paused.store(true, Ordering::Relaxed);
        totals.accept_pauses.fetch_add(1, Ordering::Relaxed);
        self.paused = Some(Instant::now());
    }

    fn resume(&mut self) {
        let Some(since) = self.paused else { return };
        if since.elapsed().as_nanos() < PAUSE.tv_nsec as u128 {
            return;
        }
        if self.listen(true).is_err() {
            return self.shared.stop();
        }
        self.paused = None;
        let totals = &self.shared.totals;
        totals.accept_paused.store(false, Ordering::Relaxed);
        let paused = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        totals.accept_paused_us.fetch_add(paused, Ordering::Relaxed);
    }

    pub(crate) fn remove_sockets(&mut self) {
        self.listeners.iter_mut().for_each(Open::remove);
    }

    pub(crate) fn wake_workers(&self) {
        for worker in &self.workers {
            worker.waker.wake();
        }
    }
}

/// Returns the thread whose client has taken longest to log in. On a tie, returns the first one from
/// `next` on.
fn oldest_unknown(workers: &[Arc<Inbox>], next: usize) -> Option<usize> {
    let has_unknown = |&thread: &usize| workers[thread].unknown.load(Ordering::Relaxed) > 0;
    let oldest = |&thread: &usize| workers[thread].oldest.load(Ordering::Relaxed);
    let threads = (next..workers.len()).chain(0..next);
    threads.filter(has_unknown).min_by_key(oldest)
}

/// Sends `state` to the service manager, if there is one.
pub(crate) fn notify(state: &str) {
    let Some(path) = std::env::var_os("NOTIFY_SOCKET") else {
        return;
    };
    let send = || -> io::Result<()> {
        let socket = std::os::unix::net::UnixDatagram::unbound()?;
        let address = match path.as_encoded_bytes().strip_prefix(b"@") {
            Some(name) => std::os::unix::net::SocketAddr::from_abstract_name(name)?,
            None => std::os::unix::net::SocketAddr::from_pathname(&path)?,
        };
        socket.send_to_addr(state.as_bytes(), &address)?;
        Ok(())
    };
    // If that fails, the manager's own timeout reports it.
    let _ = send();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz;

    fn unix(name: &str) -> Listener {
        Listener::unix(crate::tests::new_path(name))
    }

    fn bind(setting: &Listener) -> io::Result<Open> {
        Ok(Open::bind(setting, None, 8)?.remove(0))
    }

    #[test]
    fn the_log_says_who_comes_in_by_a_listener() {
        let setting = Listener {
            tls: Some(true),
            admin: true,
            login: false,
            tenant: "shop".into(),
            ..unix("described")
        };
        let open = bind(&setting).unwrap();
        let text = open.description();
        assert!(
            text.ends_with("-described, with TLS, for admins, for tenant shop, without a login"),
            "{text}"
        );
        let open = bind(&unix("plain")).unwrap();
        assert_eq!(open.description(), open.name);
    }

    /// Without descriptors each listener that has a client says so.
    #[test]
    fn accepting_pauses_once_for_all_listeners() {
        let listeners = ["one", "two"].map(|name| bind(&unix(name)).unwrap());
        let shared = fuzz::new_shared(|_| {});
        let waker = Waker::new().unwrap();
        let mut acceptor =
            Acceptor::new(Arc::clone(&shared), listeners.into(), Vec::new(), &waker).unwrap();
        for _ in 0..2 {
            acceptor.pause(&Errno::MFILE.into());
        }
        let complained = acceptor.complained.unwrap();
        assert!(!shared.is_stopping());
        assert_eq!(shared.totals.accept_pauses.load(Ordering::Relaxed), 1);
        acceptor.paused = Instant::now().checked_sub(std::time::Duration::from_secs(1));
        acceptor.resume();
        assert!(acceptor.paused.is_none() && !shared.is_stopping());
        // A second's pauses have one line.
        acceptor.complained = complained.checked_add(COMPLAINT);
        acceptor.pause(&Errno::MFILE.into());
        assert_eq!(acceptor.complained, complained.checked_add(COMPLAINT));
        acceptor.paused = None;
        acceptor.complained = complained.checked_sub(COMPLAINT);
        acceptor.pause(&Errno::MFILE.into());
        assert!(acceptor.complained >= Some(complained));
        acceptor.remove_sockets();
    }

    #[test]
    fn all_addresses_of_both_families_have_the_same_port() {
        let tcp = |address: &str| bind(&Listener::tcp(address.parse().unwrap()));
        let four = tcp("0.0.0.0:0").unwrap();
        let port = four.local().unwrap().port();
        match tcp(&format!("[::]:{port}")) {
            Ok(six) => assert_eq!(six.local().unwrap().port(), port),
            // A system without the family.
            Err(error) => assert_ne!(error.kind(), io::ErrorKind::AddrInUse),
        }
    }

    #[test]
    fn a_socket_that_was_handed_over_keeps_its_file() {
        let setting = unix("kept");
        let path = setting.path.clone().unwrap();
        let theirs = UnixListener::bind(&path).unwrap();
        let fd = theirs.try_clone().unwrap().into();
        let mut ours = Open::inherited(fd, &setting, None).unwrap();
        ours.remove();
        assert!(path.exists());
        drop((ours, theirs));
        let mut ours = bind(&setting).unwrap();
        ours.remove();
        assert!(!path.exists());
    }

    #[test]
    fn those_that_have_not_logged_in_may_take_all_places_and_leave_them_to_new_ones() {
        let listener = bind(&unix("unknown")).unwrap();
        let shared = fuzz::new_shared(|settings| {
            settings.max_connections = 12;
            settings.users = Some(Vec::new());
        });
        let waker = Waker::new().unwrap();
        let inbox = Arc::new(Inbox::new().unwrap());
        let workers = vec![Arc::clone(&inbox)];
        let listeners = vec![listener];
        let mut acceptor = Acceptor::new(Arc::clone(&shared), listeners, workers, &waker).unwrap();
        let mut come = |number| {
            for _ in 0..number {
                let (server, _) = UnixStream::pair().unwrap();
                acceptor.admit(0, server.into(), "unix:".into());
            }
            inbox.waiting()
        };
        let totals = &shared.totals;
        let count = || {
            let rejected = totals.connections_rejected.load(Ordering::Relaxed);
            (totals.connections.load(Ordering::Relaxed), rejected)
        };
        let unknown = come(12);
        assert_eq!((unknown.len(), count()), (12, (12, 0)));
        // For these the thread ends old ones, though not all at once.
        let new = come(OVER + 1);
        assert_eq!((new.len(), count()), (OVER, (12 + OVER, 1)));
        drop((unknown, new));
        assert_eq!(count(), (0, 1));
        // Nothing is ended for one more than have logged in.
        let known: Vec<_> = (0..12)
            .map(|_| Place::take(&totals.connections, |_| true))
            .collect();
        assert_eq!((come(1).len(), count()), (0, (12, 2)));
        drop(known);
        assert_eq!(come(1).len(), 1);
        acceptor.remove_sockets();
    }

    /// Clients that need no login come in at once, and so cannot wait for places as others do.
    #[test]
    fn those_that_have_not_logged_in_leave_their_places_to_those_that_need_no_login() {
        let shared = fuzz::new_shared(|settings| {
            settings.max_connections = 4;
            settings.users = Some(Vec::new());
            settings.admin_clients = true;
        });
        shared.store.create_tenant("shop").unwrap();
        shared.change(|directory| directory.follow(&shared.store, 1));
        let setting = Listener {
            tenant: "shop".into(),
            login: false,
            ..unix("shop")
        };
        let listeners = [unix("any"), setting].map(|setting| bind(&setting).unwrap());
        let waker = Waker::new().unwrap();
        let inbox = Arc::new(Inbox::new().unwrap());
        let workers = vec![Arc::clone(&inbox)];
        let mut acceptor =
            Acceptor::new(Arc::clone(&shared), listeners.into(), workers, &waker).unwrap();
        let mut come = |listener| {
            let (server, _) = UnixStream::pair().unwrap();
            acceptor.admit(listener, server.into(), "unix:".into());
            inbox.waiting().pop()
        };
        let unknown: Vec<_> = (0..4).map(|_| come(0).unwrap()).collect();
        let is_unknown = |one: &Arrival| one.session.access.known.is_none() && !one.replaces;
        assert!(unknown.iter().all(is_unknown));
        let known = come(1).unwrap();
        let access = &known.session.access;
        assert!(known.replaces && access.known.is_some() && !access.admin);
        assert_eq!(&*access.home.name, "shop");
        drop((unknown, known));
        acceptor.remove_sockets();
    }

    /// Detects a burst that all goes to one thread, where the last ends the first.
    #[test]
    fn clients_that_come_before_a_thread_has_ended_one_go_to_others() {
        let listener = bind(&unix("burst")).unwrap();
        let shared = fuzz::new_shared(|settings| {
            settings.max_connections = 6;
            settings.users = Some(Vec::new());
        });
        let waker = Waker::new().unwrap();
        let inboxes = [0, 1, 2].map(|_| Arc::new(Inbox::new().unwrap()));
        let (listeners, workers) = (vec![listener], inboxes.to_vec());
        let mut acceptor = Acceptor::new(shared, listeners, workers, &waker).unwrap();
        let mut come = |number| {
            for _ in 0..number {
                let (server, _) = UnixStream::pair().unwrap();
                acceptor.admit(0, server.into(), "unix:".into());
            }
            inboxes.each_ref().map(|inbox| inbox.waiting())
        };
        let unknown = come(6);
        for (inbox, oldest) in inboxes.iter().zip([5, 3, 4]) {
            inbox.oldest.store(oldest, Ordering::Relaxed);
        }
        let first = come(1);
        assert_eq!(first.each_ref().map(Vec::len), [0, 1, 0]);
        let others = come(5);
        assert_eq!(others.each_ref().map(Vec::len), [2, 1, 2]);
        drop((unknown, first, others));
        acceptor.remove_sockets();
    }

    /// Which thread it is on does not matter.
    #[test]
    fn the_client_that_is_ended_is_the_one_that_takes_longest_to_log_in() {
        let inbox = |unknown: usize, oldest| {
            let inbox = Inbox::new().unwrap();
            inbox.unknown.store(unknown, Ordering::Relaxed);
            inbox.oldest.store(oldest, Ordering::Relaxed);
            Arc::new(inbox)
        };
        let none = || inbox(0, u64::MAX);
        assert_eq!(oldest_unknown(&[none(), none()], 0), None);
        let workers = [none(), inbox(9, 7), inbox(1, 5), inbox(2, u64::MAX)];
        assert_eq!(oldest_unknown(&workers, 0), Some(2));
        // It has not arrived yet.
        assert_eq!(oldest_unknown(&[none(), inbox(1, u64::MAX)], 0), Some(1));
    }
}
