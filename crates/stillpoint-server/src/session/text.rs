//! The commands of the text protocol.

use super::{Close, Context, Session, State, Step, body::Then, lookup::Lookup};
use crate::{
    directory::{Count, Space},
    log::note,
    output::{Mark, NoRoom},
    protocol::{
        number,
        text::{self, Command, Storage, Token},
    },
    shared::Shared,
    store::{Arithmetic, Outcome},
    watch,
};
use std::sync::{Arc, atomic::Ordering};

/// A retrieval command whose keys are coming.
#[derive(Debug, Clone, Copy)]
pub(super) struct Keys {
    pub(super) cas: bool,
    /// Whether the line has still to give the time.
    pub(super) needs_time: bool,
    pub(super) exptime: Option<u32>,
    /// Whether a key has come.
    pub(super) any: bool,
    /// The start of its answer, as long as nothing of it has been sent.
    pub(super) mark: Option<Mark>,
}

/// The answer to a retrieval for which there is no room.
pub(super) const NO_MEMORY: &str = "SERVER_ERROR out of memory writing get response";

/// The answer to a command that only an admin may use.
pub(super) const NOT_ADMIN: &str = "CLIENT_ERROR only an admin may do that";

impl Session {
    /// Reads keys and answers them, until the input or the line ends, or the output is full.
    pub(super) fn keys(&mut self, mut keys: Keys, input: &[u8], cx: &mut Context<'_>) -> Step {
        let mut at = 0;
        // The output has been sent meanwhile: an answer that had begun cannot be taken back, and one that
        // has not begins here.
        if cx.out.is_empty() {
            keys.mark = (!keys.any).then(|| cx.out.mark());
        }
        while !cx.out.is_full() && !cx.is_over() {
            let key = match text::keys(&input[at..]) {
                Token::Word { word, len } => {
                    at += len;
                    word
                }
                Token::End { len } => {
                    // A `gat` may be without keys.
                    let is_whole = keys.any || keys.exptime.is_some();
                    cx.out.line(if is_whole { "END" } else { "ERROR" });
                    return Step::Consumed(at + len);
                }
                Token::Partial { spaces } => {
                    at += spaces;
                    self.state = State::Keys(keys);
                    return if at == 0 {
                        Step::Partial
                    } else {
                        Step::Consumed(at)
                    };
                }
                Token::TooLong => return self.bad_keys(keys, text::BAD_FORMAT.line, at, cx),
            };
            if keys.needs_time {
                let Some(exptime) = number::parse_i32(key) else {
                    return self.bad_keys(keys, "CLIENT_ERROR invalid exptime argument", at, cx);
                };
                keys.needs_time = false;
                keys.exptime = Some(cx.deadline(exptime.into()));
                continue;
            }
            keys.any = true;
            match cx.out.reserve_for_key() {
                Ok(()) => {}
                Err(NoRoom::Memory) => {
                    self.close = Some(Close::Memory);
                    return Step::Consumed(at);
                }
                Err(NoRoom::Limit) => {
                    cx.shared.totals.no_room.fetch_add(1, Ordering::Relaxed);
                    return self.bad_keys(keys, NO_MEMORY, at, cx);
                }
            }
            let directory = cx.directory;
            let lookup = Lookup {
                space: directory.route(&self.access.home, key),
                key,
                uses: true,
                value_end: Some(b"\r\n"),
                deadline: keys.exptime,
            };
            let mark = cx.out.mark();
            let shown = lookup.show(cx, |item, bytes| {
                bytes.extend_from_slice(b"VALUE ");
                bytes.extend_from_slice(key);
                bytes.push(b' ');
                number::push_u64(bytes, item.flags().into());
                bytes.push(b' ');
                number::push_u64(bytes, item.value().len() as u64);
                if keys.cas {
                    bytes.push(b' ');
                    number::push_u64(bytes, item.cas());
                }
                bytes.extend_from_slice(b"\r\n");
            });
            let instead = lookup.finish(shown, keys.exptime.is_some(), self, cx);
            lookup.space.details.get(key, shown.is_some());
            cx.work.spend();
            if let Some(instead) = instead {
                // Take back at least what was written for this item.
                cx.out.truncate(mark);
                return self.bad_keys(keys, instead.line, at, cx);
            }
        }
        self.state = State::Keys(keys);
        Step::Consumed(at)
    }

