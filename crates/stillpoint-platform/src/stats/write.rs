//! The statistics page of this process: made once, never unmapped.
//!
//! Things come and go under one lock, and so do texts; a slot's sequence count is odd meanwhile. All
//! else is single words, which the threads that count write whenever they do. The lock is a leaf: no
//! other is taken under it, and no user code runs.
//!
//! # The child of a fork
//!
//! It has the parent's page mapped, and must not write there. So before anything else is reset, the
//! handler copies the page to a new file and moves that over the old mapping: no pointer changes.
//! Where that fails, anonymous memory takes its place, and the child has no page.

use super::Words;
use super::layout::{
    BLOCKS_AT, BYTES, FIELDS_AT, KINDS_AT, Kind, MAGIC, MOST_BLOCK_WORDS, MOST_FIELDS, MOST_KINDS,
    MOST_SLOTS, NAME, SLOTS_AT, TEXT_WORDS, VERSION, WORDS, field, head, kind, slot, text_words,
};
use crate::{
    clock, environment, memory,
    mmap::Refused,
    stderr,
    sync::{Mutex, lock},
    system::fork,
};
use std::{
    ffi::CStr,
    fmt::{Display, Write},
    io, ptr,
    sync::{
        Weak,
        atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU64, Ordering, fence},
    },
};

/// Something with statistics, which [`add`] was told of.
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

/// The file, which stays open so that others find it; -1 for none.
static FILE: AtomicI32 = AtomicI32::new(-1);

/// Held while slots, kinds and texts change.
static CHANGES: Mutex<()> = Mutex::new(());

/// All that can be published. Taken before [`CHANGES`].
static SUBJECTS: Mutex<Subjects> = Mutex::new(Subjects::NONE);

struct Subjects {
    all: Vec<Weak<dyn Subject>>,
    /// How long the list may become before those are taken out that no longer exist.
    full_at: usize,
}

impl Subjects {
    const NONE: Self = Self {
        all: Vec::new(),
        full_at: 0,
    };

    fn push(&mut self, subject: Weak<dyn Subject>) {
        if self.all.len() >= self.full_at {
            self.all.retain(|subject| subject.strong_count() > 0);
            self.full_at = 8.max(2 * self.all.len());
        }
        if memory::refusable(|| self.all.try_reserve(1)).is_ok() {
            self.all.push(subject);
        }
    }
}

/// The name, for the system.
const FILE_NAME: &CStr = {
    const BYTES: &[u8] = b"stillpoint-stats\0";
    assert!(BYTES.len() == NAME.len() + 1);
    match CStr::from_bytes_with_nul(BYTES) {
        Ok(name) => name,
        Err(_) => unreachable!(),
    }
};

/// The words of the page.
fn page() -> Option<&'static [AtomicU64]> {
    // Acquire, pairs with `make`: the head is complete.
    let page = PAGE.load(Ordering::Acquire);
    // SAFETY: null, or the start of so many words, which are mapped for ever.
    (!page.is_null()).then(|| unsafe { std::slice::from_raw_parts(page, WORDS) })
}

/// Returns whether there is a page.
#[must_use]
pub fn is_published() -> bool {
    page().is_some()
}

