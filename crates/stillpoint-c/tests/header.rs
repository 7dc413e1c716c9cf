//! The header of functions is what cbindgen makes of the sources.

use std::{fs, path::Path};

/// This crate, and the library's structs that C has as they are.
const SOURCES: [&str; 5] = [
    "src/lib.rs",
    "../stillpoint/src/histogram.rs",
    "../stillpoint/src/statistics.rs",
    "../stillpoint-lru/src/statistics.rs",
    "../stillpoint-vmap/src/arena/statistics.rs",
];

#[test]
fn the_header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("a configuration");
    let builder = SOURCES
        .map(|file| root.join(file))
        .into_iter()
        .fold(cbindgen::Builder::new(), cbindgen::Builder::with_src);
    let mut header = Vec::new();
    builder
        .with_config(config)
        .generate()
        .expect("bindings")
        .write(&mut header);
    let path = root.join("include/stillpoint/functions.h");
    if fs::read(&path).ok().as_ref() != Some(&header) {
        fs::write(&path, &header).expect("the header can be written");
        panic!(
            "functions.h was not what the sources say. It is now: look at the change, and run the test again. (What is built includes it: if it does \
             not compile, check the old one out first.)"
        );
    }
}
