//! Calls of the eviction listener: outside of locks and sections, with what was cloned inside.
//!
//! A listener may use the cache. What its own calls cause is queued, and told by the call that the
//! listener was called from: so calls do not nest. A listener that inserts again what was evicted would
//! keep that call for ever: so it is told of a bounded number of entries that its answers to queued notes
//! remove.

use crate::{
    cause::Cause,
    node::{Id, Node},
};
use std::{cell::RefCell, mem, ptr};
use stillpoint_map::internal::Found;
use stillpoint_platform::user_code;

type Notify<K, V> = dyn Fn(&K, &V, Cause) + Send + Sync;

type Note<K, V> = (K, V, Cause);

/// Notes of calls that a listener makes while one call tells it.
type Queue<K, V> = RefCell<Vec<Note<K, V>>>;

/// Number of notes of the third generation and later ones that one call tells.
const MOST: usize = 128;

thread_local! {
    /// The listeners that the thread is inside of, each with its queue.
    static INSIDE: RefCell<Vec<(usize, *const ())>> = const { RefCell::new(Vec::new()) };
}

pub struct Listener<K, V> {
    notify: Box<Notify<K, V>>,
    clone: fn(&K, &V) -> (K, V),
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
        }
    }

    fn tell(&self, (key, value, cause): Note<K, V>) {
        // A panic is the listener's own affair: the cache and its caller go on.
        let _ = user_code::contained(|| (self.notify)(&key, &value, cause));
        let _ = user_code::contained(|| drop((key, value)));
    }

    /// Tells `notes`, the first generation, and what the listener's own calls remove meanwhile: the
    /// second one, of which a later one may come.
    fn tell_all(&self, notes: &mut Vec<Note<K, V>>) {
        if self.is_queued(notes) {
            return;
        }
        let queue = Queue::default();
        let _inside = Inside::enter(self, &queue);
        let (mut generation, mut left) = (mem::take(notes), usize::MAX);
        for number in 0.. {
            if number == 2 {
                left = MOST;
            }
            for note in generation {
                if left > 0 {
                    left -= 1;
                    self.tell(note);
                } else {
                    let _ = user_code::contained(|| drop(note));
                }
            }
            generation = queue.take();
            if generation.is_empty() {
                break;
            }
        }
    }

    /// Queues `notes` if this thread is inside of the listener. Returns whether it is.
    fn is_queued(&self, notes: &mut Vec<Note<K, V>>) -> bool {
        let address = ptr::from_ref(self).addr();
        // At the end of a thread, calls may nest.
        let queue = INSIDE.try_with(|inside| {
            let inside = inside.borrow();
            let mut all = inside.iter().filter(|(other, _)| *other == address);
            all.next().map(|&(_, queue)| queue.cast::<Queue<K, V>>())
        });
        let Ok(Some(queue)) = queue else {
            return false;
        };
        // SAFETY: `enter` got it from a frame of this thread that is there until `Inside` is dropped, which
        // takes it out of the list, and that borrows the listener at this address: so it is this one, and
        // the types are the same.
        unsafe { &*queue }.borrow_mut().append(notes);
        true
    }
}

/// The calling thread calls a listener.
struct Inside<'q, K, V>(&'q Queue<K, V>);

impl<'q, K, V> Inside<'q, K, V> {
    fn enter(listener: &'q Listener<K, V>, queue: &'q Queue<K, V>) -> Self {
        let entry = (ptr::from_ref(listener).addr(), ptr::from_ref(queue).cast());
        let _ = INSIDE.try_with(|inside| inside.borrow_mut().push(entry));
        Self(queue)
    }
}

impl<K, V> Drop for Inside<'_, K, V> {
    fn drop(&mut self) {
        let queue = ptr::from_ref(self.0).cast();
        let _ = INSIDE.try_with(|inside| {
            inside.borrow_mut().retain(|&(_, other)| other != queue);
        });
    }
}

/// What the listener is to be told once the section has ended. Tells it when it is dropped, also
/// where user code has panicked meanwhile.
pub struct Notes<'a, K, V> {
    listener: Option<&'a Listener<K, V>>,
    notes: Vec<Note<K, V>>,
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
        if let Some(listener) = self.listener
            && !self.notes.is_empty()
        {
            listener.tell_all(&mut self.notes);
        }
    }
}

impl<K, V> Drop for Notes<'_, K, V> {
    #[inline]
    fn drop(&mut self) {
        self.tell();
    }
}
