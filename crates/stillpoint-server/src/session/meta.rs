//! Meta commands.

use super::{Context, Session, body, lookup::Lookup, operator, text};
use crate::{
    directory::Count,
    protocol::{
        meta::{Kind, Request},
        number::push_u64,
    },
    store::{Arithmetic, Condition, Invalidate, Item, Mode, Outcome},
};

impl Session {
    /// Executes a meta command. Returns how much of `behind` it has consumed.
    pub(super) fn meta(
        &mut self,
        request: &Request<'_>,
        behind: &[u8],
        cx: &mut Context<'_>,
    ) -> usize {
        if !super::reserve(&mut self.close, cx) {
            return 0;
        }
        match request.kind {
            Kind::Get => self.meta_get(request, cx),
            Kind::Set(len) => {
                let deadline = cx.deadline(request.exptime.unwrap_or(0).into());
                let then = body::Then::Meta(Box::new(body::of_meta(request)));
                let (key, flags) = (request.key(), request.flags);
                return self.accept(key, flags, deadline, len, then, behind, cx);
            }
            Kind::Delete => self.meta_delete(request, cx),
            Kind::Arithmetic(down) => self.meta_arithmetic(request, down, cx),
            Kind::Debug => self.meta_debug(request, cx),
        }
        0
    }

    fn meta_get(&mut self, request: &Request<'_>, cx: &mut Context<'_>) {
        let directory = cx.directory;
        let space = directory.route(&self.access.home, request.key());
        let key = request.key();
        let deadline = request.exptime.map(|exptime| cx.deadline(exptime.into()));
        let recache = request.recache.map(|exptime| cx.deadline(exptime.into()));
        let vivify = request.vivify.map(|exptime| cx.deadline(exptime.into()));
        let mut lookup = Lookup {
            space,
            key,
            uses: !request.untouched,
            value_end: request.value.then_some(b"\r\n"),
            deadline,
        };
        let now = cx.now;
        let mark = cx.out.mark();
        let mut created = false;
        // The CAS value of what is made here in the second of a flush that takes it.
        let mut flushed = None;
        let mut again = true;
        // An item that another client has made in between is found in the second round.
        let shown = loop {
            let about = About {
                created,
                recache,
                deadline,
            };
            let shown = lookup.show(cx, |item, bytes| show(request, item, &about, now, bytes));
            let (None, Some(deadline), false) = (shown, vivify, created) else {
                break shown;
            };
            let stored = match space.tenant.prepare(key, 0, deadline, 0) {
                Ok(mut draft) => {
                    draft.set_win();
                    draft.store(Mode::Add, Condition::default())
                }
                Err(refused) => Err(refused.into()),
            };
            match stored {
                Ok(cas) => {
                    created = true;
                    // Its expiry is set.
                    lookup.deadline = None;
                    if cx.stored_deadline(space, deadline) != deadline {
                        flushed = Some(cas);
                    }
                }
                Err(Outcome::NotStored) if std::mem::take(&mut again) => {}
                // It is stored and deleted time and again: of these moments one without it is as good as another.
                Err(Outcome::NotStored) => break None,
                Err(outcome) => {
                    cx.count(space, Count::NoMemory);
                    return cx.out.line(text::failed(&outcome));
                }
            }
            if !super::reserve(&mut self.close, cx) {
                return;
            }
        };
        // An item that the request has created counts as found. As in memcached, a miss is no touch.
        let touches = shown.is_some() && request.exptime.is_some();
        let instead = lookup.finish(shown, touches, self, cx);
        if flushed.is_some() {
            // Shown it was; those that ask next do not find it, but for what has been stored since.
            let _ = space.tenant.delete(key, flushed);
        }
        space.details.get(key, shown.is_some() && !created);
        cx.count(space, Count::Meta);
        if let Some(instead) = instead {
            cx.out.truncate(mark);
            return cx.out.line(instead.line);
        }
        match shown {
            Some(_) => {}
            None if request.quiet => {}
            None => answer(request, "EN", cx),
        }
    }

    fn meta_delete(&mut self, request: &Request<'_>, cx: &mut Context<'_>) {
        let key = request.key();
        let result = if request.stale {
            let space = cx.directory.route(&self.access.home, key);
            let what = Invalidate {
                exptime: request.exptime.map(|exptime| cx.deadline(exptime.into())),
                condition: Condition::of(request.cas),
            };
            space.tenant.invalidate(key, what).map(|_| ())
        } else {
            self.delete(key, request.cas, cx)
        };
        match result {
            Ok(()) if request.quiet => {}
            Ok(()) => answer(request, "HD", cx),
            Err(outcome) => refuse(request, &outcome, cx),
        }
    }

