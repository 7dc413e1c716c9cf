//! Which processor the calling thread is on.

pub use crate::seam::cpu::{count, current};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_processor() {
        assert!(count() >= 1);
        assert!(current() < count().max(1024));
    }
}
