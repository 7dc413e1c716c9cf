//! For the torture program and tests alone.
pub use super::{alter::Inserted, store::Ordered};
