//! A thread that serves connections: which of them has its turn, which are admitted and closed. A turn
//! is in `serve`.

mod serve;

use super::{
    buffers::{Buffers, Kept},
    connection::Connection,
    tls,
    wake::Waker,
};
use crate::{
    directory::Directory,
    lock::lock,
    log::note,
    output::{ANSWER, Output},
    places::Place,
    session::{Close, Session},
    shared::Shared,
    watch,
};
use rustix::{
    event::{
        Timespec,
        epoll::{self, Event, EventData, EventFlags},
    },
    fd::OwnedFd,
    io::Errno,
};
use slab::Slab;
use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};
use stillpoint_platform::clock::{self, Nanos};

/// The token of the thread's own eventfd.
const WAKE: u64 = u64::MAX;
/// Most bytes of a read; the rest waits in the socket.
const BUFFER: usize = 16 << 10;
/// Most bytes that are read and sent in a turn: more than the answers of a pipeline, or a long value.
const TURN: usize = 2 << 20;
/// The events of a connection that waits for requests. They are edge-triggered: an event comes once,
/// and the thread then reads until the socket is empty. Level-triggered, each wait would look at the
/// socket.
const ARRIVALS: EventFlags = EventFlags::IN
    .union(EventFlags::PRI)
    .union(EventFlags::RDHUP)
    .union(EventFlags::ET);
/// The events after which a read returns something, if only the end.
const READABLE: EventFlags = EventFlags::IN.union(MARKED);
/// Those of them at which a read stops though there may be more: the end, or a byte out of band, which
/// is never read.
const MARKED: EventFlags = EventFlags::RDHUP
    .union(EventFlags::HUP)
    .union(EventFlags::ERR)
    .union(EventFlags::PRI);
/// A larger output buffer is given back after use.
const OUTPUT_KEPT: usize = 256 << 10;

/// A connection that was accepted, on its way to a thread.
pub(crate) struct Arrival {
    pub(crate) fd: OwnedFd,
    pub(crate) tls: Option<Box<tls::Stream>>,
    /// Its number among all connections that were accepted, from 1.
    pub(crate) number: u64,
    /// Its place of `-c`.
    pub(crate) place: Place,
    pub(crate) session: Session,
    /// Whether the client that has taken longest to log in ends for it.
    pub(crate) replaces: bool,
}

/// The part of a worker that other threads use.
pub(crate) struct Inbox {
    arrivals: Mutex<Vec<Arrival>>,
    /// Number of its clients that have not logged in, including those in `arrivals`.
    pub(crate) unknown: Arc<AtomicUsize>,
    /// Smallest [`Arrival::number`] of its clients that have not logged in. `u64::MAX` if there is none,
    /// and while a connection is in `arrivals` for which that client will end. Relaxed, needs no
    /// partner: a hint, which changes under the lock of `arrivals`.
    pub(crate) oldest: AtomicU64,
    pub(crate) waker: Waker,
}

impl Inbox {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            arrivals: Mutex::default(),
            unknown: Arc::default(),
            oldest: AtomicU64::new(u64::MAX),
            waker: Waker::new()?,
        })
    }

    /// Takes the connections that have arrived.
    pub(crate) fn waiting(&self) -> Vec<Arrival> {
        std::mem::take(&mut *lock(&self.arrivals))
    }

    /// Hands a connection to the thread. If it replaces the client that has taken longest to log in,
    /// later ones go to other threads until this one tells which client is next.
    pub(crate) fn push(&self, arrival: Arrival) {
        let mut arrivals = lock(&self.arrivals);
        if arrival.replaces {
            self.oldest.store(u64::MAX, Ordering::Relaxed);
        }
        arrivals.push(arrival);
        drop(arrivals);
        self.waker.wake();
    }

    /// Tells the thread that accepts which client has taken longest to log in, unless connections wait
    /// that may replace it.
    fn note_oldest(&self, number: u64) {
        if self.oldest.load(Ordering::Relaxed) == number {
            return;
        }
        let arrivals = lock(&self.arrivals);
        if arrivals.is_empty() {
            self.oldest.store(number, Ordering::Relaxed);
        }
    }
}

