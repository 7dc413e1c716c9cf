//! What tests of several modules need.

use crate::{
    shared::Shared,
    store::{Condition, Mode},
};
use std::{
    fs,
    ops::Deref,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

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

/// A file that only its owner may read, and that is removed with this.
pub(crate) struct TestFile(PathBuf);

impl TestFile {
    /// Writes a file whose name has `name` and the process's number.
    pub(crate) fn new(name: &str, text: &str) -> Self {
        let name = format!("stillcache-{}-{name}", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        file.write(text);
        fs::set_permissions(&*file, fs::Permissions::from_mode(0o600)).unwrap();
        file
    }

    /// Replaces its text.
    pub(crate) fn write(&self, text: &str) {
        fs::write(&self.0, text).unwrap();
    }

    /// Replaces it by a pipe, which waits for a writer when it is read.
    pub(crate) fn become_pipe(&self) {
        use rustix::fs::{CWD, FileType, Mode, mknodat};
        fs::remove_file(&self.0).unwrap();
        let mode = Mode::from_raw_mode(0o600);
        mknodat(CWD, &self.0, FileType::Fifo, mode, 0).unwrap();
    }
}

impl Deref for TestFile {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
