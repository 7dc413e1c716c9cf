//! As `pool.rs`, for models: memory for parts of an index, which keeps what it has given.

use super::{
    class::Class,
    memory::{Memory, Source},
};
use std::io;

#[derive(Debug)]
pub struct Pool(Source);

impl Pool {
    pub fn new(limit: u64) -> io::Result<Self> {
        Source::new(limit).map(Self)
    }

    pub fn take(&self, bytes: usize, align: usize, _: Option<Class>) -> Option<Memory> {
        Memory::take(&self.0, bytes, align)
    }
}
