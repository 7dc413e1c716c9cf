//! A connection: its state between events.

use super::{
    buffers::{Due, Kept, LITTLE, Rank},
    socket::{receive, send_slices},
    tls,
};
use crate::{
    output::Output,
    places::Place,
    session::{Close, Session, Work},
    shared::{Shared, Totals},
};
use rustix::{fd::OwnedFd, io::Errno};
use std::{
    io::IoSlice,
    sync::atomic::{AtomicUsize, Ordering},
};

/// Most bytes that a socket has not taken and that are copied, so that nothing stays pinned.
const COPY_LEFT: usize = 64 << 10;
/// Rate in bytes a second at which a long answer or value extends its deadline.
const LEAST_RATE: usize = 256 << 10;
/// Seconds for a handshake and a login where `send-timeout` is 0: otherwise clients that finish neither
/// would keep their places and buffers forever.
const ENTER_TIMEOUT: u32 = 30;
/// A client that has taken this number of bytes reads: what it leaves is as new as what others keep.
const TAKEN: usize = 64 << 10;
/// Number of pieces that one call sends.
const SLICES: usize = 64;

/// A client's connection.
pub(crate) struct Connection {
    pub(crate) fd: OwnedFd,
    /// Its encrypted side, if it uses TLS.
    pub(crate) tls: Option<Box<tls::Stream>>,
    pub(crate) session: Session,
    /// Input that has not been consumed: a part of a request, or what follows an unfinished one.
    pub(crate) input: Vec<u8>,
    /// Output that the socket has not taken.
    pub(crate) pending: Output,
    /// Whether `input` may have whole requests.
    pub(crate) resume: bool,
    /// The second of the thread's clock at which it is dropped, or 0.
    pub(crate) deadline: u32,
    /// The second in which something arrived last.
    pub(crate) active: u32,
    /// Whether the thread waits until the socket takes more, instead of until it has more.
    pub(crate) waits_to_send: bool,
    /// Whether the socket may have something to read that the thread is not told of again.
    pub(crate) may_read: bool,
    /// Whether the socket may have something at which a read stops: the end of what the client sends,
    /// or a byte out of band.
    pub(crate) is_marked: bool,
    /// [`Session::requests`] when the deadline was last cleared.
    requests: u32,
    /// Whether the deadline is that of its handshake and login.
    enters: bool,
    /// Its part of the totals.
    charged: Charged,
    /// Number of the charge since which its client has made it keep buffers.
    since: Option<u64>,
    /// Bytes of `pending` that the socket has taken since then.
    taken: usize,
    /// Its buffers as they were charged last.
    pub(crate) kept: Kept,
    /// Whether it counts as one in the middle of a request.
    pub(crate) is_counted: bool,
    /// Bytes that may still be read and sent before other connections have their turn.
    pub(crate) turn_left: usize,
    /// The work that may still be done before that.
    pub(crate) work: Work,
    /// Whether it is among those that go on without an event.
    pub(crate) is_queued: bool,
    /// [`Arrival::number`](super::worker::Arrival) if it has not logged in; 0 once it has.
    pub(crate) unknown: u64,
    /// The thread's step in which it had its last turn.
    pub(crate) turned: u64,
    /// Dropped behind the descriptor, so that a client that finds a place finds a descriptor.
    _place: Place,
}

/// The part of a connection in the totals.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Charged {
    /// Bytes of all.
    bytes: usize,
    /// Bytes of answers.
    answers: usize,
    /// Whether there is a part of a request.
    request: bool,
}

impl Charged {
    /// Calls `change` with each total, and by how much it changes.
    fn change(self, totals: &Totals, change: impl Fn(&AtomicUsize, usize)) {
        change(&totals.answer_bytes, self.answers);
        change(&totals.answers, usize::from(self.answers > 0));
        change(&totals.requests, usize::from(self.request));
        change(&totals.buffer_bytes, self.bytes);
    }

    fn add_to(self, totals: &Totals) {
        self.change(totals, |total, by| {
            _ = total.fetch_add(by, Ordering::Relaxed)
        });
    }

    fn take_from(self, totals: &Totals) {
        self.change(totals, |total, by| {
            _ = total.fetch_sub(by, Ordering::Relaxed)
        });
    }
}

impl Connection {
    pub(crate) fn new(
        fd: OwnedFd,
        tls: Option<Box<tls::Stream>>,
        session: Session,
        place: Place,
        now: u32,
    ) -> Self {
        Self {
            fd,
            enters: true,
            tls,
            session,
            input: Vec::new(),
            pending: Output::default(),
            resume: false,
            deadline: 0,
            active: now,
            waits_to_send: false,
            may_read: false,
            is_marked: false,
            requests: 0,
            charged: Charged::default(),
            since: None,
            taken: 0,
            kept: Kept::default(),
            is_counted: false,
            turn_left: 0,
            work: Work::new(),
            is_queued: false,
            unknown: 0,
            turned: 0,
            _place: place,
        }
    }