    fn meta_arithmetic(&mut self, request: &Request<'_>, down: bool, cx: &mut Context<'_>) {
        let key = request.key();
        let deadline = |exptime: i32| cx.deadline(exptime.into());
        let what = Arithmetic {
            delta: request.delta,
            decrement: down,
            initial: request
                .vivify
                .map(|exptime| (request.initial, deadline(exptime))),
            exptime: request.exptime.map(deadline),
            condition: Condition {
                // 0 compares nothing here.
                compare: request.cas.filter(|&cas| cas != 0),
                ..Condition::default()
            },
        };
        let done = match self.arithmetic(key, what, cx) {
            Ok(done) if request.quiet && !done.created => return,
            Ok(done) => done,
            Err(outcome) => return refuse(request, &outcome, cx),
        };
        let mut digits = Vec::new();
        push_u64(&mut digits, done.value);
        let out = &mut cx.out.bytes;
        if request.value {
            out.extend_from_slice(b"VA ");
            push_u64(out, digits.len() as u64);
        } else {
            out.extend_from_slice(b"HD");
        }
        for (letter, token) in request.tokens() {
            match letter {
                b'c' => push_flag(out, b'c', done.cas),
                b't' => push_ttl(out, done.exptime, cx.now),
                _ => request.push_if_reflected(out, letter, token),
            }
        }
        cx.out.line("");
        if request.value {
            cx.out.bytes.extend_from_slice(&digits);
            cx.out.line("");
        }
    }

    fn meta_debug(&mut self, request: &Request<'_>, cx: &mut Context<'_>) {
        let directory = cx.directory;
        let space = directory.route(&self.access.home, request.key());
        let (now, out) = (cx.now, &mut cx.out.bytes);
        let shown = space.tenant.peek(request.key(), |item| {
            out.extend_from_slice(b"ME ");
            out.extend_from_slice(request.written_key);
            let exptime = item.ttl(now).map_or(-1, i64::from);
            let since = now.saturating_sub(item.last_access());
            operator::push_about(out, item, exptime, since.into());
            out.extend_from_slice(b"\r\n");
        });
        if shown.is_none() {
            cx.out.line("EN");
        }
    }
}

/// Appends `code` and what any answer returns of a request.
fn answer(request: &Request<'_>, code: &str, cx: &mut Context<'_>) {
    cx.out.bytes.extend_from_slice(code.as_bytes());
    request.push_reflected(&mut cx.out.bytes);
    cx.out.line("");
}

fn refuse(request: &Request<'_>, outcome: &Outcome, cx: &mut Context<'_>) {
    match code(outcome) {
        Some(code) => answer(request, code, cx),
        None => cx.out.line(text::failed(outcome)),
    }
}

/// Returns the code of an outcome that is no error.
pub(super) fn code(outcome: &Outcome) -> Option<&'static str> {
    Some(match outcome {
        Outcome::NotStored => "NS",
        Outcome::Exists => "EX",
        Outcome::NotFound => "NF",
        _ => return None,
    })
}

/// Appends the seconds that an item has left which expires in `exptime`.
fn push_ttl(out: &mut Vec<u8>, exptime: u32, now: u32) {
    match exptime {
        0 => out.extend_from_slice(b" t-1"),
        exptime => push_flag(out, b't', exptime.saturating_sub(now).into()),
    }
}

/// The parts of a `mg` request on which the answer depends.
struct About {
    /// Whether this request has created the item.
    created: bool,
    /// The second before which an item that expires is won.
    recache: Option<u32>,
    /// The new second of its expiry.
    deadline: Option<u32>,
}

/// Appends the answer of `mg` for an item, but for its value.
fn show(request: &Request<'_>, item: &Item<'_>, about: &About, now: u32, bytes: &mut Vec<u8>) {
    // As in memcached, `R` and `t` see the expiry as the tokens before them leave it: an item that this
    // request has created has none before `N`, and `T` replaces it.
    let mut due = false;
    let mut exptime = if about.created { 0 } else { item.exptime() };
    if request.value {
        bytes.extend_from_slice(b"VA ");
        push_u64(bytes, item.value().len() as u64);
    } else {
        bytes.extend_from_slice(b"HD");
    }
    for (letter, token) in request.tokens() {
        match letter {
            b'R' => {
                due = about
                    .recache
                    .is_some_and(|recache| exptime != 0 && exptime < recache);
            }
            b's' => push_flag(bytes, b's', item.value().len() as u64),
            b'N' if about.created => exptime = item.exptime(),
            b'T' => exptime = about.deadline.unwrap_or(exptime),
            b't' => push_ttl(bytes, exptime, now),
            b'c' => push_flag(bytes, b'c', item.cas()),
            b'f' => push_flag(bytes, b'f', item.flags().into()),
            b'l' => push_flag(bytes, b'l', now.saturating_sub(item.last_access()).into()),
            b'h' => push_flag(bytes, b'h', item.was_fetched().into()),
            _ => request.push_if_reflected(bytes, letter, token),
        }
    }
    let created = about.created;
    let mut won = created;
    if item.has_win() && !created {
        bytes.extend_from_slice(b" Z");
    } else if !created {
        won = (due || item.is_stale()) && item.win();
    }
    if item.is_stale() {
        bytes.extend_from_slice(b" X");
    }
    if won {
        bytes.extend_from_slice(b" W");
    }
    bytes.extend_from_slice(b"\r\n");
}

fn push_flag(out: &mut Vec<u8>, letter: u8, value: u64) {
    out.extend_from_slice(&[b' ', letter]);
    push_u64(out, value);
}
