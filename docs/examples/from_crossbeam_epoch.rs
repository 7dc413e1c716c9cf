//! The same stack twice: with crossbeam-epoch, and with Stillpoint. `cargo run -p stillpoint-manual
//! --example from_crossbeam_epoch`

use std::thread;

mod before {
    use crossbeam_epoch::{self as epoch, Atomic, Owned};
    use std::{mem::ManuallyDrop, ptr, sync::atomic::Ordering};

    struct Node<T> {
        value: ManuallyDrop<T>,
        next: Atomic<Node<T>>,
    }

    pub struct Stack<T> {
        head: Atomic<Node<T>>,
    }

    impl<T> Stack<T> {
        pub fn new() -> Self {
            Self {
                head: Atomic::null(),
            }
        }

        pub fn push(&self, value: T) {
            let guard = epoch::pin();
            let mut node = Owned::new(Node {
                value: ManuallyDrop::new(value),
                next: Atomic::null(),
            });
            loop {
                let head = self.head.load(Ordering::Relaxed, &guard);
                node.next.store(head, Ordering::Relaxed);
                match self.head.compare_exchange(
                    head,
                    node,
                    Ordering::Release,
                    Ordering::Relaxed,
                    &guard,
                ) {
                    Ok(_) => return,
                    Err(failed) => node = failed.new,
                }
            }
        }

        pub fn pop(&self) -> Option<T> {
            let guard = epoch::pin();
            loop {
                let head = self.head.load(Ordering::Acquire, &guard);
                // SAFETY: found in this section, so it stays until the section ends.
                let node = unsafe { head.as_ref() }?;
                let next = node.next.load(Ordering::Relaxed, &guard);
                if self
                    .head
                    .compare_exchange(head, next, Ordering::Relaxed, Ordering::Relaxed, &guard)
                    .is_ok()
                {
                    // SAFETY: we unlinked it, and only we destroy it and take its value.
                    unsafe {
                        guard.defer_destroy(head);
                        return Some(ptr::read(&*node.value));
                    }
                }
            }
        }
    }

    impl<T> Drop for Stack<T> {
        fn drop(&mut self) {
            while self.pop().is_some() {}
        }
    }
}

mod after {
    use std::{
        mem::ManuallyDrop,
        ptr::{self, NonNull},
        sync::atomic::{AtomicPtr, Ordering},
    };

    struct Node<T> {
        value: ManuallyDrop<T>,
        next: *mut Node<T>,
    }

    // SAFETY: the thread that has unlinked a node owns it, and does not follow its pointer.
    unsafe impl<T: Send> Send for Node<T> {}

    pub struct Stack<T: Send + 'static> {
        head: AtomicPtr<Node<T>>,
    }

    impl<T: Send + 'static> Stack<T> {
        pub const fn new() -> Self {
            Self {
                head: AtomicPtr::new(ptr::null_mut()),
            }
        }

        /// Follows no pointer, so it needs no section.
        pub fn push(&self, value: T) {
            let node = Box::into_raw(Box::new(Node {
                value: ManuallyDrop::new(value),
                next: ptr::null_mut(),
            }));
            let mut head = self.head.load(Ordering::Relaxed);
            loop {
                // SAFETY: not published yet.
                unsafe { (*node).next = head };
                match self.head.compare_exchange_weak(
                    head,
                    node,
                    Ordering::Release,
                    Ordering::Relaxed,
                ) {
                    Ok(_) => return,
                    Err(newer) => head = newer,
                }
            }
        }

        pub fn pop(&self) -> Option<T> {
            let _guard = stillpoint::read_lock();
            loop {
                let head = NonNull::new(self.head.load(Ordering::Acquire))?;
                // SAFETY: found in this section, so it stays until the section ends, and until then
                // no new node has its address.
                let node = unsafe { head.as_ref() };
                if self
                    .head
                    .compare_exchange(
                        head.as_ptr(),
                        node.next,
                        Ordering::Relaxed,
                        Ordering::Relaxed,
                    )
                    .is_ok()
                {
                    // SAFETY: we unlinked it, and only we take its value.
                    let value = unsafe { ptr::read(&*node.value) };
                    // SAFETY: it came from a box, is unlinked, and only sections that have already
                    // begun still use it.
                    unsafe { stillpoint::retire(head) };
                    return Some(value);
                }
            }
        }
    }

    impl<T: Send + 'static> Drop for Stack<T> {
        fn drop(&mut self) {
            while self.pop().is_some() {}
        }
    }
}

/// Four threads push and pop; the popped values are the pushed ones.
fn total(push: impl Fn(u64) + Sync, pop: impl Fn() -> Option<u64> + Sync) -> u64 {
    thread::scope(|scope| {
        let (push, pop) = (&push, &pop);
        let work = |thread: u64| {
            let numbers = thread * 10_000..(thread + 1) * 10_000;
            let pair = |n| {
                push(n);
                pop().expect("one was pushed before")
            };
            scope.spawn(move || numbers.map(pair).sum::<u64>())
        };
        let threads = [0, 1, 2, 3].map(work);
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panics"))
            .sum()
    })
}

fn main() {
    let (old, new) = (before::Stack::new(), after::Stack::new());
    assert_eq!(total(|n| old.push(n), || old.pop()), 799_980_000);
    assert_eq!(total(|n| new.push(n), || new.pop()), 799_980_000);

    stillpoint::kvfree_barrier(); // crossbeam-epoch has no such wait
    let statistics = stillpoint::global().statistics();
    assert_eq!(statistics.objects_freed, 40_000);
    println!(
        "40,000 nodes freed in {} grace periods",
        statistics.grace_periods
    );
}
