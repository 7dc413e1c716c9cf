//! Deferred frees: no object is freed while a section is open that was open when it was retired,
//! each is freed once, and objects that are due are freed while younger sections stay.

use super::{Sections, Steps};
use std::{
    collections::BTreeMap,
    ptr::NonNull,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};
use stillpoint::{
    Rcu,
    lab::free_whole_batches,
    tasks_trace::{OwnedGuard, TraceDomain},
};

/// The contents of an object that is alive.
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

/// More objects than a page holds: once the same thread has retired this number of its kind after it,
/// an object is in a page that is sealed.
const MORE_THAN_A_PAGE: usize = 256;

/// How long an event may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// The domain's open sections: nested ones of this thread, of which all end with the last, and such
/// as each end by themselves.
struct Open<'d> {
    domain: &'d TraceDomain,
    nested: Sections<'d>,
    apart: BTreeMap<usize, OwnedGuard<'d>>,
    next: usize,
}

/// Which sections were open.
#[derive(Default, Clone)]
struct Numbers {
    nested: Vec<usize>,
    apart: Vec<usize>,
}

impl<'d> Open<'d> {
    fn new(domain: &'d TraceDomain) -> Self {
        Self {
            domain,
            nested: Sections::new(domain),
            apart: BTreeMap::new(),
            next: 0,
        }
    }

    fn enter_apart(&mut self) {
        if self.apart.len() < 20 {
            self.apart.insert(self.next, self.domain.read_lock_owned());
            self.next += 1;
        }
    }

    fn leave_apart(&mut self, which: usize) {
        if let Some(&number) = self.apart.keys().nth(which % self.apart.len().max(1)) {
            self.apart.remove(&number);
        }
    }

    fn is_empty(&self) -> bool {
        self.nested.is_empty() && self.apart.is_empty()
    }

    fn numbers(&self) -> Numbers {
        Numbers {
            nested: self.nested.numbers(),
            apart: self.apart.keys().copied().collect(),
        }
    }

    /// Returns whether one of them still is.
    fn any(&self, numbers: &Numbers) -> bool {
        self.nested.any(&numbers.nested)
            || numbers
                .apart
                .iter()
                .any(|number| self.apart.contains_key(number))
    }
}

/// A retired object that counts, and the sections that may still read it.
struct Retired {
    drops: Arc<AtomicUsize>,
    open: Numbers,
    /// Of this thread's objects: with or without destructor, and how many of these it had retired
    /// by then.
    at: Option<(usize, usize)>,
    /// Those of the sections that may have begun before its page was sealed.
    sealed_in: Option<Numbers>,
}

/// An array without a destructor that a section still reads: whether it has been freed shows under
/// a sanitizer, or in its contents.
struct Read {
    array: NonNull<[u64; 4]>,
    open: Numbers,
}

