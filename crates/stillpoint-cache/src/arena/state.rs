//! What an arena's lock guards: which runs have free slots, and which regions free pages.
//!
//! A class has lists of its runs by how full they are. A slot is taken from the fullest ones, so that
//! the others become empty. How many runs a class would have, if its values lay side by side, is known
//! at each moment; what it has beyond that is *excess*. Once excess is a sixteenth of all runs, the
//! arena is scattered: then the emptiest runs, as many as are in excess, are to leave, and their values
//! fit into the others.

use super::{
    Statistics,
    class::{CLASSES, PAGE, RUN, class},
    region::{Pages, RUN_PAGES, Region, Run},
};
use std::ptr::{self, NonNull};
use stillpoint_platform::sync::Ordering;

/// Lists of runs by how full they are.
const PARTS: usize = 8;
/// The runs that are to leave: no slot is taken there.
const LEAVING: u8 = PARTS as u8;
/// Runs without a free slot are in no list.
const FULL: u8 = LEAVING + 1;
/// Empty ones that no class has.
const SPARE: u8 = FULL + 1;

/// Regions that are looked at for pages, before another is made.
const LOOKS: usize = 16;

/// Empty runs that are kept: this part of those in use.
const KEPT: usize = 256;

/// The arena is scattered with more in excess than this part of all runs, and [`FEW`].
const SCATTERED: usize = 16;
const FEW: usize = 4;

/// The same while memory is [wanted](State::is_wanted).
const WANTED: usize = 256;

/// The runs of one class.
#[derive(Debug, Clone, Copy)]
struct Runs {
    lists: [*mut Run; PARTS + 1],
    count: usize,
    live: usize,
}

/// All that the lock guards.
#[derive(Debug)]
pub struct State {
    classes: [Runs; CLASSES],
    /// The regions that have free pages.
    open: *mut Region,
    spare: *mut Run,
    spares: usize,
    /// Number of runs of all classes.
    runs: usize,
    excess: usize,
    /// Runs that were to leave, and are empty.
    left: u64,
    /// Whether values were asked to be moved, since they were not scattered last.
    pub is_asked: bool,
    /// Whether the memory is wanted elsewhere: then little is kept, and little in excess is worth a
    /// move.
    pub is_wanted: bool,
    pub counts: Statistics,
}

// SAFETY: it owns the regions; what it points to is used under the lock alone.
unsafe impl Send for State {}

/// Pages whose memory is to go back to the system.
#[derive(Debug, Default)]
pub struct Gone(pub [Option<Pages>; 2]);

impl Runs {
    fn excess(&self, number: usize) -> usize {
        self.count - self.live.div_ceil(class(number).slots)
    }
}

impl State {
    pub fn new() -> Self {
        let none = Runs {
            lists: [ptr::null_mut(); PARTS + 1],
            count: 0,
            live: 0,
        };
        Self {
            classes: [none; CLASSES],
            open: ptr::null_mut(),
            spare: ptr::null_mut(),
            spares: 0,
            runs: 0,
            excess: 0,
            left: 0,
            is_asked: false,
            is_wanted: false,
            counts: Statistics::default(),
        }
    }

    /// Returns whether values are worth moving.
    pub fn is_scattered(&self) -> bool {
        let part = if self.is_wanted { WANTED } else { SCATTERED };
        self.excess > FEW + self.runs / part
    }

    /// Returns how many empty runs are kept.
    fn kept(&self) -> usize {
        if self.is_wanted { 0 } else { self.runs / KEPT }
    }

    /// Changes a class, and what of it is in excess.
    fn change(&mut self, number: usize, work: impl FnOnce(&mut Runs)) {
        let runs = &mut self.classes[number];
        self.excess -= runs.excess(number);
        work(runs);
        self.excess += runs.excess(number);
    }

    /// Returns the head of the list that has a run, or will have it.
    fn head(&mut self, run: &Run) -> Option<&mut *mut Run> {
        match run.list {
            FULL => None,
            SPARE => Some(&mut self.spare),
            list => Some(&mut self.classes[usize::from(run.class)].lists[usize::from(list)]),
        }
    }

    /// Puts a run into the list that it says.
    fn link(&mut self, run: NonNull<Run>) {
        // SAFETY: of a region of this state, and the lock is held; neighbours are other runs.
        unsafe {
            let this = &mut *run.as_ptr();
            let Some(head) = self.head(this) else {
                return;
            };
            (this.before, this.after) = (ptr::null_mut(), *head);
            *head = run.as_ptr();
            if let Some(after) = NonNull::new(this.after) {
                (*after.as_ptr()).before = run.as_ptr();
            }
        }
    }