    /// Answers a line of keys that is wrong, or for which there is no room. Its rest is skipped.
    /// Returns a step that has consumed `at` bytes.
    fn bad_keys(&mut self, keys: Keys, line: &str, at: usize, cx: &mut Context<'_>) -> Step {
        if let Some(mark) = keys.mark {
            cx.out.truncate(mark);
        }
        cx.out.line(line);
        self.state = State::SkipLine;
        Step::Consumed(at)
    }

    /// Executes a line. Returns how many bytes of `behind`, the input after it, were consumed.
    pub(super) fn execute(&mut self, line: &[u8], behind: &[u8], cx: &mut Context<'_>) -> usize {
        if cx.shared.log.level() > 1 {
            let shown = String::from_utf8_lossy(&line[..line.len().min(300)]);
            note!(cx.shared.log, "<{} {}", self.id, shown.escape_debug());
        }
        match text::parse(line) {
            Ok((Command::Store(storage), noreply)) => {
                let Storage {
                    key, flags, len, ..
                } = storage;
                let deadline = cx.deadline(storage.exptime.into());
                let then = Then::Text {
                    mode: storage.mode,
                    compare: storage.compare,
                    noreply,
                };
                return self.accept(key, flags, deadline, len, then, behind, cx);
            }
            Ok((Command::Meta(request), _)) => return self.meta(&request, behind, cx),
            Ok((command, noreply)) => {
                if let Some(line) = self.command(command, noreply, cx) {
                    reply(cx, noreply, line);
                }
            }
            Err(refusal) => {
                reply(cx, refusal.silent, refusal.line);
                self.skip(refusal.skip);
            }
        }
        0
    }

