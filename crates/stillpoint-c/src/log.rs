//! Lines on stderr.

use std::io::{Cursor, Write};

/// Writes a line to stderr, by one system call that is no cancellation point. It takes no lock,
/// which a thread that has vanished in a fork might have, and allocates nothing. What does not fit
/// in 512 bytes is cut off; that stderr may be closed is not the caller's business.
pub(crate) fn log(parts: &[&[u8]]) {
    let mut line = Cursor::new([0; 512]);
    let _ = [&b"stillpoint: "[..]]
        .iter()
        .chain(parts)
        .try_for_each(|part| line.write_all(part));
    let length = usize::try_from(line.position())
        .unwrap_or(0)
        .min(line.get_ref().len() - 1);
    line.get_mut()[length] = b'\n';
    // SAFETY: the bytes are there.
    unsafe {
        libc::syscall(
            libc::SYS_write,
            libc::STDERR_FILENO,
            line.get_ref().as_ptr(),
            length + 1,
        )
    };
}
