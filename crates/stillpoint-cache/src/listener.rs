//! Calls of the eviction listener: outside of locks and sections, with what was cloned inside.
//!
//! A listener may use the cache. Notes of what its own calls remove are queued, and the call that told the
//! listener tells them after it: so calls do not nest. A listener that inserts again what was evicted would
//! keep that call busy for ever: so the number of notes from the third generation on is bounded.

use crate::{node::Node, removal::Cause};
use std::{
    any::Any,
    mem,
    panic::{self, AssertUnwindSafe},
};
use stillpoint_map::internal::{Entry, Found};
use stillpoint_platform::{
    fork_mutex::ForkMutex,
    thread::{Token, token},
    user_code,
};

type Notify<K, V> = dyn Fn(&K, &V, Cause) + Send + Sync;

/// Clones of an entry that has left. One whose clone has panicked is not told.
type Note<K, V> = (Option<K>, Result<V, Box<dyn Any + Send>>, Cause);

type Queue<K, V> = Vec<Note<K, V>>;

/// Number of notes of the third generation and later ones that one call tells.
const MOST: usize = 128;

pub struct Listener<K, V> {
    notify: Box<Notify<K, V>>,
    /// Leaves the clone of the key there, also if that of the value panics.
    clone: fn(&K, &V, &mut Option<K>) -> V,
    /// The calls under way. Lost in the child of a fork that has removed the holder: then nothing is told any more.
    calls: ForkMutex<Vec<Call<K, V>>>,
}

/// A call that tells a listener.
struct Call<K, V> {
    thread: Token,
    /// Notes of what that thread has removed inside of the listener.
    notes: Queue<K, V>,
}

impl<K, V> Listener<K, V> {
    pub fn new(notify: impl Fn(&K, &V, Cause) + Send + Sync + 'static) -> Self
    where
        K: Clone,
        V: Clone,
    {
        Self {
            notify: Box::new(notify),
            clone: |key, value, cloned| {
                *cloned = Some(key.clone());
                value.clone()
            },
            calls: ForkMutex::new(Vec::new()),
        }
    }

    /// # Safety
    ///
    /// The calling thread is the only one of the process.
    pub unsafe fn reset_in_child(&self) {
        // SAFETY: the caller's promise; no user code runs under this lock.
        unsafe { self.calls.reset_in_child() };
    }

    fn note(&self, entry: &Entry<K, Node<V>>, cause: Cause) -> Note<K, V> {
        let mut key = None;
        let clone = || (self.clone)(&entry.key, &entry.value.value, &mut key);
        let value = panic::catch_unwind(AssertUnwindSafe(clone));
        (key, value, cause)
    }

    /// Tells `notes`, the first generation, and then what the listener's own calls have removed meanwhile:
    /// the second generation, and so on. If the thread is inside of the listener, leaves `notes` to that call.
    fn tell_all(&self, mut notes: Queue<K, V>) {
        let thread = token();
        let is_own = |call: &Call<K, V>| call.thread == thread;
        let Some(mut calls) = self.calls.lock_unless_lost() else {
            // One by one: a destructor's panic is no more the caller's than it is below.
            for note in notes {
                let _ = user_code::contained(|| drop(note));
            }
            return;
        };
        if let Some(own) = calls.iter().position(is_own) {
            calls[own].notes.append(&mut notes);
            return;
        }
        calls.push(Call {
            thread,
            notes: Vec::new(),
        });
        drop(calls);
        let mut left = usize::MAX;
        for generation in 0.. {
            if generation == 2 {
                left = MOST;
            }
            for note in notes {
                if let (Some(key), Ok(value), cause) = &note
                    && left > 0
                {
                    left -= 1;
                    // A panic is the listener's own affair: the cache and its caller go on.
                    let _ = user_code::contained(|| (self.notify)(key, value, *cause));
                }
                let _ = user_code::contained(|| drop(note));
            }
            let Some(mut calls) = self.calls.lock_unless_lost() else {
                return;
            };
            let own = calls.iter().position(is_own);
            let own = own.expect("it is under way");
            notes = mem::take(&mut calls[own].notes);
            if notes.is_empty() {
                calls.swap_remove(own);
                return;
            }
        }
    }
}

/// Notes for the listener, if there is one, collected in a section. Tells them when it is dropped, after the section,
/// also if user code has panicked meanwhile.
pub struct Notes<'a, K, V>(Option<Noted<'a, K, V>>);

