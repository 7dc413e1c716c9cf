//! The checkers' threads share one of the system's, so tests pass the tokens that they need.

use crate::thread::Token;
use std::num::NonZeroU64;

/// Returns the token of a thread that was given none.
pub fn token() -> Token {
    Token::for_model(u64::MAX - 1)
}

impl Token {
    /// Returns the token of a model's thread.
    pub fn for_model(number: u64) -> Self {
        Self(NonZeroU64::new(number).expect("0 is no token"))
    }
}

/// A thread-local variable of the checker's.
#[doc(hidden)]
#[macro_export]
macro_rules! thread_constant {
    ($(#[$attribute:meta])* $visible:vis static $name:ident: $type:ty = $value:expr;) => {
        $crate::model::thread_local! {
            $(#[$attribute])*
            $visible static $name: $type = $value;
        }
    };
}
