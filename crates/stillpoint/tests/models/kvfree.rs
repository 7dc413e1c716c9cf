//! Deferred frees: nothing goes while a section is open that was open when it was retired, and everything goes once.

use super::{Sections, Steps};
use std::{
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};
use stillpoint::{Domain, DrainPolicy, Rcu};

/// What an object holds as long as it is alive.
const ALIVE: u64 = 0x5EED;

/// An object whose drops are counted.
struct Counted {
    mark: u64,
    drops: Arc<AtomicUsize>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        assert_eq!(self.mark, ALIVE);
        self.mark = 0;
        self.drops.fetch_add(1, Ordering::SeqCst);
    }
}

/// A retired object that counts, and the sections that may still read it.
struct Retired {
    drops: Arc<AtomicUsize>,
    open: Vec<usize>,
}

/// An array without a destructor that a section still reads: whether it has been freed shows under a sanitizer, or in its contents.
struct Read {
    array: NonNull<[u64; 4]>,
    open: Vec<usize>,
}

/// # Panics
///
/// If the domain does not do as the model.
pub fn run(program: &[u8]) {
    let mut steps = Steps(program);
    let domain = Domain::new();
    let mut sections = Sections::new(&domain);
    let cell = Rcu::new_in(&domain, [ALIVE; 8]);
    let (mut retired, mut read): (Vec<Retired>, Vec<Read>) = (Vec::new(), Vec::new());

    while let Some(step) = steps.byte() {
        let count = usize::from(step / 16) + 1;
        match step % 16 {
            0 | 1 => sections.enter(),
            2 | 3 => {
                check(&sections, &retired, &mut read);
                sections.leave(count);
            }
            4 | 5 => (0..count * count).for_each(|_| {
                let drops = Arc::new(AtomicUsize::new(0));
                let object = Box::new(Counted { mark: ALIVE, drops: Arc::clone(&drops) });
                let object = NonNull::from(Box::leak(object));
                // SAFETY: from a box that nobody else knows. The destructor takes no lock.
                unsafe { if step % 16 == 4 { domain.retire(object) } else { domain.retire_plain(object) } }
                retired.push(Retired { drops, open: sections.numbers() });
            }),
            6..=8 => (0..count * 16).for_each(|_| {
                let array = NonNull::from(Box::leak(Box::new([ALIVE; 4])));
                // SAFETY: from a box; only sections that are open now read it from now on.
                unsafe { domain.retire(array) };
                if !sections.is_empty() && read.len() < 1000 {
                    read.push(Read { array, open: sections.numbers() });
                }
            }),
            9 => cell.store([ALIVE; 8]),
            10 => {
                let old = cell.swap([ALIVE; 8]).expect("it is never empty");
                if sections.is_empty() {
                    assert_eq!(*old.wait(), [ALIVE; 8]);
                }
            }
            11 => domain.set_budget(count << 16),
            12 => domain.set_drain_policy(if count % 2 == 0 { DrainPolicy::WholeBatch } else { DrainPolicy::PerPage }),
            13 if sections.is_empty() => {
                domain.kvfree_barrier();
                assert!(retired.iter().all(|object| object.drops.load(Ordering::SeqCst) == 1), "a barrier has left something");
                retired.clear();
            }
            // Another thread retires, and ends.
            14 => {
                let drops = Arc::new(AtomicUsize::new(0));
                let theirs = Arc::clone(&drops);
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let object = NonNull::from(Box::leak(Box::new(Counted { mark: ALIVE, drops: theirs })));
                        // SAFETY: from a box that nobody else knows.
                        unsafe { domain.retire(object) };
                    });
                });
                retired.push(Retired { drops, open: sections.numbers() });
            }
            _ => check(&sections, &retired, &mut read),
        }
    }
    check(&sections, &retired, &mut read);
    sections.leave_all();
    domain.kvfree_barrier();
    assert!(retired.iter().all(|object| object.drops.load(Ordering::SeqCst) == 1), "an object is lost, or was freed twice");
    assert_eq!(domain.statistics().objects_waiting, 0);
}

/// What open sections may read is there.
fn check(sections: &Sections<'_>, retired: &[Retired], read: &mut Vec<Read>) {
    for object in retired {
        let drops = object.drops.load(Ordering::SeqCst);
        assert!(
            drops == 0 || drops == 1 && !sections.any(&object.open),
            "an object is freed in a section that was open before, or twice"
        );
    }
    read.retain(|object| sections.any(&object.open));
    for object in read {
        // SAFETY: a section is open that was when the array was retired.
        assert_eq!(unsafe { *object.array.as_ptr() }, [ALIVE; 4], "an array is freed in a section that was open before");
    }
}
