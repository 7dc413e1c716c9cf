//! The statistics page of this process: made once, never unmapped.
//!
//! Domains and texts change under one lock; a slot's sequence count is odd meanwhile. All other changes
//! are stores of single words, by the threads that count. The lock is a leaf: no other lock is taken
//! under it, and no user code runs.
//!
//! # The child of a fork
//!
//! It has the parent's page mapped, and must not write there. So before anything else is reset, the
//! handler writes the table of domains to a new file and moves that over the old mapping: no pointer
//! changes. The parent's threads go on counting, so the values in its page are not those of the fork:
//! each domain writes its own when it is reset. Where the system refuses, anonymous memory takes the
//! page's place, and the child has none.

mod file;
mod table;

use super::{
    Words,
    fields::TEXT_WORDS,
    layout::{BLOCKS_AT, MAGIC, VERSION, WORD, WORDS, head, slot},
};
use crate::{
    clock, environment,
    mmap::Refused,
    stderr,
    sync::{Mutex, lock, try_lock},
    system::fork,
};
use file::{Descriptor, Mapped, Shown};
use std::{
    fmt::{Display, Write},
    io, mem, ptr,
    sync::{
        Weak,
        atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering},
    },
};
use table::{Table, store, store_all};

/// Something with statistics, to be passed to [`add`].
pub trait Subject: Send + Sync {
    /// Gets a [`Block`], and counts in it from now on. Called once, when there is a page; takes no
    /// lock that is held while a subject is added or dropped, and runs no user code.
    fn publish(&self);
}

/// Why there is no page.
pub type Unpublished = Refused;

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> Self {
        Self::from_raw_os_error(refused.errno)
    }
}

/// The first word of the page; null without one. Set once.
static PAGE: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// The words before the blocks, in memory of the process alone; null without a page. Set once.
static OWN: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());

/// The file.
static FILE: Shown = Shown::none();

/// The system's error number, in the child of a fork that got no page: its words are in private
/// memory.
static LOST: AtomicI32 = AtomicI32::new(0);

/// Held while slots and texts change.
static CHANGES: Mutex<()> = Mutex::new(());

/// The subjects to publish with the page; none once there is a page. Taken before [`CHANGES`].
static SUBJECTS: Mutex<Subjects> = Mutex::new(Subjects::NONE);

struct Subjects {
    all: Vec<Weak<dyn Subject>>,
    /// Length of the list at which subjects that no longer exist are taken out.
    full_at: usize,
}

impl Subjects {
    const NONE: Self = Self {
        all: Vec::new(),
        full_at: 0,
    };

    fn sweep(&mut self) {
        self.all.retain(|subject| subject.strong_count() > 0);
        self.full_at = 8.max(2 * self.all.len());
    }

    fn push(&mut self, subject: Weak<dyn Subject>) {
        if self.all.len() >= self.full_at {
            self.sweep();
        }
        if self.all.try_reserve(1).is_ok() {
            self.all.push(subject);
        }
    }
}

/// Returns the table, if there is a page.
fn table() -> Option<Table> {
    // Acquire, pairs with `make`: the head is complete, and the other pointer is set.
    let (page, own) = (PAGE.load(Ordering::Acquire), OWN.load(Ordering::Relaxed));
    if page.is_null() {
        return None;
    }
    // SAFETY: not null, so both are the starts of that number of words, which are mapped for ever.
    let words = |at, count| unsafe { std::slice::from_raw_parts(at, count) };
    Some(Table {
        page: words(page, WORDS),
        own: words(own, BLOCKS_AT),
    })
}

fn is_published() -> bool {
    table().is_some()
}

/// Publishes `subject` in the page, now or as soon as there is one. The first call makes the page
/// if the environment asks for it.
pub fn add(subject: Weak<dyn Subject>) {
    static HAS_LOOKED: AtomicBool = AtomicBool::new(false);
    if !HAS_LOOKED.swap(true, Ordering::Relaxed)
        && environment::statistics()
        && let Err(refused) = publish()
    {
        stderr::line(format_args!(
            "no statistics are published: {}: {}",
            refused.call,
            io::Error::from(refused)
        ));
    }
    // Dropped after the lock is released: it may be the last reference.
    let _kept = {
        let mut subjects = lock(&SUBJECTS);
        if !is_published() {
            return subjects.push(subject);
        }
        let kept = subject.upgrade();
        if let Some(subject) = &kept {
            subject.publish();
        }
        kept
    };
}

/// Makes the page, with all subjects that there are, unless there is one.
///
/// # Errors
///
/// If the system refuses the file, its mapping or its memory; the next call tries again. Also if this
/// is the child of a fork in which the system refused it: there no call tries again.
pub fn publish() -> Result<(), Refused> {
    // Dropped after the lock is released: they may be the last references.
    let mut kept = Vec::new();
    let mut subjects = lock(&SUBJECTS);
    if is_published() {
        return match LOST.load(Ordering::Relaxed) {
            0 => Ok(()),
            errno => Err(Refused {
                call: "fork",
                errno,
            }),
        };
    }
    fork::ensure_handler();
    let needed = subjects.all.len();
    kept.try_reserve(needed).map_err(|_| Refused {
        call: "malloc",
        errno: libc::ENOMEM,
    })?;
    make()?;
    // They have their blocks from now on, or none.
    let all = mem::take(&mut subjects.all);
    kept.extend(all.iter().filter_map(Weak::upgrade));
    kept.iter().for_each(|subject| subject.publish());
    drop(subjects);
    drop(kept);
    Ok(())
}

