//! Which lines threads share, and what they write there. A line is *shared* if more than one thread
//! has touched it and any has written it.

use std::collections::HashMap;

use super::accesses::Kind;

#[derive(Default)]
struct Line {
    /// The threads that have touched it, a bit each.
    touched: u64,
    written: bool,
    read_modify_writes: u64,
    stores: u64,
}

impl Line {
    fn is_shared(&self) -> bool {
        self.written && self.touched.count_ones() > 1
    }
}

/// All lines, and how often the operation ran.
#[derive(Default)]
pub struct Lines {
    lines: HashMap<u64, Line>,
    runs: u64,
}

/// What was done to shared lines.
#[derive(Debug, Default, PartialEq)]
pub struct Totals {
    /// How often the operation ran.
    pub runs: u64,
    /// Atomic read-modify-writes.
    pub read_modify_writes: u64,
    /// Plain stores.
    pub stores: u64,
}

impl Lines {
    /// Notes that an instruction of `thread` accessed `line`. Only what is `counted` appears in the
    /// totals; the rest says which lines are shared.
    pub fn note(&mut self, thread: usize, line: u64, kind: Kind, counted: bool) {
        let line = self.lines.entry(line).or_default();
        line.touched |= 1 << thread;
        line.written |= kind != Kind::Load;
        if counted {
            line.read_modify_writes += u64::from(kind == Kind::ReadModifyWrite);
            line.stores += u64::from(kind == Kind::Store);
        }
    }

    /// Notes a run that is counted.
    pub fn note_run(&mut self) {
        self.runs += 1;
    }

    /// Returns what was done to the lines that are shared by now.
    pub fn totals(&self) -> Totals {
        let shared = || self.lines.values().filter(|line| line.is_shared());
        Totals {
            runs: self.runs,
            read_modify_writes: shared().map(|line| line.read_modify_writes).sum(),
            stores: shared().map(|line| line.stores).sum(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn totals(accesses: &[(usize, u64, Kind)]) -> Totals {
        let mut lines = Lines::default();
        for &(thread, line, kind) in accesses {
            lines.note(thread, line, kind, true);
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
    fn all_writes_of_a_shared_line_count() {
        let totals = totals(&[
            (0, 1, Kind::ReadModifyWrite),
            (0, 1, Kind::Store),
            (1, 1, Kind::Load),
            (1, 1, Kind::ReadModifyWrite),
        ]);
        assert_eq!((totals.read_modify_writes, totals.stores), (2, 1));
    }
}
