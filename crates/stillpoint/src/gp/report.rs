//! Stall reports.

use super::{flavour::Flavour, record::Record, seq::Cookie};
use crate::platform::{
    clock,
    thread::{self, SystemCall, WaitsFor},
};
use std::{fmt, io, panic::Location, time::Duration};

#[cfg(feature = "stall-backtrace")]
use std::{backtrace::Backtrace, sync::Arc};

/// Describes a grace period, or a service thread, that has been held up for longer than the
/// domain's stall time-out.
///
/// Given to the handler of [`Domain::on_stall`](crate::Domain::on_stall), and with the `tracing`
/// feature emitted as an event. Its `Display` is a report for people, like the kernel's "rcu
/// detected stalls" message.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StallReport {
    /// The stalled grace period, or service thread.
    pub stalled: Stalled,
    /// The number of the domain, as its `Debug` shows it; 1 is the global one.
    pub domain: u64,
    /// The domain's name, if it has one ([`DomainBuilder::name`](crate::DomainBuilder::name)).
    pub domain_name: Option<String>,
    /// How long it has been held up so far.
    pub lasted: Duration,
    /// The error number with which the system refuses to start the service thread, if that is what
    /// holds it up.
    pub refusal: Option<i32>,
    /// Number of callbacks that were pending at that moment.
    pub callbacks_pending: u64,
    /// How many retired objects had not been freed at that moment, without those in pages that are not
    /// full yet; 0 if another thread held the list of threads.
    pub objects_pending: u64,
    /// How many bytes of retired objects had not been freed at that moment, as
    /// [`Statistics::bytes_pending`](crate::Statistics::bytes_pending) counts them, but without
    /// what is in pages that are not full.
    pub bytes_pending: u64,
    /// Growth of [`bytes_pending`](Self::bytes_pending) since the stall began, in bytes; 0 if it
    /// has fallen.
    pub bytes_grown: u64,
    /// The readers that hold the grace period up, the oldest sections first: 16 at most. Empty if
    /// the service thread is late, or if there is no memory to name them.
    pub holdouts: Vec<Holdout>,
    /// How many more readers hold it up than are listed.
    pub more_holdouts: usize,
    /// The threads that have been waiting for more than a moment, in calls of this domain.
    pub waiters: Vec<ThreadName>,
    /// Where waiting futures were made, and how many at each place.
    pub futures: Vec<(&'static Location<'static>, usize)>,
}

/// A domain's number and name, as messages show them.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Title<'a> {
    pub(super) number: u64,
    pub(super) name: Option<&'a str>,
}

impl fmt::Display for Title<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "domain {}", self.number)?;
        if let Some(name) = self.name {
            write!(f, " '{name}'")?;
        }
        Ok(())
    }
}

/// The subject of a [`StallReport`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Stalled {
    /// A grace period: readers have not left their sections.
    GracePeriod(Cookie),
    /// The service thread: a callback, destructor or waker does not return, the system gives the
    /// thread no time, or it refuses to start it ([`StallReport::refusal`]).
    Service,
}

/// A reader that holds a grace period up.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Holdout {
    /// The thread that began the section; a task may be elsewhere by now.
    pub thread: ThreadName,
    /// How it reads.
    pub flavour: Flavour,
    /// The name that a task gave its guard
    /// ([`OwnedGuard::named`](crate::tasks_trace::OwnedGuard::named)).
    pub task: Option<String>,
    /// Where an owned guard was made; `None` for other readers.
    pub made_at: Option<&'static Location<'static>>,
    /// How long ago an owned guard was made, accurate to some milliseconds; `None` for other
    /// readers.
    pub held: Option<Duration>,
    /// The system call in which the thread slept when the report was made (`futex`, `epoll_wait`,
    /// `read`), for guards of threads and for QSBR readers. `None` if it ran, slept in another
    /// call, or has exited, and where `/proc/self/task/TID/syscall` cannot be read.
    pub blocked_in: Option<&'static str>,
    /// Why the section looks as if it were held across an `.await`; `None` if it does not. An
    /// executor's thread then goes on with another task, or waits for events, and leaves the
    /// section open.
    pub across_await: Option<AcrossAwait>,
    /// Where the thread entered the section (with the feature `stall-backtrace`).
    #[cfg(feature = "stall-backtrace")]
    pub entered: Option<Arc<Backtrace>>,
}