    fn unlink(&mut self, run: NonNull<Run>) {
        // SAFETY: as for `link`.
        unsafe {
            let (before, after) = ((*run.as_ptr()).before, (*run.as_ptr()).after);
            let Some(head) = self.head(&*run.as_ptr()) else {
                return;
            };
            match NonNull::new(before) {
                Some(before) => (*before.as_ptr()).after = after,
                None => *head = after,
            }
            if let Some(after) = NonNull::new(after) {
                (*after.as_ptr()).before = before;
            }
        }
    }

    fn relink(&mut self, run: NonNull<Run>, list: u8) {
        // SAFETY: as for `link`.
        unsafe {
            if (*run.as_ptr()).list != list {
                self.unlink(run);
                (*run.as_ptr()).list = list;
                self.link(run);
            }
        }
    }

    /// Returns the list for a run that stays, by how full it is.
    fn list_of(run: NonNull<Run>) -> u8 {
        // SAFETY: as for `link`.
        let run = unsafe { run.as_ref() };
        let (live, slots) = (usize::from(run.live), run.slots());
        if live == slots {
            FULL
        } else {
            (live * PARTS / slots) as u8
        }
    }

    /// Takes a slot. `None` if no region has the pages for another run.
    pub fn take_slot(&mut self, number: usize) -> Option<NonNull<u8>> {
        let of_class = self.classes[number].lists[..PARTS].iter().rev();
        let fullest = of_class.copied().find_map(NonNull::new);
        let (run, is_new) = match fullest {
            Some(run) => (run, false),
            None => (self.new_run(number)?, true),
        };
        let start = run_start(run);
        // SAFETY: it has a free slot, as its list says.
        let slot = unsafe { Run::take(run, start) };
        self.change(number, |runs| {
            runs.count += usize::from(is_new);
            runs.live += 1;
        });
        self.relink(run, Self::list_of(run));
        self.note_taken(class(number).size);
        Some(slot)
    }

    /// Returns an empty run, in the first list of its class.
    fn new_run(&mut self, number: usize) -> Option<NonNull<Run>> {
        let run = match NonNull::new(self.spare) {
            Some(run) => {
                self.unlink(run);
                self.spares -= 1;
                run
            }
            None => {
                let start = self.find_pages(RUN_PAGES, RUN_PAGES)?;
                // SAFETY: its region stays while it has the pages.
                unsafe { Region::run(start) }
            }
        };
        self.runs += 1;
        // SAFETY: of a region of this state, and in no list.
        unsafe { (*run.as_ptr()).begin(number, 0) };
        self.link(run);
        Some(run)
    }

    /// Takes pages for one value.
    pub fn take_pages(&mut self, count: usize) -> Option<NonNull<u8>> {
        let start = self.find_pages(count, 1)?;
        self.note_taken(count * PAGE);
        Some(start)
    }

    fn find_pages(&mut self, count: usize, align: usize) -> Option<NonNull<u8>> {
        let mut next = self.open;
        for _ in 0..LOOKS {
            let region = NonNull::new(next)?;
            // SAFETY: listed regions stay, and the lock is held.
            let (first, is_full) = unsafe {
                let table = &mut (*region.as_ptr()).table;
                next = table.after;
                (table.take(count, align), !table.has_free_pages())
            };
            if let Some(first) = first {
                if is_full {
                    self.close(region);
                }
                self.counts.held_bytes += (count * PAGE) as u64;
                let pages = Pages {
                    region,
                    first,
                    count,
                };
                return Some(pages.start());
            }
        }
        None
    }

    pub fn note_taken(&mut self, bytes: usize) {
        self.counts.values += 1;
        self.counts.bytes += bytes as u64;
    }

    pub fn note_freed(&mut self, bytes: usize) {
        self.counts.values -= 1;
        self.counts.bytes -= bytes as u64;
    }

    /// Lists a region that has free pages.
    pub fn open(&mut self, region: NonNull<Region>) {
        // SAFETY: of this state, and the lock is held; its neighbour is another one.
        unsafe {
            let table = &mut (*region.as_ptr()).table;
            if table.is_listed {
                return;
            }
            table.is_listed = true;
            (table.before, table.after) = (ptr::null_mut(), self.open);
            if let Some(after) = NonNull::new(table.after) {
                (*after.as_ptr()).table.before = region.as_ptr();
            }
        }
        self.open = region.as_ptr();
    }

