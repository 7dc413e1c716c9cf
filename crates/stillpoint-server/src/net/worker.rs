//! A thread that serves its connections.

use super::{connection::Connection, tls, wake::Waker};
use crate::{
    output::{Output, ROOM},
    session::{Access, Close, Context, Session},
    shared::{Card, Shared, bump, lock},
    space::Directory,
    watch,
};
use rustix::{
    event::{
        Timespec,
        epoll::{self, Event, EventData, EventFlags},
    },
    fd::{AsRawFd, OwnedFd},
    io::Errno,
};
use slab::Slab;
use std::{
    sync::{Arc, Mutex, atomic::Ordering},
    time::Instant,
};

/// The token of the thread's own eventfd.
const WAKE: u64 = u64::MAX;
/// What is read at once; what arrives beyond it waits in the socket.
const BUFFER: usize = 16 << 10;
/// After so many rounds of reading and sending, other connections have their turn.
const ROUNDS: u32 = 16;
/// After so many bytes that were read and sent, too: an answer of a pipeline and a long value is less.
const TURN: usize = 2 << 20;
/// A larger output buffer is given back after use.
const OUTPUT_KEPT: usize = 256 << 10;

/// A connection that was accepted, on its way to a thread.
pub(crate) struct Arrival {
    pub(crate) fd: OwnedFd,
    pub(crate) tls: Option<Box<tls::Stream>>,
    pub(crate) access: Access,
    pub(crate) card: Arc<Card>,
    pub(crate) version: u64,
}

/// What other threads know of a worker.
pub(crate) struct Inbox {
    arrivals: Mutex<Vec<Arrival>>,
    pub(crate) waker: Waker,
}

impl Inbox {
    pub(crate) fn new() -> Result<Self, Errno> {
        Ok(Self {
            arrivals: Mutex::default(),
            waker: Waker::new()?,
        })
    }

    pub(crate) fn push(&self, arrival: Arrival) {
        lock(&self.arrivals).push(arrival);
        self.waker.wake();
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
    /// How often the thread has waited.
    steps: u64,
    watching: Vec<usize>,
    /// How many have a deadline.
    timed: usize,
    /// How many are in the middle of a request, and how many may be.
    amid: usize,
    most_amid: usize,
    started: Instant,
    scanned: u32,
    /// [`TURN`].
    turn: usize,
}

/// What comes of a connection after an event.
type Fate = Result<(), Close>;

impl Worker {
    pub(crate) fn new(
        shared: Arc<Shared>,
        thread: usize,
        inbox: Arc<Inbox>,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(
            &epoll,
            &inbox.waker.0,
            EventData::new_u64(WAKE),
            EventFlags::IN,
        )?;
        let woken = Arc::clone(&inbox);
        let settings = &shared.settings;
        // One at least: a client alone is served.
        let (most_answers, most_amid) = match settings.reserved_max / settings.threads {
            0 => (u32::MAX, usize::MAX),
            share => (
                u32::try_from(share / ROOM).unwrap_or(u32::MAX).max(1),
                (share / BUFFER).max(1),
            ),
        };
        Ok(Self {
            directory: shared.directory(),
            started: shared.started,
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
            timed: 0,
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
                self.shared
                    .log
                    .note(format_args!("epoll: {error}; the server stops"));
                self.shared.stop();
            }
        }
    }

    /// Waits until a connection can go on, and gives each that can its turn.
    fn step(&mut self, events: &mut Vec<Event>) -> Result<(), Errno> {
        events.clear();
        let room = rustix::buffer::spare_capacity(events);
        match epoll::wait(&self.epoll, room, self.timeout().as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
        if self.directory.version != self.shared.version() {
            self.directory = self.shared.directory();
        }
        let now = self.seconds();
        self.steps += 1;
        for index in std::mem::take(&mut self.ready) {
            if let Some(connection) = self.connections.get_mut(index) {
                connection.is_queued = false;
                self.turn(index, false, now);
            }
        }
        for event in events.iter() {
            self.event(*event, now);
        }
        let store_now = self.shared.store.now();
        self.shared
            .watchers
            .tell_evictions(&self.directory, store_now);
        if now != self.scanned && (self.timed > 0 || self.shared.settings.idle_timeout > 0) {
            self.scanned = now;
            self.drop_late(now);
        }
        Ok(())
    }

    fn seconds(&self) -> u32 {
        u32::try_from(self.started.elapsed().as_secs()).unwrap_or(u32::MAX)
    }

    fn timeout(&self) -> Option<Timespec> {
        let seconds = if !self.ready.is_empty() {
            0
        } else if self.timed > 0
            || self.shared.settings.idle_timeout > 0
            || self.shared.watchers.want(watch::EVICTIONS)
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
            // One that has had its turn is told of again by the next wait.
            if let Some(connection) = self.connections.get(index)
                && connection.turned != self.steps
            {
                self.turn(index, true, now);
            }
            return;
        }
        self.inbox.waker.clear();
        let arrivals = std::mem::take(&mut *lock(&self.inbox.arrivals));
        for arrival in arrivals {
            self.admit(arrival, now);
        }
        for index in self.watching.clone() {
            self.turn(index, false, now);
        }
    }

