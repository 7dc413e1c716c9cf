//! Which lines threads share, and how often they go from one processor to another, if each thread
//! has a processor of its own.
//!
//! The threads run an operation in turn, and each line is in a cache as it would be then: one
//! processor may write it, or any number read it (MESI). An access that the processor's cache
//! cannot serve because another one's has the line is a *transfer*. A line is *shared* if more than
//! one thread has touched it and any has written it.

use std::collections::HashMap;

use super::accesses::{Event, Kind};

/// A set of threads.
type Threads = u64;

/// Threads whose caches can be told apart.
pub const MOST_THREADS: usize = Threads::BITS as usize;

#[derive(Default)]
struct Line {
    touched: Threads,
    written: bool,
    /// Whose caches have it. Who alone has it may write it.
    holders: Threads,
    counts: Counts,
}

#[derive(Default, Clone, Copy, Debug, PartialEq)]
struct Counts {
    read_modify_writes: u64,
    stores: u64,
    transfers: u64,
}

impl Line {
    fn access(&mut self, thread: usize, kind: Kind, counted: bool) {
        let me = 1 << thread;
        let served = match kind {
            Kind::Load => self.holders & me != 0,
            Kind::Store | Kind::ReadModifyWrite => self.holders == me,
        };
        let transfer = !served && self.holders != 0;
        self.touched |= me;
        if kind == Kind::Load {
            self.holders |= me;
        } else {
            self.written = true;
            self.holders = me;
        }
        if counted {
            self.counts.read_modify_writes += u64::from(kind == Kind::ReadModifyWrite);
            self.counts.stores += u64::from(kind == Kind::Store);
            self.counts.transfers += u64::from(transfer);
        }
    }

    fn is_shared(&self) -> bool {
        self.written && self.touched.count_ones() > 1
    }
}

/// All lines, and what the threads have done.
#[derive(Default)]
pub struct Lines {
    lines: HashMap<u64, Line>,
    runs: u64,
    membarriers: u64,
    system_calls: u64,
    instructions: u64,
}

/// What was done to shared lines, and otherwise.
#[derive(Debug, Default, PartialEq)]
pub struct Totals {
    /// How often the operation ran.
    pub runs: u64,
    pub read_modify_writes: u64,
    pub stores: u64,
    pub membarriers: u64,
    pub system_calls: u64,
    pub instructions: u64,
    /// The transfers of each line that had any, the most first.
    pub transfers: Vec<u64>,
}

impl Lines {
    /// An instruction of `thread` did this. Only what is `counted` appears in the totals; the rest
    /// brings lines to where they are.
    pub fn note(&mut self, thread: usize, event: Event, counted: bool) {
        match event {
            Event::Access { line, kind } => {
                self.lines
                    .entry(line)
                    .or_default()
                    .access(thread, kind, counted);
            }
            Event::Membarrier => self.membarriers += u64::from(counted),
            Event::OtherSystemCall => self.system_calls += u64::from(counted),
        }
    }

    /// A run that is counted took so many instructions.
    pub fn note_run(&mut self, instructions: usize) {
        self.runs += 1;
        self.instructions += instructions as u64;
    }

    pub fn totals(&self) -> Totals {
        let shared = || self.lines.values().filter(|line| line.is_shared());
        let mut transfers: Vec<_> = shared()
            .map(|line| line.counts.transfers)
            .filter(|&transfers| transfers > 0)
            .collect();
        transfers.sort_unstable_by_key(|&transfers| std::cmp::Reverse(transfers));
        Totals {
            runs: self.runs,
            read_modify_writes: shared().map(|line| line.counts.read_modify_writes).sum(),
            stores: shared().map(|line| line.counts.stores).sum(),
            membarriers: self.membarriers,
            system_calls: self.system_calls,
            instructions: self.instructions,
            transfers,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(accesses: &[(usize, u64, Kind)]) -> Totals {
        let mut lines = Lines::default();
        for &(thread, line, kind) in accesses {
            lines.note(thread, Event::Access { line, kind }, true);
        }
        lines.totals()
    }

    #[test]
    fn a_line_of_one_thread_is_not_shared() {
        let totals = totals(&[
            (0, 1, Kind::Store),
            (0, 1, Kind::ReadModifyWrite),
            (1, 2, Kind::Store),
        ]);
        assert_eq!(totals, Totals::default());
    }

    #[test]
    fn a_line_that_is_only_read_is_not_shared() {
        assert_eq!(
            totals(&[(0, 1, Kind::Load), (1, 1, Kind::Load)]),
            Totals::default()
        );
    }

    #[test]
    fn what_another_has_is_transferred_once() {
        use Kind::{Load, ReadModifyWrite, Store};
        let totals = totals(&[
            (0, 1, ReadModifyWrite), // It comes from memory.
            (0, 1, ReadModifyWrite),
            (1, 1, Load), // From 0.
            (1, 1, Load),
            (0, 1, Load),
            (1, 1, Store), // 0 has a copy.
            (1, 1, ReadModifyWrite),
            (0, 1, Store), // From 1.
        ]);
        assert_eq!(
            totals,
            Totals {
                read_modify_writes: 3,
                stores: 2,
                transfers: vec![3],
                ..Totals::default()
            }
        );
    }
}
