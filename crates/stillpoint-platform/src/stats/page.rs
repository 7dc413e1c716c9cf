//! The statistics page of this process: made once, never unmapped.
//!
//! Domains and texts change under one lock; a slot's sequence count is odd meanwhile. All other changes
//! are stores of single words, by the threads that count. The lock is a leaf: no other lock is taken
//! under it, and no user code runs.
//!
//! The process never reads a domain's slot: the state of each is also in private memory.
//!
//! # The child of a fork
//!
//! It has the parent's page mapped, and must not write there. So before anything else is reset, the
//! handler makes a new file and moves it over the old mapping: no pointer changes. The parent's threads go on
//! changing its page, so nothing there is what it was at the fork: each domain writes its slot and its values
//! anew when it is reset. Where the system refuses, anonymous memory takes the page's place, and the child has
//! none.

mod file;

use super::{
    Words,
    fields::{BLOCK_WORDS, TEXT_WORDS},
    layout::{BLOCKS_AT, MAGIC, MOST_SLOTS, VERSION, WORD, WORDS, block_at, head, slot, slot_at},
    sequence,
};
use crate::{
    clock::{self, Nanos},
    environment,
    mmap::Refused,
    stderr,
    sync::{Mutex, lock, try_lock},
    system::fork,
};
use file::Shown;
use std::{
    fmt::{Display, Write},
    io, mem,
    os::fd::{AsRawFd, OwnedFd},
    ptr,
    sync::{
        Weak,
        atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU64, Ordering},
    },
};

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

/// The state of each slot, as in the page; 0 for those that have never been used, which come last.
/// Relaxed: they change under the lock, and the child of a fork has one thread. If a lost thread was
/// taking a slot or giving it up, no domain of the child gets it.
static STATES: [AtomicU8; MOST_SLOTS] = [const { AtomicU8::new(0) }; MOST_SLOTS];

/// Number of domains that there was no space for.
static REFUSED: AtomicU64 = AtomicU64::new(0);

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

/// Returns the words of the page, if there is one.
fn page() -> Option<&'static [AtomicU64]> {
    // Acquire, pairs with `make`: the head is complete.
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: the start of that number of words, which are mapped for ever.
    (!page.is_null()).then(|| unsafe { std::slice::from_raw_parts(page, WORDS) })
}

fn is_published() -> bool {
    page().is_some()
}

/// Returns how many slots have ever been used.
fn slots() -> usize {
    let is_new = |state: &AtomicU8| state.load(Ordering::Relaxed) == 0;
    STATES.iter().position(is_new).unwrap_or(MOST_SLOTS)
}