/// # Panics
///
/// If the domain differs from the model.
pub fn run(program: &[u8]) {
    let mut steps = Steps(program);
    let domain = TraceDomain::new();
    domain.on_stall(|_| ());
    // What the retiring threads wait for is known before the first has waited for long.
    domain.set_stall_timeout(Duration::from_millis(1));
    let mut sections = Open::new(&domain);
    // What this thread has retired to be freed without and with a destructor, and whether pages are
    // freed one by one.
    let (mut counts, mut per_page) = ([0; 2], true);
    let cell = Rcu::new_in(&domain, [ALIVE; 8]);
    let (mut retired, mut read): (Vec<Retired>, Vec<Read>) = (Vec::new(), Vec::new());

    while let Some(step) = steps.byte() {
        let count = usize::from(step / 16) + 1;
        match step % 16 {
            0 => sections.nested.enter(),
            1 => sections.enter_apart(),
            leave @ (2 | 3) => {
                check(&sections, &retired, &mut read);
                if leave == 2 {
                    sections.nested.leave(count)
                } else {
                    sections.leave_apart(count)
                }
            }
            4 | 5 => (0..count * count).for_each(|_| {
                let drops = Arc::new(AtomicUsize::new(0));
                let object = Box::new(Counted {
                    mark: ALIVE,
                    drops: Arc::clone(&drops),
                });
                let object = NonNull::from(Box::leak(object));
                // SAFETY: from a box that no other thread knows. The destructor takes no lock.
                unsafe {
                    if step % 16 == 4 {
                        domain.retire(object)
                    } else {
                        domain.retire_inline(object)
                    }
                }
                let kind = usize::from(step % 16 == 4);
                counts[kind] += 1;
                retired.push(Retired {
                    drops,
                    open: sections.numbers(),
                    at: Some((kind, counts[kind])),
                    sealed_in: None,
                });
            }),
            6..=8 => (0..count * 16).for_each(|_| {
                let array = NonNull::from(Box::leak(Box::new([ALIVE; 4])));
                // SAFETY: from a box; only sections that are open now read it from now on.
                unsafe { domain.retire(array) };
                counts[0] += 1;
                if !sections.is_empty() && read.len() < 1000 {
                    read.push(Read {
                        array,
                        open: sections.numbers(),
                    });
                }
            }),
            9 => {
                cell.store([ALIVE; 8]);
                counts[0] += 1;
            }
            10 => {
                let old = cell.swap([ALIVE; 8]);
                if sections.is_empty() {
                    assert_eq!(*old.wait(), [ALIVE; 8]);
                }
            }
            11 => domain.set_budget(count << 16),
            12 => {
                let whole_batches = count % 2 == 0;
                free_whole_batches(&domain, whole_batches);
                per_page &= !whole_batches;
            }
            13 if sections.is_empty() => {
                domain.kvfree_barrier();
                assert!(
                    retired
                        .iter()
                        .all(|object| object.drops.load(Ordering::SeqCst) == 1),
                    "a barrier has left something"
                );
                retired.clear();
            }
            // Another thread retires, and ends.
            14 => {
                let drops = Arc::new(AtomicUsize::new(0));
                let theirs = Arc::clone(&drops);
                thread::scope(|scope| {
                    scope.spawn(|| {
                        let object = NonNull::from(Box::leak(Box::new(Counted {
                            mark: ALIVE,
                            drops: theirs,
                        })));
                        // SAFETY: from a box that no other thread knows.
                        unsafe { domain.retire(object) };
                    });
                });
                retired.push(Retired {
                    drops,
                    open: sections.numbers(),
                    at: None,
                    sealed_in: None,
                });
            }
            _ => check(&sections, &retired, &mut read),
        }
        let is_sealed = |(kind, at): (usize, usize)| counts[kind] >= at + MORE_THAN_A_PAGE;
        for object in retired
            .iter_mut()
            .filter(|object| object.sealed_in.is_none() && object.at.is_some_and(is_sealed))
        {
            object.sealed_in = Some(sections.numbers());
        }
    }
    check(&sections, &retired, &mut read);
    sections.nested.leave_all();
    // All of the others end but the youngest.
    (1..sections.apart.len()).for_each(|_| sections.leave_apart(0));
    if per_page {
        what_is_due_goes(&sections, &retired);
    }
    check(&sections, &retired, &mut read);
    sections.apart.clear();
    domain.kvfree_barrier();
    assert!(
        retired
            .iter()
            .all(|object| object.drops.load(Ordering::SeqCst) == 1),
        "an object is lost, or was freed twice"
    );
    assert_eq!(domain.statistics().objects_pending, 0);
}

/// Checks that objects which no open section may read are freed in the end if their page is sealed,
/// whatever else waits.
fn what_is_due_goes(sections: &Open<'_>, retired: &[Retired]) {
    let start = Instant::now();
    let is_due = |object: &Retired| {
        object
            .sealed_in
            .as_ref()
            .is_some_and(|numbers| !sections.any(numbers))
    };
    while retired
        .iter()
        .any(|object| is_due(object) && object.drops.load(Ordering::SeqCst) == 0)
    {
        assert!(
            start.elapsed() < PATIENCE,
            "what is due stays because of what is not"
        );
        thread::sleep(Duration::from_millis(1));
    }
}

/// Checks that objects which open sections may read are there.
fn check(sections: &Open<'_>, retired: &[Retired], read: &mut Vec<Read>) {
    for object in retired {
        let drops = object.drops.load(Ordering::SeqCst);
        assert!(
            drops == 0 || drops == 1 && !sections.any(&object.open),
            "an object is freed in a section that was open before, or twice"
        );
    }
    read.retain(|object| sections.any(&object.open));
    for object in read {
        assert_eq!(
            // SAFETY: a section is open that was when the array was retired.
            unsafe { *object.array.as_ptr() },
            [ALIVE; 4],
            "an array is freed in a section that was open before"
        );
    }
}
