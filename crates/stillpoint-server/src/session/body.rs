//! Values that arrive, and the answers once they are stored.

use super::{Context, Session, State, text};
use crate::{
    directory::{Count, Space},
    protocol::{
        binary::{Header, Status},
        meta,
    },
    store::{Condition, Draft, Mode, Outcome, Refused},
    watch,
};
use std::sync::Arc;

/// Least number of missing bytes of a value that are read directly to its place.
const DIRECT_MIN: usize = 4096;

/// A value that has not arrived whole.
#[derive(Debug)]
pub(super) struct Body {
    draft: Draft,
    /// Where it will be stored.
    pub(super) space: Arc<Space>,
    pub(super) key: Box<[u8]>,
    /// Why the value cannot be stored, though not all of it has arrived.
    refused: Option<Refused>,
    /// The end of the line, which a value of the text protocol has.
    end: [u8; 2],
    end_len: usize,
    then: Then,
}

/// The command that stores the value, and how that is answered.
#[derive(Debug)]
pub(super) enum Then {
    /// A storage command.
    Text {
        /// How it is stored.
        mode: Mode,
        /// The CAS value that the item must have.
        compare: Option<u64>,
        /// Whether there is no answer.
        noreply: bool,
    },
    /// `ms`.
    Meta(Box<MetaSet>),
    /// A binary request.
    Binary {
        /// The request.
        header: Header,
        /// How it is stored.
        mode: Mode,
        /// Whether success is not answered.
        quiet: bool,
    },
}

/// The part of `ms` that is needed when its value has arrived.
#[derive(Debug)]
pub(super) struct MetaSet {
    pub(super) mode: Mode,
    pub(super) condition: Condition,
    pub(super) quiet: bool,
    /// The flags of the answer; the CAS value goes in at `cas_at`.
    pub(super) answer: Vec<u8>,
    pub(super) cas_at: Option<usize>,
}

impl Then {
    fn mode(&self) -> Mode {
        match self {
            Self::Text { mode, .. } | Self::Binary { mode, .. } => *mode,
            Self::Meta(set) => set.mode,
        }
    }

    fn end_len(&self) -> usize {
        match self {
            Self::Text { .. } | Self::Meta(_) => 2,
            Self::Binary { .. } => 0,
        }
    }

    /// Returns the mode and the condition for the store.
    fn request(&self) -> (Mode, Condition) {
        let condition = match self {
            Self::Text { compare, .. } => Condition::of(*compare),
            Self::Meta(set) => set.condition,
            Self::Binary { header, .. } => Condition::of((header.cas != 0).then_some(header.cas)),
        };
        match self.mode() {
            // As in memcached, a binary `add` with a CAS value stores if the item has that value.
            Mode::Add if condition.compare.is_some() => (Mode::Set, condition),
            mode => (mode, condition),
        }
    }
}

impl Body {
    pub(super) fn missing(&self) -> usize {
        self.draft.missing() + self.then.end_len() - self.end_len
    }

    /// Returns whether it can be answered: it has arrived, or was refused.
    pub(super) fn is_over(&self) -> bool {
        self.missing() == 0 || self.refused.is_some()
    }

    /// Returns the bytes of memory that it takes and no tenant is charged for.
    pub(super) fn footprint(&self) -> usize {
        self.draft.footprint()
    }

    /// Takes the bytes of `input` that belong to the value, unless that is refused. Returns their
    /// number.
    pub(super) fn fill(&mut self, input: &[u8]) -> usize {
        if self.refused.is_some() {
            return 0;
        }
        let missing = self.draft.missing();
        self.refused = self.draft.push(&input[..missing.min(input.len())]).err();
        let value = missing - self.draft.missing();
        if self.refused.is_some() {
            return value;
        }
        let end = (self.then.end_len() - self.end_len).min(input.len() - value);
        self.end[self.end_len..self.end_len + end].copy_from_slice(&input[value..value + end]);
        self.end_len += end;
        value + end
    }

    /// See [`Session::direct`].
    pub(super) fn direct<E>(
        &mut self,
        read: impl FnOnce(&mut [u8]) -> Result<usize, E>,
    ) -> Option<Result<usize, E>> {
        if self.refused.is_some() || self.draft.missing() < DIRECT_MIN {
            return None;
        }
        let (read, charged) = self.draft.read(read)?;
        self.refused = charged.err();
        Some(read)
    }
}

