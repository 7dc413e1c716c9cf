//! Sessions: the requests and answers of a connection as bytes, without sockets.
//!
//! | file | what it has |
//! |---|---|
//! | `mod` | the states of a connection, and which bytes are whose |
//! | `body` | values that arrive, and the answers once they are stored |
//! | `lookup` | a look-up of a key, whatever the protocol |
//! | `text` | the commands of a line, and retrieval |
//! | `meta` | meta commands |
//! | `binary` | the binary protocol |
//! | `login` | authentication |
//! | `follow` | changes of a session when tenants or users change |
//! | `operator` | `watch`, dumps, tenants, limits |
//! | `stats` | `stats` |

mod binary;
mod body;
mod follow;
mod login;
mod lookup;
mod meta;
mod operator;
mod stats;
mod text;

use crate::{
    config::Binding,
    directory::{Count, Directory, Space},
    output::{NoRoom, Output},
    places::Place,
    protocol::{self, expiry},
    shared::{Card, Shared},
    store::{Cursor, work_done},
    users::User,
    watch::{self, Watch, Watcher},
};
use body::Body;
use std::sync::{Arc, atomic::Ordering};

/// The thread's state that a session needs to execute requests in a turn.
pub(crate) struct Context<'a> {
    pub(crate) shared: &'a Shared,
    pub(crate) directory: &'a Arc<Directory>,
    pub(crate) thread: usize,
    /// The second by the store's clock.
    pub(crate) now: u32,
    /// Number of requests that may still be executed before other connections have their turn.
    pub(crate) budget: u32,
    /// The work that may still be done before that.
    pub(crate) work: Work,
    pub(crate) out: &'a mut Output,
    /// Wakes the thread, when a watcher has something to send.
    pub(crate) wake: &'a Arc<dyn Fn() + Send + Sync>,
}

/// The work of a connection's turn, in bytes of values that are copied and of items that are stored or
/// evicted for it. A request, and a key of a `get`, count [`REQUEST`].
#[derive(Debug, Clone, Copy)]
pub(crate) struct Work {
    left: u64,
    /// [`work_done`] at the last call of `spend`.
    seen: u64,
}

/// About a millisecond.
const WORK: u64 = 1 << 20;
const REQUEST: u64 = 1 << 10;

impl Work {
    /// Returns the work of a turn that begins now on this thread.
    pub(crate) fn new() -> Self {
        Self {
            left: WORK,
            seen: work_done(),
        }
    }

    /// Subtracts the thread's work since the last call, and a request.
    #[inline]
    fn spend(&mut self) {
        let done = work_done();
        let since = done.wrapping_sub(self.seen);
        self.seen = done;
        self.left = self.left.saturating_sub(since + REQUEST);
    }

    /// Ends the turn.
    fn end(&mut self) {
        self.left = 0;
    }
}

impl Context<'_> {
    /// Returns whether other connections have their turn.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.budget == 0 || self.work.left == 0
    }

    #[inline]
    pub(crate) fn count(&self, space: &Space, count: Count) {
        space.counts(self.thread).add(count, 1);
    }

    /// Counts a look-up as memcached does: one that sets the expiry counts as a touch alone.
    #[inline]
    pub(crate) fn count_get(&self, space: &Space, is_hit: bool, touches: bool) {
        let [all, hit, miss] = match touches {
            true => [Count::Touch, Count::TouchHit, Count::TouchMiss],
            false => [Count::Get, Count::GetHit, Count::GetMiss],
        };
        let counts = space.counts(self.thread);
        counts.add(all, 1);
        counts.add(if is_hit { hit } else { miss }, 1);
    }

    /// Converts a client's expiration time to a second of the store's clock.
    #[inline]
    pub(crate) fn deadline(&self, exptime: i64) -> u32 {
        // The system's clock is read only for absolute times.
        let unix = if exptime > expiry::MAX_RELATIVE {
            self.shared.unix_now()
        } else {
            0
        };
        expiry::deadline(exptime, self.now, unix)
    }

    /// Returns when an item expires that is stored in `space` now. Without CAS values (`-C`), a flush is as exact
    /// as the clock: what is stored in its second has expired.
    #[inline]
    pub(crate) fn stored_deadline(&self, space: &Space, deadline: u32) -> u32 {
        if !self.shared.settings.cas && space.flush_second.load(Ordering::Relaxed) == self.now {
            return self.now;
        }
        deadline
    }
}

/// The rights of a client.
#[derive(Debug)]
pub(crate) struct Access {
    /// The tenant whose keys it works on.
    pub(crate) home: Arc<Space>,
    /// Its place among the clients of `home` or, before it has logged in, among those that have not.
    pub(crate) place: Place,
    /// Whether it may change tenants and limits.
    pub(crate) admin: bool,
    /// Its place among the clients that have logged in, or need not.
    pub(crate) known: Option<Place>,
    /// The user that has logged in.
    pub(crate) user: Option<Arc<User>>,
}

impl Access {
    /// Returns the spaces whose events it may see.
    fn watched(&self, directory: &Directory) -> watch::Reach {
        (!self.admin).then(|| directory.reach(&self.home).cloned().collect())
    }
}

