//! Reading from a socket and sending to it, without waiting.

use rustix::{
    fd::OwnedFd,
    io::Errno,
    net::{RecvFlags, SendAncillaryBuffer, SendFlags, sendmsg},
};
use std::io::IoSlice;

/// Reads what has arrived (for a socket, `recv` costs less than `read`).
pub(crate) fn receive(fd: &OwnedFd, buffer: &mut [u8]) -> Result<usize, Errno> {
    rustix::net::recv(fd, buffer, RecvFlags::DONTWAIT).map(|(bytes, _)| bytes)
}

/// Sends as much of `slices` as the socket takes.
pub(crate) fn send_slices(fd: &OwnedFd, slices: &[IoSlice<'_>]) -> Result<usize, Errno> {
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    // `send` costs the system less than `sendmsg`, and most answers are one piece.
    if let [slice] = slices {
        return rustix::net::send(fd, slice, flags);
    }
    sendmsg(fd, slices, &mut SendAncillaryBuffer::default(), flags)
}
