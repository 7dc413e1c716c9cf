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

impl Stream {
    pub(crate) fn new(certificate: &Certificate) -> Option<Self> {
        match *certificate {}
    }

    pub(crate) fn read(&mut self, _fd: &OwnedFd, _buffer: &mut [u8]) -> Result<usize, Errno> {
        match *self {}
    }

    pub(crate) fn send(
        &mut self,
        _fd: &OwnedFd,
        _output: &mut Output,
        _most: usize,
    ) -> Result<usize, Errno> {
        match *self {}
    }

    pub(crate) fn is_sending(&self) -> bool {
        match *self {}
    }

    pub(crate) fn has_plaintext(&self) -> bool {
        match *self {}
    }

    pub(crate) fn is_handshaking(&self) -> bool {
        match *self {}
    }

    pub(crate) fn failure(&self) -> Option<&str> {
        match *self {}
    }

    pub(crate) fn footprint(&self) -> usize {
        match *self {}
    }

    pub(crate) fn idle_footprint(&self) -> usize {
        match *self {}
    }

    pub(crate) fn close(&mut self, _fd: &OwnedFd) {
        match *self {}
    }
}
