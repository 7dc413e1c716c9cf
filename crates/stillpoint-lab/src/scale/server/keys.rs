//! Keys and values.

use std::io::Write;

/// Bytes of a key.
pub const LEN: usize = 16;

/// The longest value of [`value`].
pub const LONGEST: usize = 1024;

/// The key of that number.
pub fn key(number: u64) -> [u8; LEN] {
    let mut key = [0; LEN];
    write!(&mut key[..], "key:{number:012}").expect("twelve digits are enough");
    key
}

/// The length of a value that depends on the number alone: from `least` to `most`, each as likely.
pub fn length(number: u64, least: usize, most: usize) -> usize {
    let random = fastrand::Rng::with_seed(number).usize(least..=most);
    debug_assert!((least..=most).contains(&random));
    random
}

/// Bytes for values of up to `most`, of which one takes as many as it needs.
pub fn bytes(most: usize) -> Vec<u8> {
    (0..most).map(|at| b'a' + (at % 23) as u8).collect()
}
