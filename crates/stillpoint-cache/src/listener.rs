//! Calls of the eviction listener: outside of locks and sections, with what was cloned inside.

use crate::{
    cause::Cause,
    node::{Id, Node},
};
use stillpoint_map::internal::Found;
use stillpoint_platform::user_code;

type Notify<K, V> = dyn Fn(&K, &V, Cause) + Send + Sync;

pub struct Listener<K, V> {
    pub notify: Box<Notify<K, V>>,
    pub clone: fn(&K, &V) -> (K, V),
}

/// What the listener is to be told once the section has ended. Tells it when it is dropped, also
/// where user code has panicked meanwhile.
pub struct Notes<'a, K, V> {
    listener: Option<&'a Listener<K, V>>,
    notes: Vec<(K, V, Cause)>,
}

impl<'a, K, V> Notes<'a, K, V> {
    #[inline]
    pub fn new(listener: Option<&'a Listener<K, V>>) -> Self {
        Self {
            listener,
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
        if let Some(listener) = self.listener {
            self.tell_all(listener);
        }
    }

    fn tell_all(&mut self, listener: &Listener<K, V>) {
        for (key, value, cause) in self.notes.drain(..) {
            // A panic is the listener's own affair: the cache and its caller go on.
            let _ = user_code::contained(|| (listener.notify)(&key, &value, cause));
            let _ = user_code::contained(|| drop((key, value)));
        }
    }
}

impl<K, V> Drop for Notes<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        self.tell();
    }
}
