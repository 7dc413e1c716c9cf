//! The buffers that a thread's connections keep, and the order in which connections are ended when
//! there are too many.

use std::collections::BTreeMap;

/// Below this number of bytes, a logged-in client's connection is ended only after all others, as that frees
/// next to nothing. [`Buffers::first`] has the exception.
pub(crate) const LITTLE: usize = 4 << 10;

/// What a client has to do so that its connection keeps no buffers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    /// Finish its handshake, and log in.
    Enters,
    /// Read an answer, or finish a request.
    Known,
    /// Read the log. It loses lines if it does not, and so comes after them.
    Watches,
    /// What those of [`Rank::Known`] and [`Rank::Watches`] do, for fewer than [`LITTLE`] bytes.
    KeepsLittle,
}

/// The place of a connection in the order in which they are ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Due {
    pub(crate) rank: Rank,
    /// Number of the charge since which it keeps buffers.
    pub(crate) since: u64,
}

/// The buffers that a connection keeps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Kept {
    pub(crate) bytes: usize,
    /// `None` if its client is not the reason, as for those that TLS always has.
    pub(crate) due: Option<Due>,
}

impl Kept {
    /// Returns the bytes that are free if the connection is ended for others.
    pub(crate) fn endable(self) -> usize {
        self.due.map_or(0, |_| self.bytes)
    }
}

/// The buffers of all connections of a thread.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Buffers {
    /// Bytes of all.
    pub(crate) bytes: usize,
    /// Bytes of those that can be ended, for each [`Rank`].
    endable: [usize; 4],
    order: BTreeMap<Due, usize>,
}

impl Buffers {
    /// Counts a connection that kept `before` and keeps `after`.
    pub(crate) fn replace(&mut self, index: usize, before: Kept, after: Kept) {
        self.bytes = self.bytes + after.bytes - before.bytes;
        if let Some(due) = before.due {
            self.endable[due.rank as usize] -= before.bytes;
        }
        if let Some(due) = after.due {
            self.endable[due.rank as usize] += after.bytes;
        }
        if before.due != after.due {
            if let Some(due) = before.due {
                self.order.remove(&due);
            }
            self.order.extend(after.due.map(|due| (due, index)));
        }
    }

    /// Returns the bytes of all connections that can be ended.
    pub(crate) fn endable(&self) -> usize {
        self.endable.iter().sum()
    }

    /// Returns the connection that is ended first. While clients that have not logged in, or those that keep
    /// little, have more than `most` bytes in all, it is the oldest of these: they cost next to nothing, so
    /// however many come, they end no others. Otherwise it is the one that has kept buffers for longest;
    /// clients that only read the log come later, and those that keep little last.
    pub(crate) fn first(&self, most: usize) -> Option<usize> {
        let oldest = |rank| {
            let next = self.order.range(Due { rank, since: 0 }..).next();
            next.filter(|(due, _)| due.rank == rank)
        };
        let too_many = [Rank::Enters, Rank::KeepsLittle]
            .into_iter()
            .find(|&rank| self.endable[rank as usize] > most);
        let first = if let Some(rank) = too_many {
            oldest(rank)
        } else {
            [oldest(Rank::Enters), oldest(Rank::Known)]
                .into_iter()
                .flatten()
                .min_by_key(|(due, _)| due.since)
                .or_else(|| self.order.first_key_value())
        };
        first.map(|(_, &index)| index)
    }
}
