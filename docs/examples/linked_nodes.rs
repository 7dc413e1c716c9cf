//! A session table of linked nodes: readers follow the links in a section, writers link and unlink under a
//! bucket's lock, and each unlinked node is retired. The manual's chapter "From dashmap and locked maps".
//!
//! `cargo run -p stillpoint-manual --example linked_nodes`

use std::{
    ptr::{self, NonNull},
    sync::{
        Mutex,
        atomic::{AtomicPtr, Ordering},
    },
    thread,
};
use stillpoint::read_lock;

/// Never changed after publication, except for `next`.
struct Node {
    id: u64,
    user: String,
    next: AtomicPtr<Node>,
}

struct Bucket {
    first: AtomicPtr<Node>,
    writing: Mutex<()>,
}

struct Sessions {
    buckets: Box<[Bucket]>,
}

impl Sessions {
    fn new() -> Self {
        let bucket = || Bucket {
            first: AtomicPtr::default(),
            writing: Mutex::new(()),
        };
        Self {
            buckets: (0..256).map(|_| bucket()).collect(),
        }
    }

    fn bucket(&self, id: u64) -> &Bucket {
        &self.buckets[(id.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as usize]
    }

    fn user_is(&self, id: u64, name: &str) -> bool {
        let _guard = read_lock();
        let mut at = &self.bucket(id).first;
        // SAFETY: nodes are retired after they are unlinked, and we found this one in this section: it stays
        // until the guard is dropped.
        while let Some(node) = unsafe { at.load(Ordering::Acquire).as_ref() } {
            if node.id == id {
                return node.user == name;
            }
            at = &node.next;
        }
        false
    }

    fn insert(&self, id: u64, user: String) {
        let bucket = self.bucket(id);
        let old = {
            let _writing = bucket.writing.lock().expect("no panics under the lock");
            let old = unlink(bucket, id);
            let node = Node {
                id,
                user,
                next: AtomicPtr::new(bucket.first.load(Ordering::Relaxed)),
            };
            bucket
                .first
                .store(Box::into_raw(Box::new(node)), Ordering::Release); // published, complete
            old
        };
        retire(old); // outside the lock: it may block for a bounded time
    }

    fn remove(&self, id: u64) -> bool {
        let bucket = self.bucket(id);
        let old = {
            let _writing = bucket.writing.lock().expect("no panics under the lock");
            unlink(bucket, id)
        };
        retire(old);
        old.is_some()
    }
}

/// Unlinks the node of `id`: later readers cannot find it. The caller holds the bucket's lock.
fn unlink(bucket: &Bucket, id: u64) -> Option<NonNull<Node>> {
    let mut at = &bucket.first;
    loop {
        let found = NonNull::new(at.load(Ordering::Relaxed))?;
        // SAFETY: it is linked, and nodes are unlinked only under the lock, which we hold.
        let node = unsafe { found.as_ref() };
        if node.id == id {
            // Keeps its `next`: readers at this node go on from there.
            at.store(node.next.load(Ordering::Relaxed), Ordering::Release);
            return Some(found);
        }
        at = &node.next;
    }
}

fn retire(node: Option<NonNull<Node>>) {
    if let Some(node) = node {
        // SAFETY: it came from a box; we unlinked it, once; only earlier sections still use it.
        unsafe { stillpoint::retire(node) };
    }
}

impl Drop for Sessions {
    fn drop(&mut self) {
        for bucket in &mut self.buckets {
            let mut next = *bucket.first.get_mut();
            while !next.is_null() {
                // SAFETY: `&mut self`, so there are no readers.
                let node = unsafe { Box::from_raw(next) };
                next = node.next.load(Ordering::Relaxed);
            }
            bucket.first = AtomicPtr::new(ptr::null_mut());
        }
    }
}

fn main() {
    let freed = || stillpoint::global().statistics().objects_freed;
    let before = freed();
    let sessions = Sessions::new();
    sessions.insert(1, "ada".into());
    thread::scope(|scope| {
        scope.spawn(|| (0..1000).for_each(|_| assert!(sessions.user_is(1, "ada"))));
        (2..1000).for_each(|id| sessions.insert(id, "bob".into()));
        (2..1000).for_each(|id| assert!(sessions.remove(id)));
    });
    stillpoint::kvfree_barrier();
    assert!(freed() - before >= 998); // other code of the process may retire here, too
}