impl Session {
    /// Starts to receive a value of `len` bytes, the first of which are in `behind`. Returns the number of
    /// bytes of `behind` that were consumed.
    #[allow(clippy::too_many_arguments)]
    pub(super) fn accept(
        &mut self,
        key: &[u8],
        flags: u32,
        deadline: u32,
        len: usize,
        then: Then,
        behind: &[u8],
        cx: &mut Context<'_>,
    ) -> usize {
        let directory = cx.directory;
        let space = directory.route(&self.access.home, key);
        let whole = len + then.end_len();
        if behind.len() >= whole {
            let (value, end) = behind[..whole].split_at(len);
            if then.end_len() > 0 && end != b"\r\n" {
                self.bad_chunk(space, &then, cx);
                return whole;
            }
            let (mode, condition) = then.request();
            let deadline = cx.stored_deadline(space, deadline);
            let result = space
                .tenant
                .set(key, flags, deadline, value, mode, condition);
            self.answer(space, key, len, &then, result, cx);
            return whole;
        }
        match space.tenant.prepare(key, flags, deadline, len) {
            Ok(draft) => {
                let mut body = Body {
                    draft,
                    space: Arc::clone(space),
                    key: key.into(),
                    refused: None,
                    end: [0; 2],
                    end_len: 0,
                    then,
                };
                let used = body.fill(behind);
                self.state = State::Body(Box::new(body));
                used
            }
            Err(refused) => {
                self.answer(space, key, len, &then, Err(refused.into()), cx);
                self.skip(whole as u64);
                0
            }
        }
    }

    /// Stores a value that has arrived, or skips the rest of one that was refused.
    pub(super) fn stored(&mut self, mut body: Body, cx: &mut Context<'_>) {
        let len = body.draft.len();
        if let Some(refused) = body.refused.take() {
            let result = Err(refused.into());
            self.answer(&body.space, &body.key, len, &body.then, result, cx);
            self.skip(body.missing() as u64);
            return;
        }
        if body.then.end_len() > 0 && body.end != *b"\r\n" {
            self.bad_chunk(&body.space, &body.then, cx);
            return;
        }
        let (mode, condition) = body.then.request();
        // The time of the store counts, not that of the command.
        let deadline = cx.stored_deadline(&body.space, body.draft.exptime());
        body.draft.set_exptime(deadline);
        let result = body.draft.store(mode, condition);
        self.answer(&body.space, &body.key, len, &body.then, result, cx);
    }

    fn bad_chunk(&self, space: &Space, then: &Then, cx: &mut Context<'_>) {
        cx.count(space, Count::Set);
        let noreply = matches!(then, Then::Text { noreply: true, .. });
        text::reply(cx, noreply, "CLIENT_ERROR bad data chunk");
    }

    fn answer(
        &self,
        space: &Arc<Space>,
        key: &[u8],
        len: usize,
        then: &Then,
        result: Result<u64, Outcome>,
        cx: &mut Context<'_>,
    ) {
        self.count_store(space, key, then, &result, cx);
        // The new value could not be stored, and the old one is out of date. (Not if a condition fails:
        // then it is another client's.)
        if matches!(result, Err(Outcome::Refused(_))) && then.mode() == Mode::Set {
            let _ = space.tenant.delete(key, then.request().1.compare);
        }
        let events = watch::FETCHERS | watch::MUTATIONS;
        if cx.shared.watchers.want(space, events) {
            self.tell_stored(space, key, len, then, &result, cx);
        }
        match then {
            Then::Text { noreply, .. } => {
                let line = match &result {
                    Ok(_) => "STORED",
                    Err(outcome) => text::failed(outcome),
                };
                text::reply(cx, *noreply, line);
            }
            Then::Meta(set) => answer_meta(set, &result, cx),
            Then::Binary {
                header,
                quiet,
                mode,
            } => {
                let status = match &result {
                    Ok(cas) => {
                        if !quiet {
                            super::binary::respond(header, Status::Ok, *cas, cx);
                        }
                        return;
                    }
                    // Where there has to be an item, or none, the binary protocol has its own words.
                    Err(Outcome::NotStored) => match mode {
                        Mode::Add => Status::Exists,
                        Mode::Replace => Status::NotFound,
                        _ => Status::NotStored,
                    },
                    Err(outcome) => super::binary::status(outcome),
                };
                super::binary::respond(header, status, 0, cx);
            }
        }
    }