pub(crate) struct Worker {
    shared: Arc<Shared>,
    thread: usize,
    inbox: Arc<Inbox>,
    epoll: OwnedFd,
    connections: Slab<Box<Connection>>,
    directory: Arc<Directory>,
    buffer: Box<[u8]>,
    out: Output,
    wake: Arc<dyn Fn() + Send + Sync>,
    /// Connections that go on without an event, each once.
    ready: Vec<usize>,
    /// Number of times that the thread has waited for events.
    steps: u64,
    watching: Vec<usize>,
    /// Connections that have not logged in, by [`Arrival::number`].
    unknown: BTreeMap<u64, usize>,
    /// Number of connections that have a deadline.
    timed: usize,
    /// Buffers that the connections keep.
    buffers: Buffers,
    /// Number of charges of connections.
    charges: u64,
    /// Number of connections in the middle of a request, and the most that may be.
    amid: usize,
    most_amid: usize,
    /// Time of the start by the coarse clock.
    started: Nanos,
    scanned: u32,
    /// [`TURN`].
    turn: usize,
}

/// Whether a connection goes on after its turn.
type Fate = Result<(), Close>;

impl Worker {
    pub(crate) fn new(
        shared: Arc<Shared>,
        thread: usize,
        inbox: Arc<Inbox>,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let token = EventData::new_u64(WAKE);
        epoll::add(&epoll, &inbox.waker.0, token, EventFlags::IN)?;
        let woken = Arc::clone(&inbox);
        let settings = &shared.settings;
        // At least one, so that a client that is alone is served.
        let (most_answers, most_amid) = match settings.reserved_max / settings.threads {
            0 => (u32::MAX, usize::MAX),
            share => (
                u32::try_from(share / ANSWER).unwrap_or(u32::MAX).max(1),
                (share / BUFFER).max(1),
            ),
        };
        Ok(Self {
            directory: shared.directory(),
            started: clock::coarse(),
            shared,
            thread,
            inbox,
            epoll,
            connections: Slab::new(),
            buffer: vec![0; BUFFER].into(),
            out: Output::with_limit(most_answers),
            wake: Arc::new(move || woken.waker.wake()),
            ready: Vec::new(),
            steps: 0,
            watching: Vec::new(),
            unknown: BTreeMap::new(),
            timed: 0,
            buffers: Buffers::default(),
            charges: 0,
            amid: 0,
            most_amid,
            scanned: 0,
            turn: TURN,
        })
    }

    /// Serves until the server stops.
    pub(crate) fn run(&mut self) {
        let mut events = Vec::with_capacity(128);
        while !self.shared.is_stopping() {
            if let Err(error) = self.step(&mut events) {
                note!(self.shared.log, "epoll: {error}; the server stops");
                self.shared.stop();
            }
        }
    }

    /// Waits until a connection can go on, and gives a turn to each that can.
    fn step(&mut self, events: &mut Vec<Event>) -> Result<(), Errno> {
        events.clear();
        let room = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, room, self.timeout().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        if self.directory.version != self.shared.version() {
            self.follow();
        }
        let now = self.seconds();
        self.steps += 1;
        for index in std::mem::take(&mut self.ready) {
            if let Some(connection) = self.connections.get_mut(index) {
                connection.is_queued = false;
                self.turn(index, now);
            }
        }
        for event in events.iter() {
            self.event(*event, now);
        }
        // Connections of another thread may need room that those of this one take.
        self.make_buffer_room(None);
        self.shared.watchers.tell_evictions(&self.directory);
        if now != self.scanned && (self.timed > 0 || self.shared.settings.idle_timeout > 0) {
            self.scanned = now;
            self.drop_late(now);
        }
        let oldest = self.unknown.first_key_value();
        self.inbox
            .note_oldest(oldest.map_or(u64::MAX, |(&number, _)| number));
        Ok(())
    }