    fn admit(&mut self, arrival: Arrival, now: u32) {
        let id = arrival.fd.as_raw_fd();
        let binding = self.shared.settings.binding;
        let Arrival {
            fd,
            tls,
            access,
            card,
            version,
        } = arrival;
        card.last.store(self.shared.store.now(), Ordering::Relaxed);
        lock(&self.shared.cards).insert(id, Arc::clone(&card));
        let session = Session::new(access, id, card, binding, version);
        let entry = self.connections.vacant_entry();
        let token = EventData::new_u64(entry.key() as u64);
        let added = epoll::add(&self.epoll, &fd, token, EventFlags::IN);
        let index = entry.key();
        let mut connection = Connection::new(fd, tls, session, now);
        // A handshake has its time from the beginning, also if nothing ever comes.
        connection.set_deadline(now, self.shared.settings.send_timeout);
        self.timed += usize::from(connection.deadline != 0);
        let charged = connection.charge(&self.shared);
        entry.insert(Box::new(connection));
        self.tell_connection(index, None);
        if added.is_err() || charged.is_err() {
            self.close(index, Close::Memory);
        }
    }

    /// Gives a connection its turn.
    fn turn(&mut self, index: usize, readable: bool, now: u32) {
        let mut connection = self.connections.remove(index);
        connection.turned = self.steps;
        let before = connection.deadline;
        let fate = self.serve(&mut connection, index, readable, now);
        if fate.is_ok() {
            connection.set_deadline(now, self.shared.settings.send_timeout);
        }
        self.timed = self.timed + usize::from(connection.deadline != 0) - usize::from(before != 0);
        let fate = fate.and_then(|()| self.count(&mut connection));
        let watches = connection.session.watcher().is_some();
        // The slab gives the place that was left last.
        let same = self.connections.insert(connection);
        debug_assert_eq!(same, index);
        if watches && !self.watching.contains(&index) {
            self.watching.push(index);
        }
        if self.out.bytes.capacity() > OUTPUT_KEPT {
            self.out = self.out.fresh();
        }
        if let Err(reason) = fate {
            self.close(index, reason);
        }
    }

    /// Counts a connection that is in the middle of a request. Fails if these are too many, should
    /// each of them fill a buffer.
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

    fn serve(
        &mut self,
        connection: &mut Connection,
        index: usize,
        mut readable: bool,
        now: u32,
    ) -> Fate {
        connection.turn_left = self.turn;
        if connection.is_sending() {
            let sent = connection.send_pending().map_err(|_| Close::Normal)?;
            bump(&self.shared.threads[self.thread].bytes_written, sent as u64);
            if connection.is_sending() {
                return Ok(());
            }
            connection.pending = Output::default();
            connection.deadline = 0;
            connection.charge(&self.shared)?;
            self.wait_for(connection, index, false)?;
            if let Some(reason) = connection.session.close {
                return Err(reason);
            }
            connection.resume = true;
        }
        connection.session.follow(&self.directory);
        if let Some(reason) = connection.session.close {
            return Err(reason);
        }
        if connection.session.watcher().is_some() {
            self.send_log(connection, index)?;
            if connection.is_sending() {
                return Ok(());
            }
        }
        readable |= connection.has_plaintext();
        let (mut start, mut end) = (0, connection.input.len());
        self.buffer[..end].copy_from_slice(&connection.input);
        connection.input = Vec::new();
        let mut fresh = std::mem::take(&mut connection.resume);
        let mut rounds = 0;
        loop {
            if fresh {
                let fed = self.feed(connection, &mut start, end, index);
                match fed {
                    Ok(Fed::All) => {}
                    Ok(Fed::More) if rounds < ROUNDS && connection.turn_left > 0 => {
                        rounds += 1;
                        continue;
                    }
                    Ok(Fed::More | Fed::Yield) => {
                        bump(&self.shared.threads[self.thread].yields, 1);
                        connection.resume = true;
                        self.go_on(connection, index);
                        break;
                    }
                    Ok(Fed::Stuck) => {
                        connection.resume = true;
                        break;
                    }
                    Err(reason) => return Err(reason),
                }
            }
            rounds += 1;
            if !readable || rounds > ROUNDS || connection.turn_left == 0 {
                break;
            }
            match self.read(connection, &mut start, &mut end) {
                Ok((0, _)) => return Err(Close::Normal),
                Ok((bytes, drained)) => {
                    bump(&self.shared.threads[self.thread].bytes_read, bytes as u64);
                    connection.active = now;
                    readable = !drained;
                    fresh = true;
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR) => {}
                Err(Errno::PROTO) => return Err(Close::Error),
                Err(_) => return Err(Close::Normal),
            }
        }
        if connection.is_sending() {
            // A handshake's answer, if nothing else.
            self.wait_for(connection, index, true)?;
        } else if connection.has_plaintext() {
            self.go_on(connection, index);
        }
        connection
            .session
            .card
            .state
            .store(connection.session.state(), Ordering::Relaxed);
        connection.keep_input(&self.buffer[start..end])?;
        connection.charge(&self.shared)
    }