    /// Executes a command that has no value. Returns its answer, unless it has been given.
    fn command(
        &mut self,
        command: Command<'_>,
        noreply: bool,
        cx: &mut Context<'_>,
    ) -> Option<&'static str> {
        Some(match command {
            Command::Delete { key } => match self.delete(key, None, cx) {
                Ok(()) => "DELETED",
                Err(_) => "NOT_FOUND",
            },
            Command::Arithmetic { key, delta, down } => {
                let what = Arithmetic {
                    decrement: down,
                    ..Arithmetic::increment(delta)
                };
                match self.arithmetic(key, what, cx) {
                    Ok(done) => {
                        if !noreply {
                            number::push_u64(&mut cx.out.bytes, done.value);
                        }
                        ""
                    }
                    Err(outcome) => failed(&outcome),
                }
            }
            Command::Touch { key, exptime } => match self.touch(key, exptime.into(), cx) {
                Ok(()) => "TOUCHED",
                Err(outcome) => failed(&outcome),
            },
            Command::FlushAll { .. } if !cx.shared.settings.flush => {
                "CLIENT_ERROR flush_all not allowed"
            }
            Command::FlushAll { exptime } => {
                self.flush(exptime.into(), cx);
                "OK"
            }
            Command::Verbosity { level } => {
                if self.access.admin {
                    cx.shared.log.set_level(level.min(3));
                }
                // Clients of memcached expect OK, and only the log depends on it.
                "OK"
            }
            Command::Limit { .. } if !self.access.admin => NOT_ADMIN,
            Command::Limit { mib } => self.set_limit(mib, cx),
            Command::MetaNoop => "MN",
            Command::Version => {
                cx.out.bytes.extend_from_slice(b"VERSION ");
                crate::VERSION
            }
            Command::RefreshCertificates => self.refresh_certificates(cx),
            Command::Quit => {
                self.close = Some(Close::Normal);
                return None;
            }
            Command::Shutdown(_) if !cx.shared.settings.shutdown => "ERROR: shutdown not enabled",
            Command::Shutdown(_) if !self.access.admin => NOT_ADMIN,
            Command::Shutdown(_) => {
                note!(cx.shared.log, "stops, as client {} asks", self.id);
                self.close = Some(Close::Shutdown);
                cx.shared.stop();
                return None;
            }
            Command::Operator(words) => return self.operate(&words, cx),
            Command::Http => {
                self.close = Some(Close::Error);
                return None;
            }
            // `execute` has taken these.
            Command::Store(_) | Command::Meta(_) => return None,
        })
    }

    pub(super) fn delete(
        &self,
        key: &[u8],
        compare: Option<u64>,
        cx: &Context<'_>,
    ) -> Result<(), Outcome> {
        let space = cx.directory.route(&self.access.home, key);
        let deleted = space.tenant.delete(key, compare);
        space.details.delete(key);
        let is_hit = deleted.is_ok();
        cx.count(
            space,
            [Count::DeleteMiss, Count::DeleteHit][usize::from(is_hit)],
        );
        deleted
    }

    fn touch(&self, key: &[u8], exptime: i64, cx: &Context<'_>) -> Result<(), Outcome> {
        let space = cx.directory.route(&self.access.home, key);
        // It counts as a use, as in memcached.
        let touched = match space.tenant.get(key, |_| ()) {
            Some(()) => space.tenant.touch(key, cx.deadline(exptime)),
            None => Err(Outcome::NotFound),
        };
        cx.count_get(space, touched.is_ok(), true);
        touched
    }

    pub(super) fn arithmetic(
        &self,
        key: &[u8],
        what: Arithmetic,
        cx: &Context<'_>,
    ) -> Result<crate::store::Number, Outcome> {
        let space = cx.directory.route(&self.access.home, key);
        let stored = |(number, deadline)| (number, cx.stored_deadline(space, deadline));
        let what = Arithmetic {
            initial: what.initial.map(stored),
            ..what
        };
        let done = space.tenant.arithmetic(key, what);
        let (hit, miss) = match what.decrement {
            true => (Count::DecrHit, Count::DecrMiss),
            false => (Count::IncrHit, Count::IncrMiss),
        };
        match &done {
            Ok(number) if !number.created => cx.count(space, hit),
            Err(Outcome::NotFound) => cx.count(space, miss),
            _ => {}
        }
        if cx.shared.watchers.want(space, watch::MUTATIONS) && done.is_ok() {
            tell_store(self.id, space, key, "stored", "arithmetic", 0, cx.shared);
        }
        done
    }

    pub(super) fn flush(&self, exptime: i64, cx: &Context<'_>) {
        let now = cx.now;
        let deadline = cx.deadline(exptime);
        for space in cx.directory.reach(&self.access.home) {
            if !cx.shared.settings.cas {
                let second = deadline.max(now);
                space.flush_second.store(second, Ordering::Relaxed);
            }
            space.tenant.flush_all(deadline.saturating_sub(now));
            cx.count(space, Count::Flush);
        }
    }
}

pub(super) fn reply(cx: &mut Context<'_>, noreply: bool, line: &str) {
    if !noreply {
        cx.out.line(line);
    }
}

/// Returns the answer to a command that failed in the store.
pub(super) fn failed(outcome: &Outcome) -> &'static str {
    use crate::store::Refused;
    match outcome {
        Outcome::NotStored => "NOT_STORED",
        Outcome::Exists => "EXISTS",
        Outcome::NotFound => "NOT_FOUND",
        Outcome::NotANumber => "CLIENT_ERROR cannot increment or decrement non-numeric value",
        Outcome::Refused(Refused::TooLarge { .. }) => "SERVER_ERROR object too large for cache",
        Outcome::Refused(Refused::Key { .. }) => text::BAD_FORMAT.line,
        Outcome::Refused(Refused::Deleted) => "SERVER_ERROR the tenant has been deleted",
        _ => "SERVER_ERROR out of memory storing object",
    }
}

/// Tells watchers whether an item was stored.
pub(super) fn tell_store(
    id: i32,
    space: &Arc<Space>,
    key: &[u8],
    status: &str,
    command: &str,
    size: usize,
    shared: &Shared,
) {
    let write = |line: &mut Vec<u8>| {
        watch::push_key(line, key);
        let rest = format!(" status={status} cmd={command} ttl=0 clsid=1 cfd={id} size={size}");
        line.extend_from_slice(rest.as_bytes());
    };
    let (event, kind) = (watch::MUTATIONS, "item_store");
    shared.watchers.tell(event, Some(space), kind, write);
}