    /// Takes over a directory that was changed. A session follows it at its next turn. A watcher follows
    /// it now: it has no turn before an event of a tenant with which it is registered. If users have
    /// changed, all sessions follow now, and those of removed users end.
    fn follow(&mut self) {
        let before = std::mem::replace(&mut self.directory, self.shared.directory());
        for index in &self.watching {
            if let Some(connection) = self.connections.get_mut(*index) {
                connection.session.follow(&self.directory);
            }
        }
        if before.users.is(&self.directory.users) {
            return;
        }
        let mut over = Vec::new();
        for (index, connection) in &mut self.connections {
            connection.session.follow(&self.directory);
            if connection.session.close == Some(Close::Shutdown) {
                over.push(index);
            }
        }
        for index in over {
            self.close(index, Close::Shutdown);
        }
    }

    /// Returns the seconds since the start, by the coarse clock: cheap, and exact enough for deadlines.
    fn seconds(&self) -> u32 {
        let passed = clock::coarse().saturating_sub(self.started);
        u32::try_from(passed / 1_000_000_000).unwrap_or(u32::MAX)
    }

    fn timeout(&self) -> Option<Timespec> {
        let seconds = if !self.ready.is_empty() {
            0
        } else if self.timed > 0
            || self.shared.settings.idle_timeout > 0
            || self.shared.watchers.evictions.wanted()
        {
            1
        } else {
            return None;
        };
        Some(Timespec {
            tv_sec: seconds,
            tv_nsec: 0,
        })
    }

    fn event(&mut self, event: Event, now: u32) {
        let token = event.data.u64();
        if token != WAKE {
            let index = token as usize;
            let Some(connection) = self.connections.get_mut(index) else {
                return;
            };
            let flags = event.flags;
            connection.may_read |= flags.intersects(READABLE);
            connection.is_marked |= flags.intersects(MARKED);
            if connection.turned != self.steps {
                self.turn(index, now);
            } else if connection.may_read && !connection.is_queued {
                // It has had its turn.
                connection.is_queued = true;
                self.ready.push(index);
            }
            return;
        }
        self.inbox.waker.clear();
        for arrival in self.inbox.waiting() {
            self.admit(arrival, now);
        }
        for index in self.watching.clone() {
            let watcher = self.connections.get(index).map(|one| one.session.watcher());
            if watcher.flatten().is_some_and(|watcher| watcher.is_woken()) {
                self.turn(index, now);
            }
        }
    }

    /// Returns the number of bytes that connections of this thread have to give up. It is 0 if the
    /// connections of all threads keep within the limit, or those of this one within an equal part.
    fn excess(&self) -> usize {
        let most = self.shared.buffer_limit();
        let all = self.shared.totals.buffer_bytes.load(Ordering::Relaxed);
        let share = most / self.shared.settings.threads;
        let own = self.buffers.bytes.saturating_sub(share);
        all.saturating_sub(most).min(own)
    }

    /// Ends connections while there is an [excess](Self::excess). If other threads may have one, wakes
    /// them.
    ///
    /// `grown` is a connection that keeps more than before. If ending others would not make enough room,
    /// as where idle TLS connections have most of it, only `grown` is ended.
    fn make_buffer_room(&mut self, grown: Option<usize>) {
        let most = self.shared.buffer_limit();
        let is_over = |shared: &Shared| shared.totals.buffer_bytes.load(Ordering::Relaxed) > most;
        if !is_over(&self.shared) {
            return;
        }
        let of_grown = grown.map_or(0, |index| self.connections[index].kept.endable());
        if self.buffers.endable() - of_grown < self.excess() {
            if let Some(index) = grown {
                self.close_for_room(index);
            }
        } else {
            let share = most / self.shared.settings.threads;
            while self.excess() > 0
                && let Some(index) = self.buffers.first(share / 2)
            {
                self.close_for_room(index);
            }
        }
        if grown.is_some() && is_over(&self.shared) {
            (self.shared.wake)();
        }
    }

