//! For the torture program alone.
pub use super::store::{Inserted, Ordered};
