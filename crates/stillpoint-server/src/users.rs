//! Who may come in.

use crate::config::section;
use constant_time_eq::constant_time_eq_n;
use std::{cmp::Ordering, sync::Arc};

section! {
    /// A user who may come in.
    #[derive(Clone, PartialEq, Eq)]
    pub struct User {
        /// Name, which must have a line in the auth-file
        name: String = String::new(), "name", "", live;
        /// The password.
        password: Vec<u8> = Vec::new();
        /// Tenant whose keys the user sees; the default tenant if not given
        tenant: String = String::new(), "tenant", "", live;
        /// Whether the user may change tenants and limits
        admin: bool = false, "admin", "", live;
    }
}

impl std::fmt::Debug for User {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Without the password, which would come into logs.
        write!(f, "User({:?}, tenant {:?})", self.name, self.tenant)
    }
}

impl User {
    fn compare(&self, name: &str) -> Ordering {
        #[cfg(test)]
        tests::COMPARED.set(tests::COMPARED.get() + 1);
        (*self.name).cmp(name)
    }
}

/// The most bytes of a name or password; a client cannot send more.
pub(crate) const MAX_SECRET: usize = 1024;

/// Returns a name or password with its length, padded to the same size for all.
fn padded(secret: &[u8]) -> [u8; MAX_SECRET + 8] {
    let mut all = [0; MAX_SECRET + 8];
    let kept = secret.len().min(MAX_SECRET);
    all[..kept].copy_from_slice(&secret[..kept]);
    all[MAX_SECRET..].copy_from_slice(&(secret.len() as u64).to_ne_bytes());
    all
}

/// All users at one moment, in the order of their names.
#[derive(Debug, Clone, Default)]
pub(crate) struct Users(Arc<[Arc<User>]>);

impl From<Vec<User>> for Users {
    fn from(mut users: Vec<User>) -> Self {
        users.sort_by(|one, other| one.name.cmp(&other.name));
        Self(users.into_iter().map(Arc::new).collect())
    }
}

impl Users {
    /// Returns what has become of a user who has come in: each session looks for its own after each
    /// change of tenants. `None` if that user is gone or has another password.
    pub(crate) fn renewed(&self, user: &User) -> Option<&Arc<User>> {
        let found = self.0.binary_search_by(|other| other.compare(&user.name));
        let now = &self.0[found.ok()?];
        (now.password == user.password).then_some(now)
    }

    /// Returns all users, in the order of their names.
    pub(crate) fn all(&self) -> &[Arc<User>] {
        &self.0
    }

    /// Returns whether both are the same list, which no change has made anew.
    pub(crate) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Returns the user of that name and password. Compares with all users, so that the time tells nothing of
    /// what is wrong, not even a length.
    pub(crate) fn authenticate(&self, name: &[u8], password: &[u8]) -> Option<&Arc<User>> {
        let (name, password) = (padded(name), padded(password));
        let mut found = None;
        for user in &*self.0 {
            let named = constant_time_eq_n(&padded(user.name.as_bytes()), &name);
            if named & constant_time_eq_n(&padded(&user.password), &password) {
                found = Some(user);
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    thread_local! {
        /// How often names were compared by the calling thread.
        pub(super) static COMPARED: Cell<u32> = const { Cell::new(0) };
    }

    fn user(name: &str, password: &str) -> User {
        User {
            name: name.into(),
            password: password.into(),
            tenant: String::new(),
            admin: false,
        }
    }

    #[test]
    fn users_come_in_with_their_own_password() {
        let users = Users::from(vec![user("bob", "other"), user("ann", "secret")]);
        let found = users.authenticate(b"bob", b"other");
        assert_eq!(found.unwrap().name, "bob");
        for (name, password) in [
            ("ann", "other"),
            ("bob", "other\0"),
            ("bob", "othe"),
            ("bob", "other!"),
            ("", ""),
            ("carl", "secret"),
        ] {
            let found = users.authenticate(name.as_bytes(), password.as_bytes());
            assert!(found.is_none(), "{name} {password}");
        }
        assert!(!format!("{users:?}").contains("secret"));
    }

    /// However many there are: ten thousand sessions look after each change.
    #[test]
    fn a_user_is_found_among_many_by_few_comparisons() {
        let name = |number: u32| format!("user{}", number.wrapping_mul(0x9e37_79b1));
        let users: Vec<_> = (0..4096).map(|number| user(&name(number), "p")).collect();
        let users = Users::from(users);
        for number in 0..4096 {
            COMPARED.set(0);
            let now = users.renewed(&user(&name(number), "p"));
            assert_eq!(now.expect("there is such a user").name, name(number));
            assert!((1..=13).contains(&COMPARED.get()), "{}", COMPARED.get());
        }
        let (gone, changed) = (user("user", "p"), user(&name(7), "q"));
        assert!(users.renewed(&gone).is_none() && users.renewed(&changed).is_none());
        assert!(Users::default().renewed(&gone).is_none());
    }
}
