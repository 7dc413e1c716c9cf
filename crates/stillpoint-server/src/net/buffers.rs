//! The buffers that a thread's connections keep, and the order in which connections are ended when
//! there are too many.

use std::collections::BTreeMap;

/// A logged-in client's connection that keeps fewer bytes is ended only after all others: that would
/// free next to nothing.
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

    /// Returns the connection that is ended first: that of the client that has made it keep buffers for
    /// longest. While clients that have not logged in have more than `most_of_unknown` bytes, it is one
    /// of theirs, so that they do not end clients that have, however fast others take their place.
    pub(crate) fn first(&self, most_of_unknown: usize) -> Option<usize> {
        let known = Due {
            rank: Rank::Known,
            since: 0,
        };
        let first = self.order.first_key_value();
        let known = self.order.range(known..).next();
        let unknown = self.endable[Rank::Enters as usize];
        let (_, &index) = first
            .zip(known)
            .filter(|((first, _), (known, _))| {
                unknown <= most_of_unknown && known.rank == Rank::Known && known.since < first.since
            })
            .map(|(_, known)| known)
            .or(first)?;
        Some(index)
    }
}
