//! kovan: batches that are freed when the last thread whose slot they were put into has left. A node begins with the crate's own words,
//! 40 bytes, so that the object comes behind them, on top of its own size. There is no call that waits for readers, and none that frees what
//! other threads hold (`flush` is for the calling thread's).
//!
//! Part of the program only with the feature `kovan`: the crate needs Rust 1.90, this workspace 1.88. Newer releases of it than 0.2.0
//! ask for 1.99.

use std::hint::black_box;

use kovan::{RetiredNode, pin};

use crate::scale::kfree::{Object, Reclaimer};
use crate::scale::read::ReadSide;
use crate::scale::{Participant, Reader};

/// An object as kovan retires it.
#[repr(C)]
struct Node<const N: usize> {
    retired: RetiredNode,
    object: Object<N>,
}

/// A thread registers with its first guard or retirement.
pub struct Kovan;

impl Participant for Kovan {
    fn join() -> Self {
        drop(pin());
        Self
    }
}

impl Reader for Kovan {
    fn read(&mut self, section: impl FnOnce()) {
        let _guard = pin();
        section();
    }
}

impl Reclaimer for Kovan {
    fn allocate_and_retire<const N: usize>(&mut self) {
        let node = kovan::alloc_node(Node { retired: RetiredNode::new(), object: Object::<N>::new() });
        // SAFETY: the node is fresh from `alloc_node`, begins with its `RetiredNode` (repr(C)), was never published, so that no thread
        // can reach it, and is retired once; any thread may drop an `Object`.
        unsafe { kovan::retire_node(node) };
    }
}

impl ReadSide for Kovan {
    #[inline(never)]
    fn pairs(&mut self, count: u64) {
        for _ in 0..count {
            let guard = pin();
            black_box(());
            drop(guard);
        }
    }
}