/// From now on `subject` is in the page, if there is one, or will be when there is. Makes the page if
/// the environment asks for it, once.
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
    // Dropped behind the lock: it may be the last reference.
    let _kept = {
        let mut subjects = lock(&SUBJECTS);
        subjects.push(Weak::clone(&subject));
        let kept = is_published().then(|| subject.upgrade()).flatten();
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
/// If the system refuses the file or its mapping. The next call tries again.
pub fn publish() -> Result<(), Refused> {
    // Dropped behind the lock: they may be the last references.
    let mut kept = Vec::new();
    let mut subjects = lock(&SUBJECTS);
    if is_published() {
        return Ok(());
    }
    fork::ensure_handler();
    let needed = subjects.all.len();
    memory::refusable(|| kept.try_reserve(needed)).map_err(|_| Refused {
        call: "malloc",
        errno: libc::ENOMEM,
    })?;
    make()?;
    subjects.all.retain(|subject| {
        let subject = subject.upgrade();
        let exists = subject.is_some();
        kept.extend(subject);
        exists
    });
    kept.iter().for_each(|subject| subject.publish());
    drop(subjects);
    drop(kept);
    Ok(())
}

/// Makes the page and shows it. Under the lock of the subjects.
fn make() -> Result<(), Refused> {
    let file = new_file()?;
    let mapped = map(file.0)?;
    // SAFETY: so many words, which are never unmapped once they are shown; no other thread has them.
    let words = unsafe { std::slice::from_raw_parts(mapped, WORDS) };
    let of_head = [
        (head::BYTES, BYTES as u64),
        (head::END, BLOCKS_AT as u64),
        (head::VERSION, VERSION),
    ];
    for (at, value) in of_head {
        words[at].store(value, Ordering::Relaxed);
    }
    begin(words);
    if let Err(refused) = seal(file.0) {
        // SAFETY: ours, and not shown.
        unsafe { libc::munmap(mapped.cast_mut().cast(), BYTES) };
        return Err(refused);
    }
    FILE.store(file.keep(), Ordering::Relaxed);
    // Release, pairs with `page`: a thread that finds it finds the head complete.
    PAGE.store(mapped.cast_mut(), Ordering::Release);
    Ok(())
}

/// Writes whose page it is, and that it is one.
fn begin(words: &[AtomicU64]) {
    words[head::PID].store(std::process::id().into(), Ordering::Relaxed);
    words[head::MADE].store(clock::now(), Ordering::Relaxed);
    // Release, pairs with `read` of the reader, in its process: it finds the head complete.
    words[head::MAGIC].store(MAGIC, Ordering::Release);
}

/// A descriptor that is closed unless it is kept.
struct Descriptor(libc::c_int);

impl Descriptor {
    fn keep(self) -> libc::c_int {
        let number = self.0;
        std::mem::forget(self);
        number
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        // SAFETY: ours.
        unsafe { libc::close(self.0) };
    }
}

fn refused(call: &'static str) -> Refused {
    Refused {
        call,
        errno: io::Error::last_os_error().raw_os_error().unwrap_or(0),
    }
}

/// A memory file of the page's length. System calls only: it is also called in the child of a fork.
fn new_file() -> Result<Descriptor, Refused> {
    let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
    // SAFETY: a name that ends, and flags.
    let create = |flags| unsafe { libc::memfd_create(FILE_NAME.as_ptr(), flags) };
    // Kernels before 6.3 do not know that a file is no program.
    let file = match create(flags | libc::MFD_NOEXEC_SEAL) {
        -1 => create(flags),
        file => file,
    };
    if file < 0 {
        return Err(refused("memfd_create"));
    }
    let file = Descriptor(file);
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // To grow a file past this limit raises a signal that ends the process.
    // SAFETY: writes to `limit`.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    if limit.rlim_cur < BYTES as libc::rlim_t {
        return Err(Refused {
            call: "ftruncate",
            errno: libc::EFBIG,
        });
    }
    // SAFETY: our own file.
    match unsafe { libc::ftruncate(file.0, BYTES as libc::off_t) } {
        0 => Ok(file),
        _ => Err(refused("ftruncate")),
    }
}

/// Maps the file, to be written.
fn map(file: libc::c_int) -> Result<*const AtomicU64, Refused> {
    let access = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: a new mapping wherever the kernel likes.
    let mapped = unsafe { libc::mmap(ptr::null_mut(), BYTES, access, libc::MAP_SHARED, file, 0) };
    if mapped == libc::MAP_FAILED {
        return Err(refused("mmap"));
    }
    // Zero bits are the zero of every word, and the start is a multiple of the page size.
    Ok(mapped.cast_const().cast())
}

/// Seals the file, which is mapped: nothing changes its length, and, since Linux 5.1, no one else can
/// write to it.
fn seal(file: libc::c_int) -> Result<(), Refused> {
    // SAFETY: our own file.
    let add = |seals: libc::c_int| unsafe { libc::fcntl(file, libc::F_ADD_SEALS, seals) };
    if add(libc::F_SEAL_SHRINK | libc::F_SEAL_GROW) != 0 {
        return Err(refused("fcntl(F_ADD_SEALS)"));
    }
    // Older kernels do not know the first, which is not needed to read safely.
    let _ = add(libc::F_SEAL_FUTURE_WRITE);
    let _ = add(libc::F_SEAL_SEAL);
    Ok(())
}

/// The block of a thing in the page, until it is dropped.
#[derive(Debug)]
pub struct Block(Words);

impl Block {
    /// A block of zeros for a thing; `None` without a page, or if it is full, which is counted in
    /// its head. `name` runs no user code.
    pub fn new(kind: &'static Kind, number: u64, name: impl Display) -> Option<Self> {
        let page = page()?;
        let name: [u64; slot::NAME_WORDS] = shown(name);
        let _changes = lock(&CHANGES);
        let block = find_kind(page, kind).and_then(|at| find_slot(page, at, kind));
        let Some(block) = block else {
            page[head::REFUSED].fetch_add(1, Ordering::Relaxed);
            return None;
        };
        change(block.slot, || {
            block.words.iter().for_each(|word| store(word, 0));
            store(&block.slot[slot::NUMBER], number);
            store(&block.slot[slot::MADE], clock::now());
            store_all(&block.slot[slot::NAME..], &name);
            store(&block.slot[slot::STATE], slot::USED);
        });
        Some(Self(block))
    }

