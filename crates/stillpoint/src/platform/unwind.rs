//! Containing the panics of foreign code: callbacks and destructors that run on a thread which never asked for them.

use std::{
    mem,
    panic::{self, AssertUnwindSafe},
};

/// Runs `foreign` and reports whether it panicked. Nothing unwinds out of it, not even out of the payload's destructor.
///
/// The caller touches nothing afterwards that `foreign` may have left half changed; that is what makes `AssertUnwindSafe` true.
pub(crate) fn panics(foreign: impl FnOnce()) -> bool {
    let Err(payload) = panic::catch_unwind(AssertUnwindSafe(foreign)) else {
        return false;
    };
    if let Err(second) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        // A payload whose destructor panics with a payload: whoever writes that can live with the leak.
        mem::forget(second);
    }
    #[cfg(feature = "tracing")]
    tracing::error!("a callback or destructor panicked");
    true
}

#[cfg(all(test, not(stillpoint_loom)))]
mod tests {
    use super::*;

    struct Bomb(u32);

    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                panic::panic_any(Bomb(self.0 - 1));
            }
        }
    }

    #[test]
    fn nothing_unwinds_not_even_from_the_payload() {
        assert!(!panics(|| ()));
        assert!(panics(|| panic!("expected")));
        assert!(panics(|| panic::panic_any(Bomb(2))));
    }
}