/// Why a connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Close {
    /// The client has gone, or said `quit`.
    Normal,
    /// Its input was not of a known protocol.
    Error,
    /// It was silent for too long.
    Idle,
    /// In time, it did not take what was sent, not send what it had announced, or not log in. A client
    /// that has not logged in also ends when its place is needed.
    Slow,
    /// There was no memory for it.
    Memory,
    /// Its user or the server is gone.
    Shutdown,
}

impl Close {
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Error => "error",
            Self::Idle => "idle_timeout",
            Self::Slow => "slow",
            Self::Memory => "no_memory",
            Self::Shutdown => "shutdown",
        }
    }
}

#[derive(Debug, Default)]
enum State {
    /// A request comes next.
    #[default]
    Request,
    /// The keys of a retrieval command come next.
    Keys(text::Keys),
    /// A value comes next.
    Body(Box<Body>),
    /// This number of bytes is skipped.
    Skip(u64),
    /// The rest of the line is skipped.
    SkipLine,
    /// This number of bytes with a name and a password comes next.
    Login(usize),
    /// Items are listed from `cursor` on.
    Dump {
        spaces: Vec<Arc<Space>>,
        cursor: Cursor,
    },
    /// Lines of log are sent until the client goes.
    Watch(Watch),
}

/// A connection without its socket: bytes in, bytes out.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) access: Access,
    /// Its number, in logs and dumps.
    pub(crate) id: i32,
    pub(crate) card: Arc<Card>,
    /// Set when the connection is to be closed, after its responses have been sent.
    pub(crate) close: Option<Close>,
    state: State,
    binding: Binding,
    /// The directory that `access` is of.
    version: u64,
    /// Number of failed logins.
    failures: u32,
    /// Number of requests that it has begun, modulo 2^32.
    pub(crate) requests: u32,
}

/// The result of a step of a session.
enum Step {
    /// This number of bytes was consumed.
    Consumed(usize),
    /// More bytes are needed.
    Partial,
}

impl Session {
    pub(crate) fn new(
        access: Access,
        id: i32,
        card: Arc<Card>,
        binding: Binding,
        version: u64,
    ) -> Self {
        Self {
            access,
            id,
            card,
            close: None,
            state: State::Request,
            binding,
            version,
            failures: 0,
            requests: 0,
        }
    }

    /// Returns whether more output comes without further input.
    pub(crate) fn has_more(&self) -> bool {
        match &self.state {
            State::Dump { .. } => true,
            // A value without an end of line may have come whole past the buffer.
            State::Body(body) => body.is_over(),
            _ => false,
        }
    }

    pub(crate) fn watcher(&self) -> Option<&Arc<Watcher>> {
        match &self.state {
            State::Watch(watch) => Some(&watch.watcher),
            _ => None,
        }
    }

    /// Returns the number of bytes that the client has to send in time, if it has announced some.
    pub(crate) fn expects(&self) -> Option<usize> {
        match &self.state {
            State::Body(body) => Some(body.missing()),
            State::Skip(bytes) => Some(usize::try_from(*bytes).unwrap_or(usize::MAX)),
            State::Login(bytes) => Some(*bytes),
            _ => None,
        }
    }

    /// Returns the bytes that it keeps of a value that arrives and that no tenant is charged for.
    pub(crate) fn footprint(&self) -> usize {
        match &self.state {
            State::Body(body) => body.footprint(),
            _ => 0,
        }
    }

    fn begin(&mut self, cx: &mut Context<'_>) {
        self.requests = self.requests.wrapping_add(1);
        cx.budget -= 1;
    }

    /// Calls `read` to write the next bytes of a large value to their place, if much of it is missing.
    /// Returns `None` without calling it if they should come by way of the buffer.
    pub(crate) fn direct<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Option<Result<usize, E>> {
        match &mut self.state {
            State::Body(body) => body.direct(read),
            _ => None,
        }
    }

    /// Returns whether the client is in the middle of a request, not counting input that was not consumed.
    pub(crate) fn is_amid(&self) -> bool {
        matches!(
            self.state,
            State::Keys(_) | State::Body(_) | State::Login(_)
        )
    }

    /// Returns its state, for `stats conns`.
    pub(crate) fn state(&self) -> u8 {
        match self.state {
            State::Body(_) | State::Skip(_) | State::Login(_) => 2,
            _ => 1,
        }
    }

