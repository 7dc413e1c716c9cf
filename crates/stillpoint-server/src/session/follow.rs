//! Changes of a session when tenants or users change.

use super::{Close, Session, State};
use crate::{directory::Directory, lock::lock, places::Place, store::Cursor};
use std::sync::Arc;

impl Session {
    /// Looks up its tenant again after a change, before anything is sent or executed. Ends the session of a
    /// user who was removed or has another password. A deleted tenant has no items.
    pub(crate) fn follow(&mut self, directory: &Directory) {
        if self.version == directory.version {
            return;
        }
        self.version = directory.version;
        if let Some(user) = &self.access.user {
            let Some(user) = directory.users.renewed(user) else {
                self.close = Some(Close::Shutdown);
                return;
            };
            self.access.admin = user.admin;
            self.access.user = Some(Arc::clone(user));
            match directory.spaces.get(user.tenant.as_str()) {
                Some(space) => self.access.home = Arc::clone(space),
                // The user could not log in now, and does not keep the tenant that it had before.
                None if *self.access.home.name != *user.tenant => {
                    self.close = Some(Close::Shutdown);
                    return;
                }
                None => {}
            }
        } else if let Some(space) = directory.spaces.get(&self.access.home.name) {
            self.access.home = Arc::clone(space);
        }
        if self.access.known.is_some()
            && let Some(place) = Place::take(&self.access.home.clients, |_| true)
        {
            self.access.place = place;
        }
        *lock(&self.card.tenant) = Arc::clone(&self.access.home.name);
        let home = &self.access.home;
        match &mut self.state {
            State::Dump { spaces, cursor } => {
                let before = spaces.last().map(Arc::as_ptr);
                spaces.retain(|space| directory.reaches(home, space));
                if spaces.last().map(Arc::as_ptr) != before {
                    *cursor = Cursor::default();
                }
            }
            // The value would go where the client may no longer write, or where its key is no longer
            // looked for. (If the tenant was deleted, the store refuses it.)
            State::Body(body) if !Arc::ptr_eq(directory.route(home, &body.key), &body.space) => {
                let there = directory.spaces.get(&body.space.name);
                if there.is_some_and(|there| Arc::ptr_eq(there, &body.space)) {
                    self.close = Some(Close::Shutdown);
                }
            }
            State::Watch(watch) => watch.see(self.access.watched(directory)),
            _ => {}
        }
    }
}
