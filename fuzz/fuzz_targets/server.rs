//! A connection of stillcache that receives anything.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = stillpoint_server::fuzz::converse(bytes);
});
