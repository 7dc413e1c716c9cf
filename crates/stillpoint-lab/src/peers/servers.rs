//! Servers that the system has: memcached and redis, as Debian packs them.

use std::path::PathBuf;

/// A server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Ours, which this program has in it.
    Stillcache,
    /// memcached.
    Memcached,
    /// Redis.
    Redis,
}

impl Kind {
    /// All, in the tables' order.
    pub const ALL: [Self; 3] = [Self::Stillcache, Self::Memcached, Self::Redis];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stillcache => "stillcache",
            Self::Memcached => "memcached",
            Self::Redis => "redis",
        }
    }

    /// The peer's program, and Debian's package of it.
    const fn packed(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Stillcache => None,
            Self::Memcached => Some(("memcached", "memcached")),
            Self::Redis => Some(("redis-server", "redis-server")),
        }
    }

    /// The peer's program, where the system has it.
    pub fn program(self) -> Option<PathBuf> {
        let (program, _) = self.packed()?;
        let path = std::env::var_os("PATH")?;
        std::env::split_paths(&path)
            .map(|folder| folder.join(program))
            .find(|file| file.is_file())
    }

    /// Why the peer is left out; `None` where it is there.
    pub fn missing(self) -> Option<String> {
        let (_, package) = self.packed()?;
        let name = self.name();
        self.program()
            .is_none()
            .then(|| format!("{name} left out: skipped, as the system has none. Install {package} (Debian, Ubuntu)."))
    }
}
