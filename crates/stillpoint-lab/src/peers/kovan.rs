//! kovan: batches that are freed when the last thread whose slot they were put into has left. A
//! node begins with the crate's own words, 40 bytes, so that the object comes behind them, on top
//! of its own size. There is no call that waits for readers, and none that frees what other threads
//! hold (`flush` is for the calling thread's).
//!
//! A guard alone protects nothing that is read: `Atomic::load` under it does, which compares the
//! epoch with the one that the thread's slot announces. So a read section, and the pair of `scale
//! read`, has one such load, of a pointer that is never retired.
//!
//! The crate's feature `recycle` is off: it puts a cache in the allocator's place, and here one
//! allocator serves all. `+cmpxchg16b`, which the crate's documentation is built with, is not set,
//! as it is not in most programs: whether the processor has 128-bit exchanges is then found at run
//! time.
//!
//! Part of the program only with the feature `kovan`: the crate needs Rust 1.90, this workspace
//! 1.88. Newer releases of it than 0.2.0 ask for 1.99.

use std::hint::black_box;
use std::sync::LazyLock;
use std::sync::atomic::Ordering;

use kovan::{Atomic, Guard, RetiredNode, pin};

use crate::subject::{Object, Participant, Peer, ReadSide, Reader, Reclaimer, Registry};

const PEER: Peer = Peer::new("kovan");

/// What it takes part in.
pub fn register(to: &mut impl Registry) {
    to.reads::<Kovan>(PEER);
    to.reads_beside_flood::<Kovan>(PEER);
    to.reclaims::<Kovan>(PEER);
}

/// What readers protect: it is never retired, so that it may be read at any time.
static VALUE: u64 = 1;
static CELL: LazyLock<Atomic<u64>> = LazyLock::new(|| Atomic::new((&raw const VALUE).cast_mut()));

/// An object as kovan retires it.
#[repr(C)]
struct Node<const N: usize> {
    retired: RetiredNode,
    object: Object<N>,
}

/// A thread registers with its first guard or retirement; it knows what it reads.
pub struct Kovan(&'static Atomic<u64>);

impl Participant for Kovan {
    fn register_thread() -> Self {
        drop(pin());
        Self(&CELL)
    }
}

impl Reader for Kovan {
    fn read(&mut self, section: impl FnOnce()) {
        let guard = pin();
        protect(self.0, &guard);
        section();
    }
}

impl Reclaimer for Kovan {
    fn allocate_and_retire<const N: usize>(&mut self) {
        let node = kovan::alloc_node(Node {
            retired: RetiredNode::new(),
            object: Object::<N>::new(),
        });
        // SAFETY: the node is fresh from `alloc_node`, begins with its `RetiredNode` (repr(C)), was
        // never published, so that no thread can reach it, and is retired once; any thread may drop
        // an `Object`.
        unsafe { kovan::retire_node(node) };
    }
}

impl ReadSide for Kovan {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            let guard = pin();
            protect(self.0, &guard);
            black_box(());
            drop(guard);
        }
    }
}

#[inline]
fn protect(cell: &Atomic<u64>, guard: &Guard) {
    black_box(cell.load(Ordering::Acquire, guard).as_raw());
}