/// Why a section looks as if its [`Guard`](crate::Guard) were held across an `.await`.
///
/// The surest sign comes first: it is certainly a deadlock if the section and the future belong to
/// one task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum AcrossAwait {
    /// The thread itself has polled a future that waits for a grace period of this domain.
    PolledBySameThread,
    /// The thread waits for events (`epoll_wait` and the like), as executors and event loops do.
    WaitsForEvents,
    /// The thread sleeps in `futex`: for a lock or a channel, or, as the thread of an executor, for
    /// a task.
    MayWaitForTask,
}

/// A thread, identified for people.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct ThreadName {
    /// The kernel's id; 0 where there is none.
    pub tid: u32,
    /// The name that the kernel has for it; `None` if the thread has ended (its guard was leaked)
    /// or where names cannot be known.
    pub name: Option<String>,
}

impl ThreadName {
    pub(super) fn of(tid: u32) -> Self {
        Self {
            tid,
            name: thread::name_of(tid),
        }
    }
}

impl fmt::Display for ThreadName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "thread '{name}' (tid {})", self.tid),
            None => write!(f, "exited thread (tid {})", self.tid),
        }
    }
}

impl fmt::Display for Holdout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.flavour, &self.task) {
            (Flavour::Thread, _) => write!(f, "{} holds a guard", self.thread)?,
            (Flavour::Qsbr, _) => write!(
                f,
                "{} is an online QSBR reader that reports no quiescent state",
                self.thread
            )?,
            (Flavour::Owned, Some(task)) => write!(
                f,
                "task '{task}' holds an owned guard made by {}",
                self.thread
            )?,
            (Flavour::Owned, None) => {
                write!(f, "a task holds an owned guard made by {}", self.thread)?
            }
        }
        if let Some(place) = self.made_at {
            write!(f, " at {place}")?;
        }
        if let Some(held) = self.held {
            write!(f, " {} ago", Elapsed(held))?;
        }
        if let Some(call) = self.blocked_in {
            write!(f, ", blocked in {call}()")?;
        }
        #[cfg(feature = "stall-backtrace")]
        if let Some(entered) = &self.entered {
            write!(f, ", entered at\n{entered}")?;
        }
        Ok(())
    }
}

impl fmt::Display for StallReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "stillpoint: {}", WithoutPrefix(self))
    }
}

/// A report for a line that has the library's name already.
pub(super) struct WithoutPrefix<'a>(pub(super) &'a StallReport);

impl fmt::Display for WithoutPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.write_body(f)
    }
}

/// The readers of a report, without the rest. The text may be cut off, so their number comes first.
pub(super) struct HoldoutsOnly<'a>(pub(super) &'a StallReport);

impl fmt::Display for HoldoutsOnly<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let StallReport {
            holdouts,
            more_holdouts,
            ..
        } = self.0;
        match holdouts.len() + more_holdouts {
            0 => return f.write_str("no reader any more"),
            1 if *more_holdouts == 0 => {}
            readers => write!(f, "{readers} readers: ")?,
        }
        list(f, "", holdouts)
    }
}

impl StallReport {
    fn write_body(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.stalled {
            Stalled::GracePeriod(cookie) => write!(f, "grace period {:?}", cookie.seq())?,
            Stalled::Service => write!(f, "service thread")?,
        }
        write!(
            f,
            " of {} stalled for {}",
            Title {
                number: self.domain,
                name: self.domain_name.as_deref()
            },
            Elapsed(self.lasted)
        )?;
        if let Some(number) = self.refusal {
            write!(
                f,
                ": the system refuses to start it ({}); pending: {} callbacks, {} objects. barrier() and kvfree_barrier() run them; see the \
                 limits on processes (ulimit -u, pids.max) and on memory",
                io::Error::from_raw_os_error(number),
                self.callbacks_pending,
                self.objects_pending
            )?;
        }
        if self.bytes_pending > 0 {
            write!(
                f,
                "; unreclaimed: {} ({} more since the stall began)",
                Bytes(self.bytes_pending),
                Bytes(self.bytes_grown)
            )?;
        }
        list(f, "; blocked by: ", &self.holdouts)?;
        if self.more_holdouts > 0 {
            write!(f, " and {} more", self.more_holdouts)?;
        }
        list(f, "; waiters: ", &self.waiters)?;
        list(f, "; waiting futures: ", self.futures.iter().map(MadeAt))?;
        self.hint(f)
    }

