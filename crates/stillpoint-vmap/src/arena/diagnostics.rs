//! What an address is, and a list of all areas.

use super::{Arena, check::Checked};
use crate::{
    node::Freed,
    span::{PAGE, PAGE_BITS},
};
use std::{fmt, panic::Location};
use stillpoint_platform::sync::Ordering;

/// What an address is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Description {
    /// No address of the arena.
    Outside,
    /// In a live area.
    Live {
        /// First address of the area.
        start: usize,
        /// Its length in bytes.
        len: usize,
        /// Offset of the address in the area, in bytes.
        offset: usize,
        /// Where it was allocated, if the arena records that.
        caller: Option<&'static Location<'static>>,
    },
    /// In the last page of a live area, behind the size that was asked for, or in the guard page
    /// that follows.
    PastEnd {
        /// First address of the area.
        start: usize,
        /// Its length in bytes.
        len: usize,
        /// Distance of the address from the area's end, in bytes.
        by: usize,
    },
    /// Freed, and waiting for readers or for a drain.
    Freed {
        /// First address of the freed range.
        start: usize,
        /// Its length in bytes, guard pages included.
        len: usize,
    },
    /// Free, or in a pool.
    Free,
    /// Never used so far.
    Unused,
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Outside => write!(f, "no address of this arena"),
            Self::Live {
                start,
                len,
                offset,
                caller,
            } => {
                write!(
                    f,
                    "byte {offset} of an area of {len} bytes starting at {start:#x}"
                )?;
                caller.map_or(Ok(()), |caller| write!(f, ", allocated at {caller}"))
            }
            Self::PastEnd { start, len, by } => {
                write!(
                    f,
                    "{by} bytes past the end of the area of {len} bytes starting at {start:#x}"
                )
            }
            Self::Freed { start, len } => write!(
                f,
                "freed and not given back yet: {len} bytes starting at {start:#x}"
            ),
            Self::Free => write!(f, "free"),
            Self::Unused => write!(f, "never used"),
        }
    }
}

/// A line of a [`Dump`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DumpedArea {
    /// Its first address.
    pub addr: usize,
    /// Its length: of a live area as it was asked for; of a freed one with its guard page.
    pub len: usize,
    /// True if it is live; else it was freed, and waits to be given back.
    pub live: bool,
    /// Where it was allocated, if the arena records that.
    pub caller: Option<&'static Location<'static>>,
}

/// The live areas and the freed ones that have not been given back, by address. Its `Display` is a
/// line for each, as in the kernel's `/proc/vmallocinfo`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dump {
    /// A line each.
    pub areas: Vec<DumpedArea>,
}

impl fmt::Display for Dump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for area in &self.areas {
            let end = area.addr + area.len.next_multiple_of(PAGE);
            write!(f, "{:#014x}-{end:#014x} {:>10}", area.addr, area.len)?;
            match area.live {
                true => write!(f, " pages={}", area.len.div_ceil(PAGE))?,
                false => write!(f, " unpurged")?,
            }
            match area.caller {
                Some(caller) => writeln!(f, " {caller}")?,
                None => writeln!(f)?,
            }
        }
        Ok(())
    }
}

impl Arena {
    /// Says what an address is. The kernel's `vmalloc_dump_obj()`.
    ///
    /// For messages: takes one lock per node and looks at all that has been freed. The answer may
    /// be out of date when it comes.
    #[must_use]
    pub fn describe(&self, addr: usize) -> Description {
        let state = &*self.state;
        if !self.addresses().contains(&addr) {
            return Description::Outside;
        }
        let guard = self.read_lock();
        let offset = addr - state.base();
        let behind = (state.settings.guard as usize) << PAGE_BITS;
        // In an area, or in the guard page of one.
        let around = state
            .map
            .find(offset)
            .or_else(|| state.map.find(offset.checked_sub(behind)?));
        if let Some(extent) = around {
            let (start, len) = (state.base() + extent.start, extent.len);
            return match offset.checked_sub(extent.end()) {
                Some(by) => Description::PastEnd { start, len, by },
                None => Description::Live {
                    start,
                    len,
                    offset: offset - extent.start,
                    caller: self.caller(extent.start),
                },
            };
        }
        drop(guard);
        let page = (offset >> PAGE_BITS) as u32;
        let freed = self
            .freed()
            .into_iter()
            .find(|freed| (freed.range.start..freed.range.end()).contains(&page));
        match freed {
            Some(freed) => {
                let area = self.dumped(freed);
                Description::Freed {
                    start: area.addr,
                    len: area.len,
                }
            }
            None if page >= state.frontier.load(Ordering::Relaxed) => Description::Unused,
            None => Description::Free,
        }
    }

    /// Lists all areas. Looks at the whole map, in one section, and takes one lock per node.
    #[must_use]
    pub fn dump(&self) -> Dump {
        let guard = self.read_lock();
        let base = self.state.base();
        let live = |found: Checked<'_>| DumpedArea {
            addr: found.addr(),
            len: found.len(),
            live: true,
            caller: self.caller(found.addr() - base),
        };
        let mut areas: Vec<_> = self.areas(&guard).map(live).collect();
        drop(guard);
        areas.extend(self.freed().into_iter().map(|freed| self.dumped(freed)));
        areas.sort_unstable_by_key(|area| area.addr);
        Dump { areas }
    }

    /// Returns the ranges that have been freed and not purged.
    fn freed(&self) -> Vec<Freed> {
        // In this order, so that nothing is missed between the nodes and the queue.
        let queue = self.state.drain.queue.lock();
        let mut freed: Vec<Freed> = queue
            .iter()
            .flat_map(|batch| &batch.ranges)
            .copied()
            .collect();
        self.state
            .shards
            .iter()
            .for_each(|shard| freed.extend_from_slice(shard.node.lock().freed()));
        freed
    }

    fn dumped(&self, freed: Freed) -> DumpedArea {
        let addr = self.state.base() + ((freed.range.start as usize) << PAGE_BITS);
        DumpedArea {
            addr,
            len: (freed.range.pages as usize) << PAGE_BITS,
            live: false,
            caller: None,
        }
    }

    fn caller(&self, start: usize) -> Option<&'static Location<'static>> {
        let caller = self.state.callers.as_ref()?[start >> PAGE_BITS].load(Ordering::Relaxed);
        // SAFETY: null, or what `alloc` has put there: a location of the program's text.
        unsafe { caller.as_ref() }
    }
}
