//! What a subject is to the experiments: the traits that Stillpoint, its peers and the limit
//! implement, and how a peer says which of them it has ([`Registry`]). Peers import this file and
//! nothing of the experiments.

use std::hint::{self, black_box};
use std::process;
use std::thread;
use std::time::Duration;

use anyhow::Result;

use crate::cache::{ByteCache, Cache, StringCache};
use crate::map::{Map, OrderedMap};
pub use crate::object::Object;

/// A thread's part in a subject: its registration, its hazard pointer, or nothing at all. Dropped
/// on the same thread, it ends.
pub trait Participant: 'static {
    /// Makes the calling thread's part. A thread has one part in a subject at a time.
    fn register_thread() -> Self;
}

/// A subject that registers a thread by itself.
impl<T: Default + 'static> Participant for T {
    fn register_thread() -> Self {
        Self::default()
    }
}

/// A thread's part in a subject that has read sections.
pub trait Reader: Participant {
    /// Runs `section` as a read section; where threads say that they are outside of one, this one
    /// says so after it.
    fn read(&mut self, section: impl FnOnce());

    /// Runs `work`, which may block: no grace period waits for this thread meanwhile.
    fn offline<T>(&mut self, work: impl FnOnce() -> T) -> T {
        work()
    }
}

/// A read side whose lock and unlock are timed.
pub trait ReadSide: Participant {
    /// Enters and leaves an empty section `count` times.
    fn pairs(&mut self, count: u64);
}

/// A subject whose sections last as long as a guard.
pub trait Guarded: Participant {
    /// Enters a section.
    fn enter(&self) -> impl Sized;
}

impl<G: Guarded> Reader for G {
    fn read(&mut self, section: impl FnOnce()) {
        let _guard = self.enter();
        section();
    }
}

impl<G: Guarded> ReadSide for G {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            let guard = self.enter();
            black_box(());
            drop(guard);
        }
    }
}

/// A way to free memory that readers may still hold.
pub trait Reclaimer: Reader {
    /// Waits until nothing that was retired waits any more; `None` where the subject has no safe
    /// way to know.
    const DRAIN: Option<fn()> = None;

    /// Grace periods completed so far; `None` where the subject does not count them.
    const GRACE_PERIODS: Option<fn() -> u64> = None;

    /// Membarriers issued so far; `None` where the subject does not count them.
    const MEMBARRIERS: Option<fn() -> u64> = None;

    /// Allocates an object and retires it at once, to be freed when no reader can hold it. One
    /// step, because a subject may want an object allocated together with its bookkeeping.
    fn allocate_and_retire<const N: usize>(&mut self);

    /// Called after each loop.
    fn end_loop<const N: usize>(&mut self) {}
}

/// A subject whose grace periods can be waited for.
pub trait Updater: Reader {
    /// Grace periods that have ended so far; `None` where the subject does not count them.
    const GRACE_PERIODS: Option<fn() -> u64> = None;

    /// Waits for a grace period.
    fn synchronize(&mut self);
}

/// A subject that invokes callbacks after a grace period.
pub trait Callbacks: Updater {
    /// Has `callback` invoked, some time, on some thread.
    fn call(&mut self, callback: impl FnOnce() + Send + 'static);

    /// Waits until all callbacks queued before have been invoked. To be called
    /// [away](Reader::offline).
    fn barrier();
}

/// A subject whose grace periods can be started and asked about.
pub trait Polled: Updater {
    /// Names a grace period.
    type Cookie: Copy;

    /// Starts one.
    fn start_poll(&mut self) -> Self::Cookie;

    /// Returns whether it has ended. To be called [away](Reader::offline).
    fn poll(cookie: Self::Cookie) -> bool;
}

/// Holds a [`Value`] that is read by tasks while it may be replaced.
pub trait Cell: Send + Sync + 'static {
    /// Puts a value instead of the present one, which is freed when it has no readers any more;
    /// `None` where there is no way.
    const REPLACE: Option<fn(&Self, Value)> = None;

    /// Waits for a grace period in the tasks' domain; `None` where the subject has none.
    const SYNCHRONIZE: Option<fn(&Self)> = None;

