//! A domain's engine and heap, and whether they have ever been used for more than sections.

use crate::{
    gp::Engine,
    kvfree::{Heap, Policy},
    platform::sync::{AtomicBool, Ordering},
};
use std::sync::atomic::fence;

/// The engine and the heap. The fields are private, so that no use goes unnoticed.
#[derive(Debug)]
pub(in crate::rcu) struct Parts<P: Policy> {
    engine: Engine<P>,
    heap: Heap,
    /// Never taken back.
    used: AtomicBool,
}

impl<P: Policy> Parts<P> {
    pub(super) fn new(engine: Engine<P>, heap: Heap) -> Self {
        Self {
            engine,
            heap,
            used: AtomicBool::new(false),
        }
    }

    /// Returns the engine, for anything.
    #[inline]
    pub(in crate::rcu) fn engine(&self) -> &Engine<P> {
        self.note_use();
        &self.engine
    }

    /// Returns the heap, for anything.
    #[inline]
    pub(in crate::rcu) fn heap(&self) -> &Heap {
        self.note_use();
        &self.heap
    }

    /// Returns the engine, for uses that take no lock except the registry's and announce no waiter:
    /// records, sections, and changes of atomics. These are whole in the child of a fork.
    #[inline]
    pub(in crate::rcu) fn atomics(&self) -> &Engine<P> {
        &self.engine
    }

    /// Returns the heap, for settings that are atomics.
    pub(in crate::rcu) fn settings(&self) -> &Heap {
        &self.heap
    }

    /// Returns whether there has been any use other than through [`Parts::atomics`] and
    /// [`Parts::settings`].
    pub(in crate::rcu) fn is_used(&self) -> bool {
        self.used.load(Ordering::Relaxed)
    }

    #[inline]
    fn note_use(&self) {
        if !self.is_used() {
            self.note_first_use();
        }
    }

    #[cold]
    fn note_first_use(&self) {
        self.used.store(true, Ordering::Relaxed);
        // Needs no partner: fork copies memory at one moment, and what the use changes is not in a
        // copy that lacks the mark.
        fence(Ordering::SeqCst);
    }
}
