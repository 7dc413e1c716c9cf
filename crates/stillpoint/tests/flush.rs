//! What a data structure needs from a domain: a flush that does not wait, frees by a function and a
//! size, and whether the thread is in a section.

mod common;

use common::{Reader, elsewhere, eventually, expected_panic, leak, retire, retire_inline};
use std::{
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, ThreadId},
};
use stillpoint::{Destructor, Domain};

/// Notes the thread that drops it.
struct Noted(&'static Mutex<Vec<ThreadId>>);

impl Drop for Noted {
    fn drop(&mut self) {
        self.0
            .lock()
            .expect("no panic")
            .push(thread::current().id());
    }
}

fn drops() -> &'static Mutex<Vec<ThreadId>> {
    Box::leak(Box::new(Mutex::new(Vec::new())))
}

fn count(drops: &Mutex<Vec<ThreadId>>) -> usize {
    drops.lock().expect("no panic").len()
}

/// Several pages.
const SOME: usize = if cfg!(miri) { 30 } else { 600 };

/// On a machine with other work to do the service thread may come in between.
#[test]
fn a_flush_frees_here_what_may_be_freed_here() {
    let domain = Domain::new();
    let at_once = || {
        let drops = drops();
        for _ in 0..10 {
            retire_inline(&domain, Noted(drops));
        }
        domain.flush();
        let by = drops.lock().expect("no panic");
        by.len() == 10 && by.iter().all(|&by| by == thread::current().id())
    };
    assert!((0..20).any(|_| at_once()));
}

#[test]
fn a_flush_leaves_destructors_to_the_service_thread() {
    let (domain, drops) = (Domain::new(), drops());
    retire(&domain, Noted(drops));
    domain.flush();
    eventually(|| count(drops) == 1);
    assert_ne!(drops.lock().expect("no panic")[0], thread::current().id());
}

#[test]
fn a_flush_neither_waits_for_a_reader_nor_frees_what_it_uses() {
    let (domain, drops) = (Domain::new(), drops());
    let reader = Reader::enter(&domain);
    for _ in 0..SOME {
        let own = domain.read_lock();
        // SAFETY: no other thread has ever known the objects.
        unsafe {
            domain.retire_inline(leak(Noted(drops)));
            domain.retire(leak(Noted(drops)));
        }
        domain.flush();
        drop(own);
        domain.flush();
    }
    assert_eq!(count(drops), 0);
    reader.leave();
    domain.flush();
    eventually(|| count(drops) == 2 * SOME);
}

#[test]
fn a_destructor_may_flush() {
    struct Flushes(Domain, &'static Mutex<Vec<ThreadId>>);
    impl Drop for Flushes {
        fn drop(&mut self) {
            // SAFETY: no other thread has ever known the object.
            unsafe { self.0.retire_inline(leak(Noted(self.1))) };
            self.0.flush();
        }
    }
    let (domain, drops) = (Domain::new(), drops());
    for _ in 0..100 {
        let object = leak(Flushes(domain.clone(), drops));
        // SAFETY: no other thread has ever known the object.
        unsafe { domain.retire_inline(object) };
        domain.flush();
    }
    eventually(|| {
        domain.flush();
        count(drops) == 100
    });
}

static SUM: AtomicUsize = AtomicUsize::new(0);

/// # Safety
///
/// None: the word is no address.
unsafe fn add(word: *mut u8) {
    SUM.fetch_add(word.addr(), Ordering::Relaxed);
    if word.addr() == 7 {
        expected_panic();
    }
}

#[test]
fn a_function_is_called_with_its_word_once_and_counts_for_its_size() {
    static ADD: Destructor = Destructor::new(add, 5000);
    let domain = Domain::new();
    let guard = domain.read_lock();
    for word in 0..100 {
        // SAFETY: it may be called with any word.
        unsafe { domain.retire_with(std::ptr::without_provenance_mut(word), &ADD) };
    }
    let pending = domain.statistics();
    assert_eq!(pending.objects_pending, 100);
    assert!((500_000..600_000).contains(&pending.bytes_pending));
    drop(guard);
    domain.kvfree_barrier();
    assert_eq!(SUM.load(Ordering::Relaxed), 99 * 100 / 2);
    assert_eq!(domain.statistics().panics, 1);
}

#[test]
fn a_thread_knows_whether_it_reads() {
    let (domain, other) = (Domain::new(), Domain::new());
    assert!(!domain.is_reading());
    let outer = domain.read_lock();
    let inner = domain.read_lock();
    drop(outer);
    assert!(domain.is_reading() && domain.clone().is_reading() && !other.is_reading());
    assert!(!elsewhere(|| domain.is_reading()));
    drop(inner);
    assert!(!domain.is_reading());
    let reader = domain.qsbr_reader();
    assert!(domain.is_reading(), "a QSBR reader always reads");
    drop(reader);
    assert!(!domain.is_reading());
}
