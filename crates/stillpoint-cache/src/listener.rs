//! Calls of the eviction listener: outside of locks and sections, with what was cloned inside.
//!
//! A listener may use the cache. What its own calls cause is queued, and told by the call that the
//! listener was called from: so calls do not nest, however long a chain of evictions is. Where the
//! chain is long, the service thread goes on with it.

use crate::{
    cause::Cause,
    keeper::{self, GAP, Visited},
    node::{Id, Node},
};
use std::{
    cell::RefCell,
    collections::VecDeque,
    mem, ptr,
    sync::{OnceLock, Weak},
};
use stillpoint_map::internal::Found;
use stillpoint_platform::{
    clock,
    sync::{Mutex, lock, try_lock},
    user_code,
};

type Notify<K, V> = dyn Fn(&K, &V, Cause) + Send + Sync;

/// Number of queued notes that one call tells.
const MOST: usize = 128;

thread_local! {
    /// The addresses of the listeners that the thread is inside of.
    static INSIDE: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

pub struct Listener<K, V> {
    notify: Box<Notify<K, V>>,
    clone: fn(&K, &V) -> (K, V),
    /// Notes of calls that the listener has made. No user code runs under the lock.
    queued: Mutex<VecDeque<(K, V, Cause)>>,
}

impl<K, V> Listener<K, V> {
    pub fn new(notify: impl Fn(&K, &V, Cause) + Send + Sync + 'static) -> Self
    where
        K: Clone,
        V: Clone,
    {
        Self {
            notify: Box::new(notify),
            clone: |key, value| (key.clone(), value.clone()),
            queued: Mutex::new(VecDeque::new()),
        }
    }

    fn tell(&self, (key, value, cause): (K, V, Cause)) {
        // A panic is the listener's own affair: the cache and its caller go on.
        let _ = user_code::contained(|| (self.notify)(&key, &value, cause));
        let _ = user_code::contained(|| drop((key, value)));
    }

    /// Tells what is queued, or a part of it, unless the listener makes this call. Returns whether there
    /// is more.
    pub fn tell_queued(&self) -> bool {
        let Some(_inside) = Inside::enter(self) else {
            return false;
        };
        for _ in 0..MOST {
            let Some(mut queued) = try_lock(&self.queued) else {
                // Another thread queues a note. In the child of a fork, one that is gone.
                return true;
            };
            let Some(note) = queued.pop_front() else {
                return false;
            };
            drop(queued);
            self.tell(note);
        }
        true
    }
}

impl<K, V> Drop for Listener<K, V> {
    fn drop(&mut self) {
        // `None` where a fork has removed the thread that held it.
        let queued = try_lock(&self.queued).map(|mut queued| mem::take(&mut *queued));
        let queued = queued.into_iter().flatten();
        queued.for_each(|note| self.tell(note));
    }
}

/// The calling thread calls a listener.
struct Inside;

impl Inside {
    /// Returns `None` if it does so already.
    fn enter<K, V>(listener: &Listener<K, V>) -> Option<Self> {
        let address = ptr::from_ref(listener).addr();
        let is_new = INSIDE.try_with(|inside| {
            let mut inside = inside.borrow_mut();
            let is_new = !inside.contains(&address);
            if is_new {
                inside.push(address);
            }
            is_new
        });
        // At the end of a thread, calls may nest.
        is_new.unwrap_or(true).then(|| Self)
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        // Those of other caches nest: this is the last one.
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().pop());
    }
}

/// What the listener is to be told once the section has ended. Tells it when it is dropped, also
/// where user code has panicked meanwhile.
pub struct Notes<'a, K, V> {
    listener: Option<&'a Listener<K, V>>,
    visited: &'a OnceLock<Weak<dyn Visited>>,
    notes: Vec<(K, V, Cause)>,
}

impl<'a, K, V> Notes<'a, K, V> {
    #[inline]
    pub fn new(
        listener: Option<&'a Listener<K, V>>,
        visited: &'a OnceLock<Weak<dyn Visited>>,
    ) -> Self {
        Self {
            listener,
            visited,
            notes: Vec::new(),
        }
    }

    /// Notes an entry that this thread has claimed and that is out of the map. Clones it, if there
    /// is a listener; does not panic.
    #[inline]
    pub fn add(&mut self, entry: Found<'_, K, Node<V>>, cause: Cause) {
        if let Some(listener) = self.listener {
            self.add_for(listener, entry, cause);
        }
    }

    fn add_for(&mut self, listener: &Listener<K, V>, entry: Found<'_, K, Node<V>>, cause: Cause) {
        let entry = entry.get();
        // A clone that panics is a note that is lost: the caller is in the middle of a change.
        let clones = user_code::contained(|| (listener.clone)(&entry.key, &entry.value.value));
        self.notes
            .extend(clones.map(|(key, value)| (key, value, cause)));
    }

    /// As [`add`](Self::add).
    ///
    /// # Safety
    ///
    /// A section that lasts until this returns keeps the entry, which is of these types.
    pub unsafe fn add_claimed(&mut self, id: Id, cause: Cause) {
        if self.listener.is_some() {
            // SAFETY: the caller's promise.
            self.add(unsafe { id.found() }, cause);
        }
    }

    /// Tells the listener. Outside of sections.
    #[inline]
    pub fn tell(&mut self) {
        if let Some(listener) = self.listener
            && !self.notes.is_empty()
        {
            self.tell_all(listener);
        }
    }

    fn tell_all(&mut self, listener: &Listener<K, V>) {
        let Some(inside) = Inside::enter(listener) else {
            lock(&listener.queued).extend(self.notes.drain(..));
            return;
        };
        self.notes.drain(..).for_each(|note| listener.tell(note));
        drop(inside);
        if listener.tell_queued()
            && let Some(own) = self.visited.get()
        {
            // Without memory for it, or a thread, the next call goes on.
            keeper::ask(own, clock::now() + GAP);
        }
    }
}

impl<K, V> Drop for Notes<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        self.tell();
    }
}