    /// Writes a hint about the most telling reader. C has no `.await`, so it gets none.
    fn hint(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let candidates = self
            .holdouts
            .iter()
            .filter_map(|holdout| Some((holdout.across_await?, &holdout.thread)));
        let Some((why, thread)) = candidates.min_by_key(|(why, _)| *why) else {
            return Ok(());
        };
        if cfg!(feature = "c-symbols") {
            return Ok(());
        }
        write!(f, "; hint: {thread} ")?;
        f.write_str(match why {
            AcrossAwait::PolledBySameThread => "has its section open and polls a future that waits",
            AcrossAwait::WaitsForEvents => "waits for events with its section open",
            AcrossAwait::MayWaitForTask => {
                return f.write_str(
                    "waits for a lock or a channel, or holds a guard across an `.await`",
                );
            }
        })?;
        f.write_str(
            ": if it runs async code, a `Guard` is held across an `.await`; drop it before, or use an owned guard of \
             `stillpoint::tasks_trace`",
        )
    }
}

/// Writes `before`, then the items with commas between them; nothing if there are none.
fn list(
    f: &mut fmt::Formatter<'_>,
    before: &str,
    items: impl IntoIterator<Item: fmt::Display>,
) -> fmt::Result {
    for (n, item) in items.into_iter().enumerate() {
        write!(f, "{}{item}", if n == 0 { before } else { ", " })?;
    }
    Ok(())
}

/// Where futures were made, and how many.
struct MadeAt<'a>(&'a (&'static Location<'static>, usize));

impl fmt::Display for MadeAt<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (place, count) = self.0;
        write!(f, "{count} made at {place}")
    }
}

/// A length of time with one decimal and its unit: "25.7 ms".
struct Elapsed(Duration);

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:.1?}", self.0);
        let unit = text.find(char::is_alphabetic).unwrap_or(text.len());
        write!(f, "{} {}", &text[..unit], &text[unit..])
    }
}

/// A size with one decimal and its unit.
struct Bytes(u64);

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            bytes @ ..1024 => write!(f, "{bytes} bytes"),
            bytes @ ..1_048_576 => write!(f, "{:.1} KiB", bytes as f64 / 1024.0),
            bytes => write!(f, "{:.1} MiB", bytes as f64 / 1_048_576.0),
        }
    }
}

impl Holdout {
    /// Describes the reader of `record`, as far as that is known. `pollers` are the threads that have polled
    /// futures which wait.
    pub(super) fn of(record: &Record, pollers: &[u32]) -> Self {
        let (entry, flavour) = (record.entry(), record.flavour());
        let tid = record.tid();
        let call = if flavour == Flavour::Owned {
            // Its task may be anywhere.
            None
        } else {
            thread::blocked_in(tid)
        };
        let across_await = match call {
            _ if flavour != Flavour::Thread => None,
            _ if pollers.contains(&tid) && tid != 0 => Some(AcrossAwait::PolledBySameThread),
            Some(SystemCall {
                waits_for: WaitsFor::Events,
                ..
            }) => Some(AcrossAwait::WaitsForEvents),
            Some(SystemCall {
                waits_for: WaitsFor::Thread,
                ..
            }) => Some(AcrossAwait::MayWaitForTask),
            _ => None,
        };
        Self {
            thread: ThreadName::of(tid),
            flavour,
            task: entry.name().map(|name| name.to_string()),
            made_at: entry.location(),
            held: entry
                .since()
                .map(|since| Duration::from_nanos(clock::now().saturating_sub(since))),
            blocked_in: call.map(|call| call.name),
            across_await,
            #[cfg(feature = "stall-backtrace")]
            entered: entry.backtrace(),
        }
    }
}