    /// Its words, which are another thing's after this has been dropped.
    #[must_use]
    pub fn words(&self) -> Words {
        self.0
    }
}

impl Block {
    /// The thing has ended, and is not shown any more; its words are still its own.
    pub fn end(&self) {
        self.set_state(slot::ENDED);
    }

    fn set_state(&self, state: u64) {
        let slot = self.0.slot;
        let _changes = lock(&CHANGES);
        change(slot, || store(&slot[slot::STATE], state));
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        self.set_state(slot::FREE);
    }
}

/// Writes a text into `words`, from the first on. Takes a lock for a moment; allocates nothing.
pub(super) fn set_text(words: Words, text: impl Display) {
    let text: [u64; TEXT_WORDS] = shown(text);
    let _changes = lock(&CHANGES);
    change(words.slot, || store_all(words.words, &text));
}

/// What is displayed, as far as it fits.
fn shown<const N: usize>(text: impl Display) -> [u64; N] {
    struct Cut {
        bytes: [u8; 256],
        len: usize,
    }
    impl Write for Cut {
        fn write_str(&mut self, text: &str) -> std::fmt::Result {
            let mut fits = text.len().min(self.bytes.len() - self.len);
            while !text.is_char_boundary(fits) {
                fits -= 1;
            }
            self.bytes[self.len..][..fits].copy_from_slice(&text.as_bytes()[..fits]);
            self.len += fits;
            if fits < text.len() {
                return Err(std::fmt::Error);
            }
            Ok(())
        }
    }
    let mut cut = Cut {
        bytes: [0; 256],
        len: 0,
    };
    // What did not fit is left out.
    let _ = write!(cut, "{text}");
    text_words(std::str::from_utf8(&cut.bytes[..cut.len]).unwrap_or_default())
}

fn store(word: &AtomicU64, value: u64) {
    word.store(value, Ordering::Relaxed);
}

fn store_all(words: &[AtomicU64], values: &[u64]) {
    for (word, &value) in words.iter().zip(values) {
        store(word, value);
    }
}

/// The number in a word of the head or of a slot, which only grows or is ours.
fn number(word: &AtomicU64) -> usize {
    word.load(Ordering::Relaxed) as usize
}

/// Changes what a slot's sequence count guards. Under the lock of the changes.
fn change(slot: &[AtomicU64], how: impl FnOnce()) {
    let sequence = &slot[slot::SEQUENCE];
    let before = sequence.load(Ordering::Relaxed);
    sequence.store(before + 1, Ordering::Relaxed);
    // Release, pairs with `thing` of the reader, in its process: what it reads of the change, it reads
    // behind an odd count.
    fence(Ordering::Release);
    how();
    // Release, pairs with `thing` of the reader: behind an even count it reads the whole change.
    sequence.store(before + 2, Ordering::Release);
}

/// The number of the kind, which is described if it was not. Under the lock of the changes.
fn find_kind(page: &'static [AtomicU64], of: &'static Kind) -> Option<usize> {
    let name: [u64; kind::NAME_WORDS] = text_words(of.name);
    let kinds = number(&page[head::KINDS]);
    let described = |at: usize| &page[KINDS_AT + at * kind::WORDS..][..kind::WORDS];
    let is_it = |&at: &usize| {
        let words = described(at)[kind::NAME..].iter().zip(name);
        words
            .into_iter()
            .all(|(word, name)| word.load(Ordering::Relaxed) == name)
    };
    if let Some(at) = (0..kinds).find(is_it) {
        return Some(at);
    }
    let first = number(&page[head::FIELDS]);
    let fits = kinds < MOST_KINDS
        && first + of.fields.len() <= MOST_FIELDS
        && of.block_words() <= MOST_BLOCK_WORDS;
    if !fits {
        return None;
    }
    for (at, described) in of.fields.iter().enumerate() {
        let words = &page[FIELDS_AT + (first + at) * field::WORDS..];
        store_all(
            &words[field::NAME..],
            &text_words::<{ field::NAME_WORDS }>(described.name),
        );
        store(&words[field::KIND], described.kind as u64);
        store(&words[field::UNIT], described.unit as u64);
        store(&words[field::AT], of.at(at) as u64);
        store(&words[field::LEN], described.words as u64);
    }
    let words = described(kinds);
    store_all(&words[kind::NAME..], &name);
    store(&words[kind::BLOCK], of.block_words() as u64);
    store(&words[kind::FIRST], first as u64);
    store(&words[kind::FIELDS], of.fields.len() as u64);
    // Release, pairs with `kinds` of the reader, in its process: what is counted is described.
    page[head::FIELDS].store((first + of.fields.len()) as u64, Ordering::Release);
    // Release, pairs with `kinds` of the reader: the same.
    page[head::KINDS].store(kinds as u64 + 1, Ordering::Release);
    Some(kinds)
}

