//! Calls of the eviction listener: outside of locks and sections, with what was cloned inside.
//!
//! A listener may use the cache. Notes of what its own calls remove are queued, and the call that told the
//! listener tells them after it: so calls do not nest. A listener that inserts again what was evicted would
//! keep that call busy for ever: so the number of notes from the third generation on is bounded.

use crate::{node::Node, removal::Cause};
use std::{
    cell::{Cell, RefCell},
    mem, ptr,
};
use stillpoint_map::internal::Found;
use stillpoint_platform::user_code;

type Notify<K, V> = dyn Fn(&K, &V, Cause) + Send + Sync;

type Note<K, V> = (K, V, Cause);

/// Notes of what a listener's own calls remove, until the call that told the listener tells them.
type Queue<K, V> = RefCell<Vec<Note<K, V>>>;

/// Number of notes of the third generation and later ones that one call tells.
const MOST: usize = 128;

thread_local! {
    /// The innermost listener that the thread is inside of. It has no destructor, so destructors of
    /// other thread-locals find it as well.
    static INSIDE: Cell<*const Inside> = const { Cell::new(ptr::null()) };
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

    /// Tells `notes`, the first generation, and then what the listener's own calls have removed meanwhile:
    /// the second generation, and so on.
    fn tell_all(&self, notes: &mut Vec<Note<K, V>>) {
        if self.is_queued(notes) {
            return;
        }
        let queue = Queue::default();
        let inside = Inside::of(self, &queue);
        let _entered = inside.enter();
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
        let mut next = INSIDE.get();
        // SAFETY: `enter` got it from a frame of this thread that stays there until `Entered` is dropped, on
        // this thread, which takes it out of the list.
        while let Some(inside) = unsafe { next.as_ref() } {
            if inside.listener == ptr::from_ref(self).addr() {
                let queue = inside.queue.cast::<Queue<K, V>>();
                // SAFETY: as above. That frame borrows the listener at this address: so it is this one, and
                // the types are the same.
                unsafe { &*queue }.borrow_mut().append(notes);
                return true;
            }
            next = inside.outer.get();
        }
        false
    }
}

/// A call that tells a listener, in the frame of that call. The frame ends on the thread on which it began:
/// the type is not `Send`, and a coroutine's stack must not move to another thread with such values on it.
struct Inside {
    listener: usize,
    /// A [`Queue`] of the listener's types.
    queue: *const (),
    outer: Cell<*const Self>,
}

impl Inside {
    fn of<K, V>(listener: &Listener<K, V>, queue: &Queue<K, V>) -> Self {
        Self {
            listener: ptr::from_ref(listener).addr(),
            queue: ptr::from_ref(queue).cast(),
            outer: Cell::new(INSIDE.get()),
        }
    }

    fn enter(&self) -> Entered<'_> {
        INSIDE.set(self);
        Entered(self)
    }
}

/// The calling thread is inside of a listener.
struct Entered<'a>(&'a Inside);

impl Drop for Entered<'_> {
    /// Takes the frame out of the list. It need not be the innermost: where listeners run on stacks of
    /// coroutines, another one may have begun later, and not have ended.
    fn drop(&mut self) {
        INSIDE.with(|innermost| {
            let mut place = innermost;
            // SAFETY: as in `is_queued`.
            while let Some(inside) = unsafe { place.get().as_ref() } {
                if ptr::eq(inside, self.0) {
                    place.set(inside.outer.get());
                    break;
                }
                place = &inside.outer;
            }
        });
    }
}

/// Notes for the listener, collected in a section. Tells them when it is dropped, after the section, also
/// if user code has panicked meanwhile.
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

    /// Returns whether there is a listener.
    #[inline]
    pub fn are_wanted(&self) -> bool {
        self.listener.is_some()
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

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;
    use std::sync::{Mutex, OnceLock};

    static LISTENERS: [OnceLock<Listener<u64, u64>>; 2] = [const { OnceLock::new() }; 2];

    fn tell(which: usize, key: u64) {
        let listener = LISTENERS[which].get().unwrap();
        listener.tell_all(&mut vec![(key, 0, Cause::Removed)]);
    }

    /// Each of two listeners tells the other one of the next key.
    #[test]
    fn a_call_finds_the_frame_of_its_own_listener_behind_another_ones() {
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
        let told = TOLD.lock().unwrap();
        assert_eq!(*told, [(0, 0), (1, 1), (0, 2), (1, 3), (0, 4)]);
        assert!(INSIDE.get().is_null());
    }

    #[test]
    fn frames_leave_the_list_in_any_order() {
        for [first, second] in [[0, 1], [1, 0], [1, 2], [0, 2], [2, 0]] {
            let listeners = [(); 3].map(|()| Listener::new(|_: &u64, _: &u64, _| ()));
            let queues: [Queue<u64, u64>; 3] = Default::default();
            let find = || {
                listeners
                    .each_ref()
                    .map(|listener| listener.is_queued(&mut Vec::new()))
            };
            let inside = Inside::of(&listeners[0], &queues[0]);
            let entered = inside.enter();
            let inside = Inside::of(&listeners[1], &queues[1]);
            let next = inside.enter();
            let inside = Inside::of(&listeners[2], &queues[2]);
            let mut all = [Some(entered), Some(next), Some(inside.enter())];
            let mut expected = [true; 3];
            for leaves in [first, second, 3 - first - second] {
                assert_eq!(find(), expected);
                (all[leaves], expected[leaves]) = (None, false);
            }
            assert_eq!(find(), expected);
            assert!(INSIDE.get().is_null());
        }
    }
}
