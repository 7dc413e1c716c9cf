//! Authentication: a client sends a `set` whose value is its name and password.

use super::{Close, Context, Session, State};
use crate::{
    lock::lock,
    log::note,
    places::{enter, may_enter},
    protocol::{number::parse_u32, text::Words},
    shared::bump,
    users::MAX_SECRET,
};
use std::sync::{Arc, atomic::Ordering};

/// Most bytes of a name and a password together.
const MAX_LOGIN: u32 = MAX_SECRET as u32;

impl Session {
    /// Executes a line of a client that has not logged in.
    pub(super) fn ask(&mut self, line: &[u8], cx: &mut Context<'_>) {
        let words = Words::of(line);
        if words.at(0) == b"quit" {
            self.close = Some(Close::Normal);
            return;
        }
        match (words.at(0), parse_u32(words.at(4))) {
            (b"set", Some(len @ 0..=MAX_LOGIN)) => self.state = State::Login(len as usize + 2),
            (b"set", Some(_)) => {
                cx.out.line("CLIENT_ERROR bad authentication token format");
                self.close = Some(Close::Error);
            }
            _ => cx.out.line("CLIENT_ERROR unauthenticated"),
        }
    }

    /// Checks a name and a password, with the end of their line.
    pub(super) fn login(&mut self, token: &[u8], cx: &mut Context<'_>) {
        let thread = &cx.shared.threads[cx.thread];
        let Some(token) = token.strip_suffix(b"\r\n") else {
            cx.out.line("CLIENT_ERROR bad command line termination");
            return;
        };
        let mut parts = token.splitn(2, |&byte| byte == b' ');
        let (Some(name), Some(password)) = (parts.next(), parts.next()) else {
            cx.out.line("CLIENT_ERROR bad authentication token format");
            return;
        };
        bump(&thread.auth, 1);
        let found = cx
            .directory
            .users
            .authenticate(name, password)
            .and_then(|user| {
                let space = cx.directory.spaces.get(user.tenant.as_str())?;
                Some((user, space))
            });
        let Some((user, space)) = found else {
            bump(&thread.auth_errors, 1);
            cx.out.line("CLIENT_ERROR authentication failure");
            self.failures += 1;
            if self.failures == MAX_FAILURES {
                note!(
                    cx.shared.log,
                    "client {} failed to authenticate {MAX_FAILURES} times; closed",
                    self.card.peer
                );
                self.close = Some(Close::Error);
            }
            return;
        };
        let (all, most) = (&cx.shared.totals, cx.shared.settings.max_connections);
        let homes = cx.directory.homes;
        let places = enter(&all.known, &space.clients, |own, all| {
            user.admin || may_enter(own, all, most, homes)
        });
        let Some((known, place)) = places else {
            all.connections_rejected.fetch_add(1, Ordering::Relaxed);
            cx.out.line("SERVER_ERROR too many clients of this tenant");
            self.close = Some(Close::Error);
            return;
        };
        self.access.home = Arc::clone(space);
        self.access.place = place;
        self.access.admin = user.admin;
        self.access.user = Some(Arc::clone(user));
        self.access.known = Some(known);
        *lock(&self.card.tenant) = Arc::clone(&space.name);
        cx.out.line("STORED");
    }
}

/// After so many wrong passwords the connection is closed.
const MAX_FAILURES: u32 = 10;