    /// Has a connection go on in the next step, without an event.
    fn go_on(&mut self, connection: &mut Connection, index: usize) {
        if !connection.is_queued {
            connection.is_queued = true;
            self.ready.push(index);
        }
    }

    /// Reads what has arrived: into a long value directly, or behind what is in the buffer. Returns how much, and whether that was all.
    fn read(
        &mut self,
        connection: &mut Connection,
        start: &mut usize,
        end: &mut usize,
    ) -> Result<(usize, bool), Errno> {
        if start == end {
            (*start, *end) = (0, 0);
            if let Some(read) = connection.read_direct() {
                let (bytes, drained) = read?;
                return Ok((bytes, drained && connection.tls.is_none()));
            }
        } else if *start > 0 {
            self.buffer.copy_within(*start..*end, 0);
            (*start, *end) = (0, *end - *start);
        }
        // A request that fills the buffer and is none would have been refused.
        debug_assert!(*end < BUFFER);
        let room = BUFFER - *end;
        let bytes = connection.read(&mut self.buffer[*end..])?;
        *end += bytes;
        // A record more may lie in the socket.
        Ok((bytes, bytes < room && connection.tls.is_none()))
    }

    fn feed(
        &mut self,
        connection: &mut Connection,
        start: &mut usize,
        end: usize,
        index: usize,
    ) -> Result<Fed, Close> {
        let session = &mut connection.session;
        self.out.make_room();
        let now = self.shared.store.now();
        let limit = match self.shared.settings.requests_per_event {
            0 => u32::MAX,
            limit => limit,
        };
        let mut cx = Context {
            shared: &self.shared,
            directory: &self.directory,
            thread: self.thread,
            now,
            budget: limit,
            out: &mut self.out,
            wake: &self.wake,
        };
        *start += session.feed(&self.buffer[*start..end], &mut cx);
        let spent = cx.budget == 0;
        session.card.last.store(now, Ordering::Relaxed);
        let full = self.out.is_full();
        if !self.out.is_empty() {
            let sent = connection.send(&mut self.out);
            let Ok(sent) = sent else {
                self.out.clear();
                return Err(Close::Normal);
            };
            bump(&self.shared.threads[self.thread].bytes_written, sent as u64);
            if !self.out.is_empty() || connection.is_stuck() {
                let kept = connection.keep_output(&mut self.out);
                self.out.clear();
                kept?;
                self.wait_for(connection, index, true)?;
                return Ok(Fed::Stuck);
            }
        }
        if let Some(reason) = connection.session.close {
            return Err(reason);
        }
        let left = *start < end || connection.session.has_more();
        Ok(match left {
            true if spent => Fed::Yield,
            true if full || connection.session.has_more() => Fed::More,
            _ => Fed::All,
        })
    }

    /// Has the thread wait until the socket takes more, or until it has more.
    fn wait_for(&self, connection: &mut Connection, index: usize, sending: bool) -> Fate {
        if connection.waits_to_send == sending {
            return Ok(());
        }
        connection.waits_to_send = sending;
        let flags = if sending {
            EventFlags::OUT
        } else {
            EventFlags::IN
        };
        epoll::modify(
            &self.epoll,
            &connection.fd,
            EventData::new_u64(index as u64),
            flags,
        )
        .map_err(|_| Close::Memory)
    }

    fn send_log(&mut self, connection: &mut Connection, index: usize) -> Fate {
        let Some(watcher) = connection.session.watcher() else {
            return Ok(());
        };
        // What another connection may have left.
        self.out.clear();
        watcher.take(&mut self.out.bytes);
        if self.out.is_empty() {
            return Ok(());
        }
        let sent = connection.send(&mut self.out);
        let left = !self.out.is_empty() || connection.is_stuck();
        if left && sent.is_ok() {
            connection.keep_output(&mut self.out)?;
            self.wait_for(connection, index, true)?;
        }
        self.out.clear();
        sent.map_err(|_| Close::Normal)?;
        connection.charge(&self.shared)
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
        drop(connection);
        // After the descriptor is free again, so that a new client finds its place.
        totals.connections.fetch_sub(1, Ordering::Relaxed);
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
        if !self.shared.watchers.want(watch::CONNECTIONS) {
            return;
        }
        let kind = if closed.is_some() {
            "conn_close"
        } else {
            "conn_new"
        };
        self.shared.watchers.tell(
            watch::CONNECTIONS,
            Some(&session.access.home),
            kind,
            |line| {
                let head = format!("peer={} transport={}", card.peer, card.transport);
                line.extend_from_slice(head.as_bytes());
                if let Some(reason) = closed {
                    line.extend_from_slice(format!(" reason={}", reason.name()).as_bytes());
                }
                line.extend_from_slice(format!(" cfd={}", session.id).as_bytes());
            },
        );
    }
}

/// What feeding a session came to.
enum Fed {
    /// It needs more input.
    All,
    /// The output was full, and has been sent.
    More,
    /// Other connections have their turn.
    Yield,
    /// The socket does not take more, or not in this turn: then the next wait returns at once.
    Stuck,
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
