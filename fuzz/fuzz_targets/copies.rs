//! The model `copy_map.rs` over what libFuzzer finds.
#![no_main]

#[path = "../../crates/stillpoint-map/tests/models/copy_map.rs"]
mod copy_map;
#[path = "../../crates/stillpoint-map/tests/models/hashers.rs"]
mod hashers;
#[path = "../../crates/stillpoint/tests/models/mod.rs"]
#[allow(dead_code, reason = "the steps alone")]
mod models;

libfuzzer_sys::fuzz_target!(|program: &[u8]| copy_map::run(program));
