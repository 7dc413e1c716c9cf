//! A connection's turn: sends what was kept, reads and executes what has come, and sends the answers.

use super::{super::connection::Connection, ARRIVALS, BUFFER, Fate, Worker};
use crate::{
    output::Output,
    session::{Close, Context, Work},
    shared::bump,
};
use rustix::{
    event::epoll::{self, EventData, EventFlags},
    io::Errno,
};
use std::sync::atomic::Ordering;

/// Number of rounds of reading and sending after which other connections have their turn.
const ROUNDS: u32 = 16;

/// The result of feeding a session.
enum Fed {
    /// It needs more input.
    All,
    /// The output was full, and has been sent.
    More,
    /// Other connections have their turn.
    Yield,
    /// The socket takes no more, or the turn allows no more: then the next wait returns at once.
    Stuck,
}

impl Worker {
    pub(super) fn serve(&mut self, connection: &mut Connection, index: usize, now: u32) -> Fate {
        connection.turn_left = self.turn;
        connection.work = Work::new();
        if connection.is_sending() {
            let sent = connection.send_pending().map_err(|_| Close::Normal)?;
            bump(&self.shared.threads[self.thread].bytes_written, sent as u64);
            if connection.is_sending() {
                return Ok(());
            }
            connection.pending = Output::default();
            connection.note_taken();
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
        connection.may_read |= connection.has_plaintext();
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
            if !connection.may_read || rounds > ROUNDS || connection.turn_left == 0 {
                break;
            }
            match self.read(connection, &mut start, &mut end) {
                Ok((0, _)) => return Err(Close::Normal),
                Ok((bytes, drained)) => {
                    bump(&self.shared.threads[self.thread].bytes_read, bytes as u64);
                    connection.active = now;
                    connection.may_read = !drained;
                    fresh = true;
                }
                Err(Errno::AGAIN) => {
                    connection.may_read = false;
                    break;
                }
                Err(Errno::INTR) => {}
                Err(Errno::PROTO) => return Err(Close::Error),
                Err(_) => return Err(Close::Normal),
            }
        }
        if connection.is_sending() {
            // At least a handshake's answer.
            self.wait_for(connection, index, true)?;
        } else if connection.may_read || connection.has_plaintext() {
            self.go_on(connection, index);
        }
        connection
            .session
            .card
            .state
            .store(connection.session.state(), Ordering::Relaxed);
        connection.keep_input(&self.buffer[start..end])
    }

    /// Lets a connection go on in the next step, without an event.
    fn go_on(&mut self, connection: &mut Connection, index: usize) {
        if !connection.is_queued {
            connection.is_queued = true;
            self.ready.push(index);
        }
    }

    /// Reads what has arrived, directly into a long value or behind what the buffer has. Returns the
    /// number of bytes, and whether that was all.
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
                return Ok((bytes, drained && connection.is_told_of()));
            }
        } else if *start > 0 {
            self.buffer.copy_within(*start..*end, 0);
            (*start, *end) = (0, *end - *start);
        }
        // Input that fills the buffer without a whole request has been refused.
        debug_assert!(*end < BUFFER);
        let room = BUFFER - *end;
        let bytes = connection.read(&mut self.buffer[*end..])?;
        *end += bytes;
        Ok((bytes, bytes < room && connection.is_told_of()))
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
            work: connection.work,
            out: &mut self.out,
            wake: &self.wake,
        };
        *start += session.feed(&self.buffer[*start..end], &mut cx);
        let spent = cx.is_over();
        connection.work = cx.work;
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
            // Also if the next request has not been read yet.
            _ if spent && (left || connection.may_read) => Fed::Yield,
            true if full || connection.session.has_more() => Fed::More,
            _ => Fed::All,
        })
    }

    /// Makes the thread wait until the socket takes more if `sending`, and otherwise for input.
    fn wait_for(&self, connection: &mut Connection, index: usize, sending: bool) -> Fate {
        if connection.waits_to_send == sending {
            return Ok(());
        }
        connection.waits_to_send = sending;
        let flags = if sending {
            EventFlags::OUT
        } else {
            // The next wait reports what came in between.
            ARRIVALS
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
        // Another connection may have left bytes in it.
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
        sent.map(|_| ()).map_err(|_| Close::Normal)
    }
}
