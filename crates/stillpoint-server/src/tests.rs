//! What tests of several modules need.

use crate::{
    shared::Shared,
    store::{Condition, Mode},
};
use std::path::PathBuf;

/// Stores a value in the default tenant.
pub(crate) fn put(shared: &Shared, key: &str, value: &[u8]) {
    let tenant = &shared.directory().spaces[""].tenant;
    let stored = tenant.set(key.as_bytes(), 0, 0, value, Mode::Set, Condition::default());
    stored.unwrap();
}

/// Creates tenants.
pub(crate) fn create(shared: &Shared, names: &[&str]) {
    for name in names {
        shared.store.create_tenant(name).unwrap();
    }
    shared.change(|directory| directory.follow(&shared.store, 1));
}

#[path = "../tests/common/files.rs"]
mod files;
pub(crate) use files::{make_fifo, new_path, write_private};

/// Writes a file that only its owner may read.
pub(crate) fn file(name: &str, text: &str) -> PathBuf {
    let path = new_path(name);
    write_private(&path, text);
    path
}
