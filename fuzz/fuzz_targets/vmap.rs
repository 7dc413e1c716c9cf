//! The model `vmap.rs` over what libFuzzer finds.
#![no_main]

#[path = "../../crates/stillpoint/tests/models/mod.rs"]
#[allow(dead_code, reason = "the steps alone")]
mod models;
#[path = "../../crates/stillpoint-vmap/tests/models/vmap.rs"]
mod vmap;

libfuzzer_sys::fuzz_target!(|program: &[u8]| vmap::run(program));
