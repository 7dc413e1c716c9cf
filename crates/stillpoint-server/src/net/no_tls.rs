//! The types of `tls.rs` for a build without the feature `tls`. They have no values: there is no
//! certificate, and so no encrypted connection.

use crate::{config::Tls, output::Output};
use rustix::{fd::OwnedFd, io::Errno};

pub(crate) const IDLE: usize = 0;

#[derive(Clone)]
pub(crate) enum Certificate {}

impl Certificate {
    pub(crate) fn load(_files: &Tls) -> Result<Self, String> {
        Err("TLS: this program was built without it; build with the feature `tls`".into())
    }
}

#[derive(Debug)]
pub(crate) enum Stream {}

/// Methods of a type without values.
macro_rules! never {
    ($($name:ident($($argument:ty),*) -> $result:ty;)*) => {
        impl Stream {
            $(pub(crate) fn $name(&self $(, _: $argument)*) -> $result {
                match *self {}
            })*
        }
    };
}
never! {
    read(&OwnedFd, &mut [u8]) -> Result<usize, Errno>;
    send(&OwnedFd, &mut Output, usize) -> Result<usize, Errno>;
    is_sending() -> bool;
    has_plaintext() -> bool;
    is_handshaking() -> bool;
    failure() -> Option<&str>;
    footprint() -> usize;
    idle_footprint() -> usize;
    close(&OwnedFd) -> ();
}

impl Stream {
    pub(crate) fn new(certificate: &Certificate) -> Option<Self> {
        match *certificate {}
    }
}