    fn count_store(
        &self,
        space: &Space,
        key: &[u8],
        then: &Then,
        result: &Result<u64, Outcome>,
        cx: &Context<'_>,
    ) {
        // One that there is no place for is counted below, and not as a store.
        if !matches!(result, Err(Outcome::Refused(_))) {
            cx.count(space, Count::Set);
        }
        space.details.set(key);
        // As in memcached, not where a value is added to that of an item.
        let appends = matches!(then.mode(), Mode::Append | Mode::Prepend);
        if !appends && then.request().1.compare.is_some() {
            match result {
                Ok(_) => cx.count(space, Count::CasHit),
                Err(Outcome::Exists) => cx.count(space, Count::CasBadValue),
                Err(Outcome::NotFound) => cx.count(space, Count::CasMiss),
                Err(_) => {}
            }
        }
        match result {
            Err(Outcome::Refused(Refused::TooLarge { .. })) => cx.count(space, Count::TooLarge),
            Err(Outcome::Refused(_)) => cx.count(space, Count::NoMemory),
            _ => {}
        }
    }

    fn tell_stored(
        &self,
        space: &Arc<Space>,
        key: &[u8],
        len: usize,
        then: &Then,
        result: &Result<u64, Outcome>,
        cx: &Context<'_>,
    ) {
        if cx.shared.watchers.want(space, watch::FETCHERS) {
            // memcached looks for the item that is replaced, and says what it found.
            self.tell_get(space, key, None, cx);
        }
        if cx.shared.watchers.want(space, watch::MUTATIONS) {
            let status = match result {
                Ok(_) => "stored",
                Err(Outcome::Exists) => "exists",
                Err(Outcome::NotFound) => "not_found",
                Err(Outcome::Refused(Refused::TooLarge { .. })) => "too_large",
                Err(Outcome::Refused(_)) => "no_memory",
                Err(_) => "not_stored",
            };
            let command = match then {
                Then::Meta(_) => "ms",
                Then::Text {
                    compare: Some(_), ..
                } => "cas",
                Then::Text { mode, .. } | Then::Binary { mode, .. } => match mode {
                    Mode::Set => "set",
                    Mode::Add => "add",
                    Mode::Replace => "replace",
                    Mode::Append => "append",
                    Mode::Prepend => "prepend",
                },
            };
            text::tell_store(self.id, space, key, status, command, len, cx.shared);
        }
    }
}

fn answer_meta(set: &MetaSet, result: &Result<u64, Outcome>, cx: &mut Context<'_>) {
    let code = match result {
        Ok(_) if set.quiet => return,
        Ok(_) => "HD",
        Err(outcome) => match super::meta::code(outcome) {
            Some(code) => code,
            None => return cx.out.line(text::failed(outcome)),
        },
    };
    let out = &mut cx.out.bytes;
    out.extend_from_slice(code.as_bytes());
    let at = set.cas_at.unwrap_or(set.answer.len());
    out.extend_from_slice(&set.answer[..at]);
    if set.cas_at.is_some() {
        crate::protocol::number::push_u64(out, *result.as_ref().unwrap_or(&0));
    }
    out.extend_from_slice(&set.answer[at..]);
    cx.out.line("");
}

/// Returns the part of `ms` that outlives its line.
pub(super) fn of_meta(request: &meta::Request<'_>) -> MetaSet {
    let mut answer = Vec::new();
    let mut cas_at = None;
    for (letter, token) in request.tokens() {
        if letter == b'c' {
            answer.extend_from_slice(b" c");
            cas_at = Some(answer.len());
        } else {
            request.push_if_reflected(&mut answer, letter, token);
        }
    }
    let (mode, compare, or_stale) = match (request.mode, request.cas) {
        // As there is no item, there is nothing to compare.
        (Mode::Add, _) => (Mode::Add, None, false),
        // An item has to be there; NF says that there is none. A CAS value of 0 is none that an item
        // could have had before.
        (Mode::Set | Mode::Replace, Some(cas)) => (Mode::Set, Some(cas), request.stale && cas != 0),
        // 0 compares nothing here.
        (mode, cas) => (mode, cas.filter(|&cas| cas != 0), false),
    };
    MetaSet {
        mode,
        condition: Condition { compare, or_stale },
        quiet: request.quiet,
        answer,
        cas_at,
    }
}
