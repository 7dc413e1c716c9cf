//! What the index and its models have of sections and grace periods: here, the global domain's.

pub use stillpoint::{Cookie, Guard, global};

/// What models watch of memory that readers have no lock for. Here, nothing.
#[derive(Debug, Default)]
pub struct Watch;

impl Watch {
    #[inline(always)]
    pub fn note_read(&self) {}
}