    fn close_for_room(&mut self, index: usize) {
        let totals = &self.shared.totals;
        totals.over_limit.fetch_add(1, Ordering::Relaxed);
        self.close(index, Close::Memory);
    }

    /// If there are more connections than `-c` allows, ends the client that has taken longest to log in.
    /// Returns false if all have logged in.
    fn make_room(&mut self) -> bool {
        let all = self.shared.totals.connections.load(Ordering::Relaxed);
        if all <= self.shared.settings.max_connections {
            return true;
        }
        let oldest = self.unknown.first_key_value().map(|(_, &index)| index);
        if let Some(index) = oldest {
            self.close(index, Close::Slow);
        }
        oldest.is_some()
    }

    fn admit(&mut self, arrival: Arrival, now: u32) {
        if arrival.replaces && !self.make_room() {
            let totals = &self.shared.totals;
            totals.connections_rejected.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let Arrival {
            fd,
            tls,
            number,
            place,
            session,
            ..
        } = arrival;
        let (is_known, card) = (session.access.known.is_some(), &session.card);
        card.last.store(self.shared.store.now(), Ordering::Relaxed);
        lock(&self.shared.cards).insert(session.id, Arc::clone(card));
        let index = self.connections.vacant_key();
        let token = EventData::new_u64(index as u64);
        let added = epoll::add(&self.epoll, &fd, token, ARRIVALS);
        let mut connection = Connection::new(fd, tls, session, place, now);
        // The time for a handshake or a login begins now, even if no byte ever comes.
        connection.set_deadline(now, self.shared.settings.send_timeout);
        self.timed += usize::from(connection.deadline != 0);
        let grows = self.charge(&mut connection, index);
        if !is_known {
            connection.unknown = number;
            self.unknown.insert(number, index);
        }
        let same = self.connections.insert(Box::new(connection));
        debug_assert_eq!(same, index);
        self.tell_connection(index, None);
        match added {
            Ok(()) if grows => self.make_buffer_room(Some(index)),
            Ok(()) => {}
            Err(_) => self.close(index, Close::Memory),
        }
    }

    /// Gives a connection its turn.
    fn turn(&mut self, index: usize, now: u32) {
        let mut connection = self.connections.remove(index);
        connection.turned = self.steps;
        let before = connection.deadline;
        let fate = self.serve(&mut connection, index, now);
        if fate.is_ok() {
            connection.set_deadline(now, self.shared.settings.send_timeout);
        }
        self.timed = self.timed + usize::from(connection.deadline != 0) - usize::from(before != 0);
        let fate = fate.and_then(|()| self.count(&mut connection));
        if connection.unknown != 0 && connection.session.access.known.is_some() {
            self.unknown
                .remove(&std::mem::take(&mut connection.unknown));
        }
        let grows = self.charge(&mut connection, index);
        let watches = connection.session.watcher().is_some();
        // The slab returns the index that was freed last.
        let same = self.connections.insert(connection);
        debug_assert_eq!(same, index);
        if watches && !self.watching.contains(&index) {
            self.watching.push(index);
        }
        if self.out.bytes.capacity() > OUTPUT_KEPT {
            self.out = self.out.fresh();
        }
        match fate {
            Err(reason) => self.close(index, reason),
            Ok(()) if grows => self.make_buffer_room(Some(index)),
            Ok(()) => {}
        }
    }

    /// Counts the buffers that a connection keeps. Returns whether they are more than before.
    fn charge(&mut self, connection: &mut Connection, index: usize) -> bool {
        let before = connection.kept;
        self.charges += 1;
        connection.charge(&self.shared, self.charges);
        self.buffers.replace(index, before, connection.kept);
        connection.kept.bytes > before.bytes
    }

    /// Counts a connection that is in the middle of a request. Fails if there are more of them than the
    /// bound allows if each fills a buffer.
    fn count(&mut self, connection: &mut Connection) -> Fate {
        let is_amid = connection.is_amid();
        if is_amid == connection.is_counted {
            return Ok(());
        }
        connection.is_counted = is_amid;
        if !is_amid {
            self.amid -= 1;
            return Ok(());
        }
        self.amid += 1;
        if self.amid > self.most_amid {
            let totals = &self.shared.totals;
            totals.over_limit.fetch_add(1, Ordering::Relaxed);
            return Err(Close::Memory);
        }
        Ok(())
    }

    /// Closes connections whose time is over.
    fn drop_late(&mut self, now: u32) {
        let idle = self.shared.settings.idle_timeout;
        let late = |(index, connection): (usize, &Connection)| {
            if connection.deadline != 0 && connection.deadline <= now {
                return Some((index, Close::Slow));
            }
            let silent = now.saturating_sub(connection.active);
            let watches = connection.session.watcher().is_some();
            (idle > 0 && !watches && silent > idle).then_some((index, Close::Idle))
        };
        let all = self
            .connections
            .iter()
            .map(|(index, connection)| (index, &**connection));
        let late: Vec<_> = all.filter_map(late).collect();
        for (index, reason) in late {
            self.close(index, reason);
        }
    }

    fn close(&mut self, index: usize, reason: Close) {
        self.tell_connection(index, Some(reason));
        let mut connection = self.connections.remove(index);
        self.timed -= usize::from(connection.deadline != 0);
        self.amid -= usize::from(connection.is_counted);
        self.watching.retain(|&other| other != index);
        self.unknown.remove(&connection.unknown);
        self.buffers
            .replace(index, connection.kept, Kept::default());
        connection.uncharge(&self.shared);
        lock(&self.shared.cards).remove(&connection.session.id);
        let totals = &self.shared.totals;
        let counter = match reason {
            Close::Idle => Some(&totals.idle_kicks),
            Close::Slow => Some(&totals.dropped_slow),
            Close::Memory => Some(&totals.dropped_memory),
            _ => None,
        };
        if let Some(counter) = counter {
            counter.fetch_add(1, Ordering::Relaxed);
        }
        if let Some(tls) = &mut connection.tls {
            if tls.is_handshaking() && reason != Close::Shutdown {
                totals.handshake_errors.fetch_add(1, Ordering::Relaxed);
            }
            tls.close(&connection.fd);
        }
    }

    fn tell_connection(&self, index: usize, closed: Option<Close>) {
        let connection = &self.connections[index];
        let session = &connection.session;
        let card = &session.card;
        self.shared.log.detail(|| {
            let tls = connection.tls.as_ref().and_then(|tls| tls.failure());
            match (closed, tls) {
                (None, _) => format!("<{} new client {}", session.id, card.peer),
                (Some(reason), None) => format!("<{} closed: {}", session.id, reason.name()),
                (Some(reason), Some(why)) => {
                    format!("<{} closed: {}: TLS: {why}", session.id, reason.name())
                }
            }
        });
        let home = &session.access.home;
        if !self.shared.watchers.want(home, watch::CONNECTIONS) {
            return;
        }
        let (kind, reason) = match closed {
            None => ("conn_new", String::new()),
            Some(reason) => ("conn_close", format!(" reason={}", reason.name())),
        };
        let (peer, transport, id) = (&card.peer, card.transport, session.id);
        let text = format!("peer={peer} transport={transport}{reason} cfd={id}");
        let write = |line: &mut Vec<u8>| line.extend_from_slice(text.as_bytes());
        let watchers = &self.shared.watchers;
        watchers.tell(watch::CONNECTIONS, Some(home), kind, write);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let open: Vec<_> = self.connections.iter().map(|(index, _)| index).collect();
        for index in open {
            self.close(index, Close::Shutdown);
        }
    }
}

#[cfg(test)]
#[path = "worker_tests.rs"]
mod tests;
