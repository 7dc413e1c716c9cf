//! The model `kvfree.rs` over what libFuzzer finds.
#![no_main]

#[path = "../../crates/stillpoint/tests/models/mod.rs"]
#[allow(dead_code, reason = "one model of several")]
mod models;

libfuzzer_sys::fuzz_target!(|program: &[u8]| models::kvfree::run(program));
