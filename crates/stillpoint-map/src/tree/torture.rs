//! For the torture program and tests alone.
pub use super::{
    alter::{Inserted, NotInserted},
    store::Ordered,
};
