//! A look-up of a key for a client, whatever its protocol.

use super::{Context, Session, binary, text};
use crate::{
    directory::Space,
    protocol::binary::Status,
    store::{Item, Outcome},
    watch,
};
use std::sync::Arc;

/// A look-up of a key.
#[derive(Clone, Copy)]
pub(super) struct Lookup<'a> {
    pub(super) space: &'a Arc<Space>,
    pub(super) key: &'a [u8],
    /// Whether the item counts as used.
    pub(super) uses: bool,
    /// The bytes behind the value; `None` if the value is not sent.
    pub(super) value_end: Option<&'static [u8]>,
    /// The second in which the item expires from then on, if that changes.
    pub(super) deadline: Option<u32>,
}

/// The length of the value of an item that was found. `Err` if nothing was shown, as the value may not be
/// pinned and there is no room for a copy.
pub(super) type Shown = Option<Result<usize, usize>>;

/// The answer to a look-up instead of the item: a line, or for the binary protocol a status.
#[derive(Clone, Copy)]
pub(super) struct Instead {
    pub(super) line: &'static str,
    pub(super) status: Status,
}

impl Lookup<'_> {
    /// Appends the item to the output: what `head` appends inside the section, and the value.
    #[inline(always)]
    pub(super) fn show(
        self,
        cx: &mut Context<'_>,
        mut head: impl FnMut(&Item<'_>, &mut Vec<u8>),
    ) -> Shown {
        loop {
            let out = &mut *cx.out;
            let shown = self.space.tenant.look(self.key, self.uses, |item| {
                let len = item.value().len();
                match self.value_end {
                    None => head(item, &mut out.bytes),
                    Some(end) => {
                        // Before `head`, which may set the win mark: an item that is not sent must not be won.
                        let held = out.hold(item).ok_or(len)?;
                        head(item, &mut out.bytes);
                        out.push_value(item, held);
                        out.bytes.extend_from_slice(end);
                    }
                }
                Ok(len)
            });
            match shown {
                Some(Err(len)) if reserve_copy(len, cx) => {}
                shown => return shown,
            }
        }
    }

    /// Sets the expiry, tells watchers, and counts: as a touch alone if it `touches`. Called after
    /// [`show`](Self::show), as a time in the past affects later requests only. If it returns another answer,
    /// the one that was appended has to be taken back.
    #[inline(always)]
    pub(super) fn finish(
        self,
        shown: Shown,
        touches: bool,
        session: &Session,
        cx: &Context<'_>,
    ) -> Option<Instead> {
        let instead = match (shown, self.deadline) {
            (None, _) | (Some(Ok(_)), None) => None,
            (Some(Ok(_)), Some(deadline)) => set_expiry(self.space, self.key, deadline),
            (Some(Err(_)), _) => Some(Instead {
                line: text::NO_MEMORY,
                status: Status::OutOfMemory,
            }),
        };
        if cx.shared.watchers.want(self.space, watch::FETCHERS) {
            let size = shown.map(|(Ok(len) | Err(len))| len);
            session.tell_get(self.space, self.key, size, cx);
        }
        cx.count_get(self.space, shown.is_some(), touches);
        instead
    }
}

/// Sets the expiry of an item that was shown. Returns the answer if that is refused.
fn set_expiry(space: &Space, key: &[u8], deadline: u32) -> Option<Instead> {
    match space.tenant.touch(key, deadline) {
        Err(outcome @ Outcome::Refused(_)) => Some(Instead {
            line: text::failed(&outcome),
            status: binary::status(&outcome),
        }),
        // If it is not found, the item has gone meanwhile.
        _ => None,
    }
}

/// Makes room for the copy of a value of `len` bytes that may not be pinned. Returns false without memory,
/// or if the value is longer than the limit of all buffers. Buffers of other clients do not count: a client
/// that reads the answer keeps none of it, and otherwise clients that have kept theirs longer are ended.
#[cold]
fn reserve_copy(len: usize, cx: &mut Context<'_>) -> bool {
    len <= cx.shared.buffer_limit() && cx.out.reserve_copy(len)
}
