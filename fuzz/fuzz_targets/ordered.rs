//! The model `ordered.rs` over what libFuzzer finds: five bytes a step.
#![no_main]

#[path = "../../crates/stillpoint-map/tests/models/ordered.rs"]
mod model;

/// Keys of the random programs.
const KEYS: u16 = 2000;

libfuzzer_sys::fuzz_target!(|program: &[u8]| {
    let key = |low, high| u16::from_le_bytes([low, high]) % KEYS;
    let steps = program.as_chunks::<5>().0.iter();
    let program: Vec<_> = steps
        .map(|[step, a, b, c, d]| (*step, key(*a, *b), key(*c, *d)))
        .collect();
    model::run_all(&program);
});
