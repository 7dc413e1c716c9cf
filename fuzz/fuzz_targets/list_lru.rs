//! The model `list_lru.rs` over what libFuzzer finds.
#![no_main]

#[path = "../../crates/stillpoint/tests/models/mod.rs"]
#[allow(dead_code, reason = "the steps alone")]
mod models;
#[path = "../../crates/stillpoint-lru/tests/models/list_lru.rs"]
mod list_lru;

libfuzzer_sys::fuzz_target!(|program: &[u8]| list_lru::run(program));
