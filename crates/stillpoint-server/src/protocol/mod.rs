//! memcached's protocols as functions over bytes: no sockets, no store, no allocation for what is valid.
//!
//! | file | what it reads or writes |
//! |---|---|
//! | `number` | decimal numbers, as strict as memcached's |
//! | `text` | a line of the text protocol |
//! | `meta` | the flags of `mg`, `ms`, `md`, `ma`, `me` |
//! | `binary` | the header of a binary request, and of its response |
//! | `base64`, `escape` | keys in base64, and keys in dumps and logs |
//! | `expiry` | what a client means by an expiration time |

pub mod base64;
pub mod binary;
pub mod escape;
pub mod expiry;
pub mod meta;
pub mod number;
pub mod text;

/// The longest key, in bytes.
pub const MAX_KEY: usize = 250;

/// How many bytes of a line may arrive without its end. (The keys of a `get` are read one by one, so its line has no limit.)
pub const MAX_LINE: usize = 2048;

/// The longest value that a request may announce: memcached's limit too, a signed 32-bit number with room for the line's end.
pub const MAX_ANNOUNCED: usize = i32::MAX as usize - 2;

/// Returns whether `key` may be a key: 1 to 250 bytes. (Bytes that cannot be in a key end it, so they are not looked for.)
#[must_use]
pub fn is_key(key: &[u8]) -> bool {
    !key.is_empty() && key.len() <= MAX_KEY
}