/// A slot and a block that are free, or new. Under the lock of the changes.
fn find_slot(page: &'static [AtomicU64], of: usize, kind: &'static Kind) -> Option<Words> {
    let slot = |at: usize| &page[SLOTS_AT + at * slot::WORDS..][..slot::WORDS];
    let len = kind.block_words();
    let block = |slot: &'static [AtomicU64]| Words {
        words: &page[number(&slot[slot::BLOCK])..][..len],
        slot,
    };
    let slots = number(&page[head::SLOTS]);
    let is_free = |slot: &&[AtomicU64]| {
        number(&slot[slot::KIND]) == of && number(&slot[slot::STATE]) == slot::FREE as usize
    };
    if let Some(slot) = (0..slots).map(slot).find(is_free) {
        return Some(block(slot));
    }
    let end = number(&page[head::END]);
    if slots == MOST_SLOTS || end + len > WORDS {
        return None;
    }
    let new = slot(slots);
    store(&new[slot::KIND], of as u64);
    store(&new[slot::BLOCK], end as u64);
    store(&page[head::END], (end + len) as u64);
    // Release, pairs with `read` of the reader, in its process: it finds the slot's kind and block.
    page[head::SLOTS].store(slots as u64 + 1, Ordering::Release);
    Some(block(new))
}

/// Gives the child of a fork a page of its own; see the head of this file.
///
/// # Safety
///
/// As for [`ForkReset::reset_in_child`](crate::fork::ForkReset::reset_in_child), and nothing of this
/// process has been written to the page since the fork.
pub(crate) unsafe fn reset_in_child() {
    // SAFETY: the caller's promise: no other thread; user code runs under neither lock. What subjects
    // were in the list is forgotten, as a lost thread may have been changing it.
    unsafe {
        CHANGES.reinit(());
        SUBJECTS.reinit(Subjects::NONE);
    }
    let Some(old) = page() else { return };
    let file = FILE.load(Ordering::Relaxed);
    let replaced = new_file().and_then(|new| replace(old, &new).map(|()| new));
    match replaced {
        Ok(new) => {
            // The same number, so that the program finds no other descriptor taken.
            // SAFETY: both are ours.
            if file < 0 || unsafe { libc::dup3(new.0, file, libc::O_CLOEXEC) } < 0 {
                FILE.store(new.keep(), Ordering::Relaxed);
            }
        }
        Err(_) => {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            let at = old.as_ptr().cast_mut().cast();
            // SAFETY: our own mapping is replaced as a whole; pointers into it point to zeros. If
            // even this fails, the child counts in the parent's page, which misleads its readers and
            // no more.
            unsafe { libc::mmap(at, BYTES, access, flags, -1, 0) };
            if file >= 0 {
                // SAFETY: ours, and closed once.
                unsafe { libc::close(file) };
                FILE.store(-1, Ordering::Relaxed);
            }
        }
    }
}

/// Copies `old` to the file `new` and moves that over it.
fn replace(old: &[AtomicU64], new: &Descriptor) -> Result<(), Refused> {
    let mapped = map(new.0)?;
    // SAFETY: so many words, which no other thread has.
    let words = unsafe { std::slice::from_raw_parts(mapped, WORDS) };
    let end = number(&old[head::END]).min(WORDS);
    // The parent goes on writing: each word is one of a moment, as a reader would see it.
    for (word, old) in words[1..end].iter().zip(&old[1..end]) {
        let value = old.load(Ordering::Relaxed);
        // Holes stay holes.
        if value != 0 {
            store(word, value);
        }
    }
    // A slot that another thread was changing, here or since in the parent. If it was a text that was
    // changed, the thing is here: it is reported again.
    let slots = number(&words[head::SLOTS]).min(MOST_SLOTS);
    for slot in words[SLOTS_AT..][..slots * slot::WORDS].chunks_exact(slot::WORDS) {
        let sequence = number(&slot[slot::SEQUENCE]) as u64;
        store(&slot[slot::SEQUENCE], sequence.next_multiple_of(2));
    }
    begin(words);
    let moved = seal(new.0).and_then(|()| {
        // SAFETY: over our own mapping, as a whole, with one of the same length and contents.
        let moved = unsafe {
            libc::mremap(
                mapped.cast_mut().cast(),
                BYTES,
                BYTES,
                libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
                old.as_ptr().cast_mut().cast::<libc::c_void>(),
            )
        };
        (moved != libc::MAP_FAILED)
            .then_some(())
            .ok_or_else(|| refused("mremap"))
    });
    if moved.is_err() {
        // SAFETY: ours, and in no use.
        unsafe { libc::munmap(mapped.cast_mut().cast(), BYTES) };
    }
    moved
}