    /// Executes the requests in `input`, until it ends, the output is full, the turn is over, or the
    /// connection ends. Returns the number of bytes consumed: the rest comes again. The session has
    /// [followed](Self::follow) the directory.
    pub(crate) fn feed(&mut self, input: &[u8], cx: &mut Context<'_>) -> usize {
        let mut at = 0;
        while self.close.is_none() && !cx.out.is_full() && !cx.is_over() {
            let rest = &input[at..];
            // A state that produces output goes on without input.
            if rest.is_empty() && !self.has_more() {
                break;
            }
            let step = match &mut self.state {
                State::Request if self.binding == Binding::Ascii && self.access.known.is_some() => {
                    match protocol::text::retrieval(rest) {
                        Some(head) => {
                            self.begin(cx);
                            let keys = text::Keys {
                                cas: head.cas,
                                needs_time: head.touch,
                                exptime: None,
                                any: false,
                                mark: Some(cx.out.mark()),
                            };
                            match self.keys(keys, &rest[head.len..], cx) {
                                Step::Consumed(bytes) => Step::Consumed(head.len + bytes),
                                Step::Partial => Step::Consumed(head.len),
                            }
                        }
                        None => self.line(rest, cx),
                    }
                }
                State::Request => self.request(rest, cx),
                &mut State::Keys(keys) => {
                    self.state = State::Request;
                    self.keys(keys, rest, cx)
                }
                State::Body(body) => {
                    let used = body.fill(rest);
                    if body.is_over()
                        && let State::Body(body) = std::mem::take(&mut self.state)
                    {
                        self.stored(*body, cx);
                    }
                    Step::Consumed(used)
                }
                State::Skip(left) => {
                    let used = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= used as u64;
                    if *left == 0 {
                        self.state = State::Request;
                    }
                    Step::Consumed(used)
                }
                State::SkipLine => match rest.iter().position(|&byte| byte == b'\n') {
                    Some(end) => {
                        self.state = State::Request;
                        Step::Consumed(end + 1)
                    }
                    None => Step::Consumed(rest.len()),
                },
                &mut State::Login(len) if rest.len() < len => Step::Partial,
                &mut State::Login(len) => {
                    self.state = State::Request;
                    self.login(&rest[..len], cx);
                    Step::Consumed(len)
                }
                State::Dump { .. } => {
                    self.dump(cx);
                    Step::Consumed(0)
                }
                // A watcher has nothing more to say.
                State::Watch(_) => Step::Consumed(rest.len()),
            };
            cx.work.spend();
            match step {
                Step::Consumed(bytes) => at += bytes,
                Step::Partial => break,
            }
        }
        at
    }

    /// Executes the first request of a connection, a binary request, or a line of a client that has not
    /// logged in. Consumes nothing of a line of a known client: the caller's loop executes it.
    fn request(&mut self, rest: &[u8], cx: &mut Context<'_>) -> Step {
        if self.binding == Binding::Auto {
            let binary = rest[0] == protocol::binary::REQUEST;
            self.binding = if binary {
                Binding::Binary
            } else {
                Binding::Ascii
            };
            // A client logs in by the text protocol only.
            if binary && self.access.known.is_none() {
                self.close = Some(Close::Error);
                return Step::Consumed(rest.len());
            }
        }
        if self.binding == Binding::Binary {
            return self.binary(rest, cx);
        }
        // It may be a retrieval.
        if self.access.known.is_some() {
            return Step::Consumed(0);
        }
        self.line(rest, cx)
    }

    /// Executes a line, of which the end may be missing.
    fn line(&mut self, rest: &[u8], cx: &mut Context<'_>) -> Step {
        let window = &rest[..rest.len().min(protocol::MAX_LINE)];
        let Some(end) = memchr::memchr(b'\n', window) else {
            if window.len() == protocol::MAX_LINE {
                cx.out.line("CLIENT_ERROR line too long");
                self.close = Some(Close::Error);
            }
            return Step::Partial;
        };
        let line = window[..end].strip_suffix(b"\r").unwrap_or(&window[..end]);
        self.begin(cx);
        if self.access.known.is_some() {
            let used = self.execute(line, &rest[end + 1..], cx);
            Step::Consumed(end + 1 + used)
        } else {
            self.ask(line, cx);
            Step::Consumed(end + 1)
        }
    }

    /// Skips what belongs to a request that was refused.
    fn skip(&mut self, bytes: u64) {
        if bytes > 0 {
            self.state = State::Skip(bytes);
        }
    }

    /// Tells watchers that an item was asked for.
    fn tell_get(&self, space: &Arc<Space>, key: &[u8], size: Option<usize>, cx: &Context<'_>) {
        cx.shared
            .watchers
            .tell(watch::FETCHERS, Some(space), "item_get", |line| {
                watch::push_key(line, key);
                let status = if size.is_some() { "found" } else { "not_found" };
                let size = size.unwrap_or(0);
                let rest = format!(" status={status} clsid=1 cfd={} size={size}", self.id);
                line.extend_from_slice(rest.as_bytes());
            });
    }
}

/// Makes room for an answer. If there is none, drops the answers that have not been sent, which take it,
/// ends the connection, and returns false.
#[inline]
fn reserve(close: &mut Option<Close>, cx: &mut Context<'_>) -> bool {
    match cx.out.reserve() {
        Ok(()) => return true,
        Err(NoRoom::Memory) => {}
        Err(NoRoom::Limit) => {
            let totals = &cx.shared.totals;
            totals.no_room.fetch_add(1, Ordering::Relaxed);
            totals.over_limit.fetch_add(1, Ordering::Relaxed);
            cx.out.clear();
        }
    }
    *close = Some(Close::Memory);
    false
}

#[cfg(test)]
mod tests;
