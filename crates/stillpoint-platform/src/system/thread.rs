//! A number for each thread.

use crate::thread::Token;
use std::{
    cell::Cell,
    num::NonZeroU64,
    sync::atomic::{AtomicU64, Ordering},
};

/// Returns the calling thread's token. Works in thread-local destructors.
#[inline]
pub fn token() -> Token {
    // Without a destructor, so that it outlives every destructor of the thread.
    thread_local!(static TOKEN: Cell<Option<Token>> = const { Cell::new(None) });
    TOKEN.get().unwrap_or_else(|| {
        let token = new_token();
        TOKEN.set(Some(token));
        token
    })
}

/// Out of line, so that callers stay short.
#[cold]
fn new_token() -> Token {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    Token(NonZeroU64::new(NEXT.fetch_add(1, Ordering::Relaxed)).expect("2^64 threads"))
}

/// A thread-local variable that begins as a constant: std's in their cheapest form; in the model
/// the checker's, because its threads share one thread of the system.
#[doc(hidden)]
#[macro_export]
macro_rules! thread_constant {
    ($(#[$attribute:meta])* $visible:vis static $name:ident: $type:ty = $value:expr;) => {
        ::std::thread_local! {
            $(#[$attribute])*
            $visible static $name: $type = const { $value };
        }
    };
}