    /// Waits in another domain, or for what the limit has in its place.
    fn synchronize_elsewhere(&self) -> Option<impl Fn() + Send> {
        None::<fn()>
    }

    /// A section that reads, sleeps, and reads again.
    fn section(&self, nap: Duration) -> impl Future<Output = ()> + Send;
}

/// What the tasks read.
pub struct Value {
    number: u64,
    inverse: u64,
}

impl Value {
    /// The one that is there at first.
    pub const fn first() -> Self {
        Self::numbered(0)
    }

    /// A later one.
    pub const fn numbered(number: u64) -> Self {
        Self {
            number,
            inverse: !number,
        }
    }

    fn is_whole(&self) -> bool {
        self.inverse == !self.number
    }

    /// Judges what a section has found, while `self` is what it found first. To be called at its
    /// beginning and at its end.
    pub fn check(&self, later: &Self) {
        if !(self.is_whole() && later.is_whole() && self.number <= later.number) {
            eprintln!("stillpoint: a task found a value that had been freed");
            process::exit(1);
        }
    }
}

/// Looks again and again, lets others run now and then, and returns when `over` says yes.
pub fn poll_until(mut over: impl FnMut() -> bool) {
    const LOOKS: u32 = 64;
    for look in 1_u32.. {
        if over() {
            return;
        }
        if look % LOOKS == 0 {
            thread::yield_now()
        } else {
            hint::spin_loop()
        }
    }
}

/// A subject in one of its variants.
#[derive(Clone, Copy)]
pub struct Peer {
    /// Its crate's name.
    pub name: &'static str,
    /// Its way of doing the work.
    pub variant: &'static str,
    /// Puts the variant in force for the process, before any thread takes part.
    pub prepare: fn() -> Result<()>,
}

impl Peer {
    /// A peer that has one way of doing the work.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            variant: "default",
            prepare: || Ok(()),
        }
    }

    /// Stillpoint in one of its variants.
    pub const fn ours(variant: &'static str) -> Self {
        Self::new("stillpoint").variant(variant)
    }

    /// The same work with no reclamation, lock or check.
    pub const LIMIT: Self = Self::new("limit");

    /// The same peer in a variant.
    pub const fn variant(self, variant: &'static str) -> Self {
        Self { variant, ..self }
    }

    /// The same peer with something to do first.
    pub const fn prepared_by(self, prepare: fn() -> Result<()>) -> Self {
        Self { prepare, ..self }
    }
}

/// Takes down what peers can do. An experiment implements what it measures, and passes over the
/// rest.
pub trait Registry {
    /// The peer has a [`ReadSide`].
    fn reads<S: ReadSide>(&mut self, _peer: Peer) {}

    /// The peer is both a [`ReadSide`] and a [`Reclaimer`].
    fn reads_beside_flood<S: ReadSide + Reclaimer>(&mut self, _peer: Peer) {}

    /// The peer is a [`Reclaimer`].
    fn reclaims<S: Reclaimer>(&mut self, _peer: Peer) {}

    /// The peer is an [`Updater`].
    fn waits<S: Updater>(&mut self, _peer: Peer) {}

    /// The peer has [`Callbacks`].
    fn calls<S: Callbacks>(&mut self, _peer: Peer) {}

    /// The peer's grace periods can be [`Polled`].
    fn polls<S: Polled>(&mut self, _peer: Peer) {}

    /// The peer has a [`Cell`].
    fn shares<C: Cell>(&mut self, _peer: Peer, _make: fn(Value) -> C) {}

    /// The peer is a [`Map`].
    fn maps<M: Map>(&mut self, _peer: Peer) {}

    /// The peer is an [`OrderedMap`].
    fn orders<M: OrderedMap>(&mut self, _peer: Peer) {}

    /// The peer is a [`Cache`].
    fn caches<C: Cache>(&mut self, _peer: Peer) {}

    /// The peer has a [`StringCache`].
    fn strings<C: StringCache>(&mut self, _peer: Peer) {}

    /// The peer has a [`ByteCache`].
    fn shrinks<C: ByteCache>(&mut self, _peer: Peer) {}
}