    /// Reads what has arrived. Returns 0 if the client has gone.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> Result<usize, Errno> {
        let read = match &mut self.tls {
            None => receive(&self.fd, buffer),
            Some(tls) => tls.read(&self.fd, buffer),
        };
        self.turn_left = self.turn_left.saturating_sub(read.unwrap_or(0));
        read
    }

    /// Reads what has arrived to the place of a large value. Returns the number of bytes, and whether
    /// that was all; `None`, without reading, if the session wants the input in a buffer.
    pub(crate) fn read_direct(&mut self) -> Option<Result<(usize, bool), Errno>> {
        let mut room = 0;
        let read = self.session.direct(|direct| {
            room = direct.len().min(self.turn_left);
            let direct = &mut direct[..room];
            match &mut self.tls {
                None => receive(&self.fd, direct),
                Some(tls) => tls.read(&self.fd, direct),
            }
        })?;
        self.turn_left -= *read.as_ref().unwrap_or(&0);
        Some(read.map(|bytes| (bytes, bytes < room)))
    }

    /// Sends what `output` has, as far as the socket takes it and the turn allows. Returns the number of
    /// bytes. If something is left, `output` is not empty or [`Connection::is_stuck`] returns true.
    pub(crate) fn send(&mut self, output: &mut Output) -> Result<usize, Errno> {
        let most = self.turn_left;
        let mut sent = 0;
        if let Some(tls) = &mut self.tls {
            sent = tls.send(&self.fd, output, most)?;
        } else {
            while !output.is_empty() && sent < most {
                let mut slices = [IoSlice::new(&[]); SLICES];
                let used = output.slices(&mut slices, most - sent);
                match send_slices(&self.fd, &slices[..used]) {
                    Ok(bytes) => {
                        output.advance(bytes);
                        sent += bytes;
                    }
                    Err(Errno::INTR) => {}
                    Err(Errno::AGAIN) => break,
                    Err(error) => return Err(error),
                }
            }
        }
        self.turn_left -= sent;
        if output.is_empty() {
            output.clear();
        }
        Ok(sent)
    }

    /// Sends what was kept. Returns the number of bytes.
    pub(crate) fn send_pending(&mut self) -> Result<usize, Errno> {
        let mut pending = std::mem::take(&mut self.pending);
        let sent = self.send(&mut pending);
        self.pending = pending;
        self.taken += *sent.as_ref().unwrap_or(&0);
        if self.taken >= TAKEN && !self.enters {
            self.renew_since();
        }
        sent
    }

    /// Returns whether there are encrypted bytes that the socket has not taken.
    pub(crate) fn is_stuck(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.is_sending())
    }

    /// Returns whether something waits until the socket takes more.
    pub(crate) fn is_sending(&self) -> bool {
        !self.pending.is_empty() || self.is_stuck()
    }

    /// Returns whether there are decrypted bytes to read, for which no event comes.
    pub(crate) fn has_plaintext(&self) -> bool {
        self.tls.as_ref().is_some_and(|tls| tls.has_plaintext())
    }

    /// Returns whether a read that did not fill its buffer has emptied the socket, so that an event
    /// comes for whatever arrives next. With TLS the socket may have another record, and a read stops
    /// at a mark. (It also stops at descriptors that a client passes. Clients of this protocol do not.)
    pub(crate) fn is_told_of(&self) -> bool {
        self.tls.is_none() && !self.is_marked
    }

    /// Keeps what has not been consumed. Fails without memory.
    pub(crate) fn keep_input(&mut self, rest: &[u8]) -> Result<(), Close> {
        if rest.is_empty() {
            return Ok(());
        }
        self.input
            .try_reserve_exact(rest.len())
            .map_err(|_| Close::Memory)?;
        self.input.extend_from_slice(rest);
        Ok(())
    }

    /// Counts its buffers in the totals of all connections. `number` is the number of this charge among
    /// those of the thread.
    pub(crate) fn charge(&mut self, shared: &Shared, number: u64) {
        let tls = self.tls.as_ref().map_or(0, |tls| tls.footprint());
        let answers = self.pending.footprint();
        let takes = Charged {
            bytes: self.input.capacity() + answers + tls + self.session.footprint(),
            answers,
            request: self.is_amid(),
        };
        if takes != self.charged {
            // In this order, other threads never see the buffers twice.
            std::mem::replace(&mut self.charged, takes).take_from(&shared.totals);
            takes.add_to(&shared.totals);
        }
        let idle = match (&self.tls, self.enters) {
            (Some(tls), false) => tls.idle_footprint(),
            _ => 0,
        };
        let keeps = takes.bytes - idle;
        self.since = (keeps > 0).then_some(self.since.unwrap_or(number));
        let rank = if self.enters {
            Rank::Enters
        } else if keeps < LITTLE {
            Rank::KeepsLittle
        } else if self.deadline == 0 && self.session.watcher().is_some() {
            Rank::Watches
        } else {
            Rank::Known
        };
        self.kept = Kept {
            bytes: takes.bytes,
            due: self.since.map(|since| Due { rank, since }),
        };
    }

    pub(crate) fn uncharge(&mut self, shared: &Shared) {
        std::mem::take(&mut self.charged).take_from(&shared.totals);
    }

    /// Returns whether the client has sent a part of a request.
    pub(crate) fn is_amid(&self) -> bool {
        !self.input.is_empty() || self.session.is_amid()
    }

    /// Keeps what the socket has not taken of `output`.
    pub(crate) fn keep_output(&mut self, output: &mut Output) -> Result<(), Close> {
        self.pending = output.take_left(COPY_LEFT).ok_or(Close::Memory)?;
        Ok(())
    }

    /// Notes that the client has taken all that was kept for it. A long answer goes on with its own
    /// time, piece by piece. A handshake and a login have one time, whatever is answered meanwhile.
    pub(crate) fn note_taken(&mut self) {
        if !self.enters {
            self.renew();
        }
    }

    /// Ends the time of what the client was to do: what comes next has its own.
    fn renew(&mut self) {
        self.deadline = 0;
        self.renew_since();
    }

    fn renew_since(&mut self) {
        self.since = None;
        self.taken = 0;
    }

    /// Sets or clears the second until which the client has to take what is sent to it, to send what it
    /// has announced, or to finish its handshake and log in. If `timeout` is 0, only the last has a deadline.
    pub(crate) fn set_deadline(&mut self, now: u32, timeout: u32) {
        let handshakes = self.tls.as_ref().is_some_and(|tls| tls.is_handshaking());
        let enters = handshakes || self.session.access.known.is_none();
        let timeout = match timeout {
            0 if enters => ENTER_TIMEOUT,
            timeout => timeout,
        };
        let bytes = if timeout == 0 {
            None
        } else if enters {
            Some(0)
        } else if !self.is_sending() {
            self.session.expects()
        } else if self.session.watcher().is_some() && !self.pending.has_pins() {
            // No deadline: a watcher that does not read in time loses lines.
            None
        } else {
            Some(self.pending.left())
        };
        // After a finished request the next one has its own time. (A wrong password finishes nothing.)
        if self.enters != enters || (!enters && self.requests != self.session.requests) {
            self.requests = self.session.requests;
            self.enters = enters;
            self.renew();
        }
        match bytes {
            None => self.deadline = 0,
            // A client cannot extend it by taking or sending a little.
            Some(_) if self.deadline != 0 => {}
            Some(bytes) => {
                let extra = u32::try_from(bytes / LEAST_RATE).unwrap_or(u32::MAX);
                self.deadline = now.saturating_add(timeout).saturating_add(extra);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz;
    use std::{io::Read, os::unix::net::UnixStream};

    /// Returns a connection of a client that came at the second `now`, and may need no login.
    fn connection(shared: &Shared, needs_no_login: bool, now: u32) -> Connection {
        let session = fuzz::new_session(&shared.directory(), false, needs_no_login);
        let fd = std::fs::File::open("/dev/null").unwrap().into();
        let place = Place::take(&shared.totals.connections, |_| true).unwrap();
        Connection::new(fd, None, session, place, now)
    }

    /// Feeds the connection's session. Returns the number of bytes consumed.
    fn fed(connection: &mut Connection, shared: &Shared, bytes: &[u8]) -> usize {
        let (mut out, now) = (Output::default(), shared.store.now());
        fuzz::feed(&mut connection.session, shared, bytes, &mut out, now).0
    }

    /// One that loads values without a pause is never between two of them when its deadline is looked at.
    #[test]
    fn each_value_has_its_own_deadline() {
        let shared = fuzz::new_shared(|_| {});
        let mut connection = connection(&shared, true, 0);
        let feed = |connection: &mut Connection, bytes: &[u8]| {
            assert_eq!(fed(connection, &shared, bytes), bytes.len());
        };
        feed(&mut connection, b"set k 0 0 10\r\n01234");
        connection.set_deadline(100, 30);
        assert_eq!(connection.deadline, 130);
        // A little more does not extend it.
        feed(&mut connection, b"5");
        connection.set_deadline(110, 30);
        assert_eq!(connection.deadline, 130);
        feed(&mut connection, b"6789\r\nset k 0 0 10\r\n01234");
        connection.set_deadline(120, 30);
        assert_eq!(connection.deadline, 150);
        // What is skipped as well.
        feed(&mut connection, b"56789\r\nset k 0 0 200000\r\nx");
        connection.set_deadline(140, 30);
        assert_eq!(connection.deadline, 170);
        feed(&mut connection, &[b'x'; 200_001]);
        connection.set_deadline(141, 30);
        assert_eq!(connection.deadline, 0);
    }

    /// Detects a client that is not the one that has made the server keep buffers for longest, because
    /// it sends a byte now and then.
    #[test]
    fn what_is_kept_has_its_time_until_the_next_request() {
        let shared = fuzz::new_shared(|_| {});
        let mut connection = connection(&shared, true, 0);
        connection.set_deadline(0, 30);
        let mut keeps = |input: &[u8], number| {
            let used = fed(&mut connection, &shared, input);
            connection.input = input[used..].to_vec();
            connection.set_deadline(5, 30);
            connection.charge(&shared, number);
            connection.kept.due.map(|due| due.since)
        };
        assert_eq!(keeps(b"", 1), None);
        assert_eq!(keeps(b"touch", 5), Some(5));
        assert_eq!(keeps(b"touch k", 9), Some(5));
        assert_eq!(keeps(b"touch k 0\r\ntouch", 12), Some(12));
        assert_eq!(keeps(b"touch k 0\r\n", 13), None);
        assert_eq!(keeps(b"set k 0 0 2000\r\n1", 20), Some(20));
        assert_eq!(keeps(b"2", 24), Some(20));
        assert_eq!(keeps(&[b'3'; 1998], 26), Some(20));
        assert_eq!(keeps(b"\r\n", 28), None);
    }

    /// Detects a client that reads a long answer and is ended before those that came later and read
    /// nothing.
    #[test]
    fn what_is_kept_is_new_after_each_64_kib_that_the_client_has_taken() {
        let shared = fuzz::new_shared(|_| {});
        let mut connection = connection(&shared, true, 0);
        let (mut client, server) = UnixStream::pair().unwrap();
        connection.fd = server.into();
        connection.set_deadline(0, 30);
        connection.pending.bytes = vec![b'v'; 500_000];
        let mut sends = |most, number| {
            connection.turn_left = most;
            assert_eq!(connection.send_pending(), Ok(most));
            client.read_exact(&mut vec![0; most]).unwrap();
            connection.set_deadline(5, 30);
            connection.charge(&shared, number);
            let due = connection.kept.due.unwrap();
            assert_eq!((due.rank, connection.deadline), (Rank::Known, 36));
            due.since
        };
        assert_eq!(sends(TAKEN / 2, 3), 3);
        assert_eq!(sends(TAKEN / 2 - 1, 4), 3);
        assert_eq!(sends(1, 5), 5);
        assert_eq!(sends(TAKEN - 1, 6), 5);
        assert_eq!(sends(1, 7), 7);
    }

    /// Detects clients that never log in, and keep their places.
    #[test]
    fn without_a_timeout_only_a_login_has_a_deadline() {
        let shared = fuzz::new_shared(|_| {});
        for (needs_no_login, without) in [(true, 0), (false, 5 + ENTER_TIMEOUT)] {
            for (timeout, deadline) in [(1, 6), (0, without)] {
                let mut connection = connection(&shared, needs_no_login, 0);
                fed(&mut connection, &shared, b"set k 0 0 3\r\n");
                connection.set_deadline(5, timeout);
                assert_eq!(connection.deadline, deadline, "{needs_no_login}");
            }
        }
        let mut connection = connection(&shared, false, 0);
        connection.set_deadline(5, 0);
        fed(
            &mut connection,
            &shared,
            b"set k 0 0 3\r\nu p\r\nset k 0 0 3\r\n",
        );
        connection.set_deadline(6, 0);
        assert_eq!(connection.deadline, 0);
    }

    /// Whatever it says meanwhile, right or wrong: nothing but a login ends it.
    #[test]
    fn a_login_has_one_deadline() {
        let shared = fuzz::new_shared(|_| {});
        let mut connection = connection(&shared, false, 100);
        connection.set_deadline(100, 30);
        assert_eq!(connection.deadline, 130);
        let login = b"set k 0 0 3\r\nu p\r\n";
        for (bytes, deadline) in [
            (&b"set k 0 0 3\r\nu q\r\n"[..], 130),
            (b"set k 0 0 3\r\nu pxx", 130),
            (b"mn\r\nset k 0 0 3\r\n", 130),
            (b"u q\r\n", 130),
            (login, 0),
            (b"set k 0 0 3\r\n", 150),
        ] {
            fed(&mut connection, &shared, bytes);
            connection.set_deadline(120, 30);
            assert_eq!(connection.deadline, deadline, "{bytes:?}");
        }
    }
}