fn store(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

fn store_all(words: &[AtomicU64], values: &[u64]) {
    for (word, &value) in words.iter().zip(values) {
        store(word, value);
    }
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
    let file = file::create()?;
    let page = file::Page::of(&file)?;
    let words = page.words();
    file::take_memory(&words[..head::WORDS])?;
    begin(words);
    file::seal(&file)?;
    FILE.set(file);
    // Release, pairs with `page`: a thread that finds it finds the head complete.
    PAGE.store(page.keep(), Ordering::Release);
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
pub struct Block {
    words: Words,
    /// The number of its slot.
    number: usize,
    made: Nanos,
}

impl Block {
    /// Returns a block of zeros for a domain; `None` if there is no page, or if the page is full,
    /// which its head counts. `name` runs no user code.
    pub fn new(number: u64, name: impl Display) -> Option<Self> {
        let page = page()?;
        let block = {
            let _changes = lock(&CHANGES);
            Self::take(page)
        };
        match &block {
            Some(block) => block.show(number, name),
            None => {
                let refused = REFUSED.fetch_add(1, Ordering::Relaxed) + 1;
                page[head::REFUSED].fetch_max(refused, Ordering::Relaxed);
            }
        }
        block
    }

    /// Takes a free slot with its block, or a new one. Under the lock.
    fn take(page: &'static [AtomicU64]) -> Option<Self> {
        let is_free =
            |state: &AtomicU8| [0, slot::FREE].contains(&state.load(Ordering::Relaxed).into());
        let number = STATES.iter().position(is_free)?;
        let words = Words {
            words: &page[block_at(number)..][..BLOCK_WORDS],
            slot: slot_at(number),
        };
        if number == slots() {
            file::take_memory(&page[words.slot..][..slot::WORDS]).ok()?;
            file::take_memory(words.words).ok()?;
            store(&page[head::SLOTS], number as u64 + 1);
        }
        STATES[number].store(slot::USED as u8, Ordering::Relaxed);
        Some(Self {
            words,
            number,
            made: clock::now(),
        })
    }

    /// Writes the slot, and zeros into the block: for a new block, and in the child of a fork, whose page has
    /// zeros. `name` runs no user code.
    pub fn show(&self, number: u64, name: impl Display) {
        let name: [u64; slot::NAME_WORDS] = shown(name);
        self.change(|slot| {
            self.words.words.iter().for_each(|word| store(word, 0));
            store(&slot[slot::NUMBER], number);
            store(&slot[slot::MADE], self.made);
            store_all(&slot[slot::NAME..], &name);
            store(&slot[slot::STATE], slot::USED);
        });
    }

    /// Returns its words, which may be another domain's after this has been dropped.
    #[must_use]
    pub fn words(&self) -> Words {
        self.words
    }

    /// Hides the domain, which has ended; its words stay its own.
    pub fn end(&self) {
        self.set_state(slot::ENDED);
    }

    fn set_state(&self, state: u64) {
        self.change(|slot| {
            store(&slot[slot::STATE], state);
            STATES[self.number].store(state as u8, Ordering::Relaxed);
        });
    }

    /// Changes the slot, under the lock.
    fn change(&self, how: impl FnOnce(&[AtomicU64])) {
        let Some(page) = page() else { return };
        let slot = &page[self.words.slot..][..slot::WORDS];
        let _changes = lock(&CHANGES);
        sequence::change(&slot[slot::SEQUENCE], || how(slot));
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.set_state(slot::FREE);
    }
}

/// Writes a text into `words`, from the first on. Takes a lock for a moment; allocates nothing.
pub(super) fn set_text(words: Words, text: impl Display) {
    let Some(page) = page() else { return };
    let text: [u64; TEXT_WORDS] = shown(text);
    let _changes = lock(&CHANGES);
    sequence::change(&page[words.slot + slot::SEQUENCE], || {
        store_all(words.words, &text);
    });
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
    let Some(page) = page() else { return };
    // Before the new file is made, for which the system may have no other number.
    // SAFETY: the caller's promise.
    let number = unsafe { FILE.take() }.map(|file| file.as_raw_fd());
    // SAFETY: `page` returns all of the page that `make` has kept.
    let replace = |new: OwnedFd| unsafe { replace(page, &new) }.map(|()| new);
    let replaced = file::create().and_then(replace);
    match replaced {
        Ok(mut new) => {
            if let Some(number) = number {
                // The same number, so that the program finds no other descriptor taken.
                // SAFETY: the file that had it is closed, unless the new one has it; there is no other thread.
                new = unsafe { file::with_number(new, number) };
            }
            FILE.set(new);
            LOST.store(0, Ordering::Relaxed);
        }
        Err(refused) => {
            // SAFETY: as above.
            unsafe { file::hide(page) };
            LOST.store(refused.errno, Ordering::Relaxed);
        }
    }
}

/// Writes a head to the file `new`, which has zeros, and moves that over the page.
///
/// # Safety
///
/// `old` is all of a page that was kept.
unsafe fn replace(old: &[AtomicU64], new: &OwnedFd) -> Result<(), Refused> {
    let (page, slots) = (file::Page::of(new)?, slots());
    let words = page.words();
    file::take_memory(&words[..slot_at(slots)])?;
    file::take_memory(&words[BLOCKS_AT..block_at(slots)])?;
    store(&words[head::SLOTS], slots as u64);
    store(&words[head::REFUSED], REFUSED.load(Ordering::Relaxed));
    begin(words);
    file::seal(new)?;
    // SAFETY: the caller's promise.
    unsafe { page.move_over(old) }
}