    fn close(&mut self, region: NonNull<Region>) {
        // SAFETY: as for `open`.
        unsafe {
            let table = &mut (*region.as_ptr()).table;
            let (before, after) = (table.before, table.after);
            if !std::mem::replace(&mut table.is_listed, false) {
                return;
            }
            match NonNull::new(before) {
                Some(before) => (*before.as_ptr()).table.after = after,
                None => self.open = after,
            }
            if let Some(after) = NonNull::new(after) {
                (*after.as_ptr()).table.before = before;
            }
        }
    }

    /// Marks a slot free. Returns the pages that no longer have a slot in use.
    ///
    /// # Safety
    ///
    /// It was [taken](Self::take_slot) of this state, and is not used any more.
    pub unsafe fn put_slot(&mut self, slot: NonNull<u8>) -> Gone {
        // SAFETY: the caller's promise.
        let (run, number, live) = unsafe {
            let run = Region::run(slot);
            Run::put(run, slot);
            (run, usize::from(run.as_ref().class), run.as_ref().live)
        };
        self.note_freed(class(number).size);
        self.change(number, |runs| {
            runs.live -= 1;
            runs.count -= usize::from(live == 0);
        });
        // SAFETY: of a region of this state.
        let is_leaving = unsafe { run.as_ref() }.list == LEAVING;
        if live > 0 {
            if !is_leaving {
                self.relink(run, Self::list_of(run));
            }
            return Gone::default();
        }
        if is_leaving {
            self.left += 1;
            // SAFETY: the same.
            unsafe { Region::leaving(run_start(run)) }.store(false, Ordering::Relaxed);
        }
        self.runs -= 1;
        self.unlink(run);
        let kept = self.kept();
        if self.spares < kept {
            self.spares += 1;
            // SAFETY: the same.
            unsafe { (*run.as_ptr()).list = SPARE };
            self.link(run);
            return Gone::default();
        }
        let other = NonNull::new(self.spare).filter(|_| self.spares > kept);
        if let Some(other) = other {
            self.unlink(other);
            self.spares -= 1;
        }
        let pages = |run| Pages::at(run_start(run), RUN_PAGES);
        Gone([Some(pages(run)), other.map(pages)])
    }

    /// Marks pages free whose memory has gone back to the system. Returns their region if that has to go back
    /// as well.
    ///
    /// # Safety
    ///
    /// They were taken of this state, and are not used any more.
    pub unsafe fn note_released(&mut self, pages: Pages) -> Option<NonNull<Region>> {
        self.counts.held_bytes -= pages.bytes() as u64;
        // SAFETY: the caller's promise.
        unsafe { pages.give_up() };
        self.open(pages.region);
        self.is_gone(pages.region)
    }

    /// Takes a region out of the list that has nothing.
    pub fn is_gone(&mut self, region: NonNull<Region>) -> Option<NonNull<Region>> {
        // SAFETY: of this state, and the lock is held.
        let is_empty = unsafe { (*region.as_ptr()).table.is_empty() };
        is_empty.then(|| {
            self.close(region);
            region
        })
    }

    /// Chooses the runs that are to leave. Returns how many; and how many have left so far, of all
    /// that were ever chosen.
    pub fn choose(&mut self) -> (usize, u64) {
        let mut chosen = 0;
        for number in 0..CLASSES {
            while let Some(run) = NonNull::new(self.classes[number].lists[PARTS]) {
                self.set_leaving(run, false);
            }
            let mut left = self.classes[number].excess(number);
            for list in 0..PARTS {
                while left > 0
                    && let Some(run) = NonNull::new(self.classes[number].lists[list])
                {
                    self.set_leaving(run, true);
                    (left, chosen) = (left - 1, chosen + 1);
                }
            }
        }
        (chosen, self.left)
    }

    /// Marks the run that contains a slot as one whose values are moved away.
    #[cfg(all(test, stillpoint_loom, not(stillpoint_shuttle)))]
    pub fn set_leaving_at(&mut self, slot: NonNull<u8>) {
        // SAFETY: the test has a value there.
        self.set_leaving(unsafe { Region::run(slot) }, true);
    }

    fn set_leaving(&mut self, run: NonNull<Run>, leaves: bool) {
        let list = if leaves { LEAVING } else { Self::list_of(run) };
        self.relink(run, list);
        // SAFETY: of a region of this state.
        unsafe { Region::leaving(run_start(run)) }.store(leaves, Ordering::Relaxed);
    }
}

/// Returns where the slots of a run are.
fn run_start(run: NonNull<Run>) -> NonNull<u8> {
    // SAFETY: a run is in the head of its region, and has the pages of its number.
    unsafe {
        let region = Region::of(run.cast());
        region.cast::<u8>().add(Region::number_of(run) * RUN)
    }
}