/// Makes the page and shows it. Under the lock of the subjects.
fn make() -> Result<(), Refused> {
    let file = Descriptor::new()?;
    let (mapped, own) = (file.map()?, Mapped::of_process(BLOCKS_AT)?);
    let words = mapped.words();
    file::take_memory(&words[..head::WORDS])?;
    begin(words);
    file.seal()?;
    FILE.set(file);
    OWN.store(own.keep(), Ordering::Relaxed);
    // Release, pairs with `table`: a thread that finds it finds the head complete.
    PAGE.store(mapped.keep(), Ordering::Release);
    Ok(())
}

/// Writes the page's version, its process, its time and, last, the magic word.
fn begin(words: &[AtomicU64]) {
    store(&words[head::VERSION], VERSION);
    store(&words[head::PID], std::process::id().into());
    store(&words[head::MADE], clock::now());
    // Release, pairs with `read` of the reader, in its process: it finds the head complete.
    words[head::MAGIC].store(MAGIC, Ordering::Release);
}

/// The block of a domain in the page, until it is dropped.
#[derive(Debug)]
pub struct Block(Words);

impl Block {
    /// Returns a block of zeros for a domain; `None` if there is no page, or if the page is full,
    /// which its head counts. `name` runs no user code.
    pub fn new(number: u64, name: impl Display) -> Option<Self> {
        let table = table()?;
        let name: [u64; slot::NAME_WORDS] = shown(name);
        let _changes = lock(&CHANGES);
        let Some(block) = table.find() else {
            table.refuse();
            return None;
        };
        let slot = block.slot;
        table.change_owner(slot, || {
            block.words.iter().for_each(|word| store(word, 0));
            table.put(slot + slot::NUMBER, number);
            table.put(slot + slot::MADE, clock::now());
            table.put_all(slot + slot::NAME, &name);
            table.put(slot + slot::STATE, slot::USED);
        });
        Some(Self(block))
    }

    /// Returns its words, which may be another domain's after this has been dropped.
    #[must_use]
    pub fn words(&self) -> Words {
        self.0
    }

    /// Hides the domain, which has ended; its words stay its own.
    pub fn end(&self) {
        self.set_state(slot::ENDED);
    }

    fn set_state(&self, state: u64) {
        let Some(table) = table() else { return };
        let slot = self.0.slot;
        let _changes = lock(&CHANGES);
        table.change_owner(slot, || table.put(slot + slot::STATE, state));
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.set_state(slot::FREE);
    }
}

/// Writes a text into `words`, from the first on. Takes a lock for a moment; allocates nothing.
pub(super) fn set_text(words: Words, text: impl Display) {
    let Some(table) = table() else { return };
    let text: [u64; TEXT_WORDS] = shown(text);
    let _changes = lock(&CHANGES);
    table.change(words.slot, || store_all(words.words, &text));
}

/// Returns as many whole characters of the displayed text as fit, and zeros.
fn shown<const N: usize>(text: impl Display) -> [u64; N] {
    struct Cut<const N: usize> {
        words: [[u8; WORD]; N],
        len: usize,
    }
    impl<const N: usize> Write for Cut<N> {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            let free = &mut self.words.as_flattened_mut()[self.len..];
            let mut fits = text.len().min(free.len());
            while !text.is_char_boundary(fits) {
                fits -= 1;
            }
            free[..fits].copy_from_slice(&text.as_bytes()[..fits]);
            self.len += fits;
            if fits < text.len() {
                return Err(std::fmt::Error);
            }
            Ok(())
        }
    }
    let mut cut = Cut {
        words: [[0; WORD]; N],
        len: 0,
    };
    // What does not fit is left out.
    let _ = write!(cut, "{text}");
    cut.words.map(u64::from_ne_bytes)
}

/// Gives the child of a fork a new page, with zeros; see the head of this file.
///
/// # Safety
///
/// As for [`ForkReset::reset_in_child`](crate::fork::ForkReset::reset_in_child), and nothing of this
/// process has been written to the page since the fork.
pub(crate) unsafe fn reset_in_child() {
    // SAFETY: the caller's promise: no other thread; user code runs under neither lock.
    unsafe { CHANGES.reinit(()) };
    // If it was free, the list is whole, and the child may publish it later.
    if try_lock(&SUBJECTS).is_none() {
        // SAFETY: as above. A lost thread may have been changing the list, so what was in it is
        // forgotten.
        unsafe { SUBJECTS.reinit(Subjects::NONE) };
    }
    let Some(table) = table() else { return };
    // Before the new file is made, for which the system may have no other number.
    let number = FILE.take().map(|file| file.number());
    let replaced = Descriptor::new().and_then(|new| replace(table, &new).map(|()| new));
    match replaced {
        Ok(new) => {
            // The same number, so that the program finds no other descriptor taken.
            FILE.set(new.with_number_of(number));
            LOST.store(0, Ordering::Relaxed);
        }
        Err(refused) => {
            file::hide(table.page);
            LOST.store(refused.errno, Ordering::Relaxed);
        }
    }
}

/// Writes the table to the file `new` and moves that over the page.
fn replace(table: Table, new: &Descriptor) -> Result<(), Refused> {
    let mapped = new.map()?;
    table.copy_in_child(mapped.words())?;
    begin(mapped.words());
    new.seal()?;
    mapped.move_over(table.page)
}
