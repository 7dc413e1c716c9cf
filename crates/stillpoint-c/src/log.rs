//! Lines on stderr.

use stillpoint::raw::Line;

/// Writes a line to stderr, as [`Line`] does: without a lock, memory, or waiting for anyone.
pub(crate) fn log(parts: &[&[u8]]) {
    let mut line = Line::new();
    parts.iter().for_each(|part| line.push(part));
    line.send();
}