type Noted<'a, K, V> = (&'a Listener<K, V>, Queue<K, V>);

impl<'a, K, V> Notes<'a, K, V> {
    #[inline]
    pub fn new(listener: Option<&'a Listener<K, V>>) -> Self {
        Self(listener.map(|listener| (listener, Vec::new())))
    }

    /// Returns whether there is a listener.
    #[inline]
    pub fn are_wanted(&self) -> bool {
        self.0.is_some()
    }

    /// Notes an entry that this thread has claimed and that is out of the map. Clones it, if there
    /// is a listener; does not panic: the caller is in the middle of a change.
    #[inline]
    pub fn add(&mut self, entry: Found<'_, K, Node<V>>, cause: Cause) {
        if let Some((listener, notes)) = &mut self.0 {
            notes.push(listener.note(entry.get(), cause));
        }
    }
}

impl<K, V> Drop for Notes<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        if let Some((listener, notes)) = self.0.take()
            && !notes.is_empty()
        {
            listener.tell_all(notes);
        }
    }
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use std::sync::{
        Mutex, OnceLock,
        atomic::{AtomicUsize, Ordering},
    };

    static LISTENERS: [OnceLock<Listener<u64, u64>>; 2] = [const { OnceLock::new() }; 2];

    fn tell(which: usize, key: u64) {
        let listener = LISTENERS[which].get().unwrap();
        listener.tell_all(vec![(Some(key), Ok(0), Cause::Removed)]);
    }

    /// Each of two listeners tells the other one of the next key.
    #[test]
    fn a_call_inside_of_a_listener_is_found_behind_another_ones() {
        static TOLD: Mutex<Vec<(usize, u64)>> = Mutex::new(Vec::new());
        for (which, listener) in LISTENERS.iter().enumerate() {
            let notify = move |&key: &u64, _: &u64, _| {
                TOLD.lock().unwrap().push((which, key));
                if key < 4 {
                    tell(1 - which, key + 1);
                }
            };
            listener.get_or_init(|| Listener::new(notify));
        }
        tell(0, 0);
        let all = [(0, 0), (1, 1), (0, 2), (1, 3), (0, 4)];
        assert_eq!(*TOLD.lock().unwrap(), all);
        let mut listeners = LISTENERS.iter().map(|listener| listener.get().unwrap());
        assert!(listeners.all(|listener| listener.calls.lock().is_empty()));
        // A child of a fork that has lost the lock is told nothing, and does not wait.
        let listener = LISTENERS[0].get().unwrap();
        mem::forget(listener.calls.lock());
        // SAFETY: no other thread uses it.
        unsafe { listener.reset_in_child() };
        tell(0, 0);
        assert_eq!(*TOLD.lock().unwrap(), all);
    }

    /// As in the child of a fork that has lost the lock.
    #[test]
    fn notes_that_cannot_be_told_are_dropped_and_their_panics_contained() {
        static DROPPED: AtomicUsize = AtomicUsize::new(0);
        #[derive(Clone)]
        struct Panics(bool);
        impl Drop for Panics {
            fn drop(&mut self) {
                DROPPED.fetch_add(1, Ordering::Relaxed);
                if self.0 {
                    panic::resume_unwind(Box::new("expected"));
                }
            }
        }
        let listener = Listener::new(|_: &u64, _: &Panics, _| ());
        mem::forget(listener.calls.lock());
        // SAFETY: no other thread uses it.
        unsafe { listener.reset_in_child() };
        let note = |panics| (Some(1), Ok(Panics(panics)), Cause::Removed);
        listener.tell_all(vec![note(true), note(false)]);
        assert_eq!(DROPPED.load(Ordering::Relaxed), 2);
    }
}
