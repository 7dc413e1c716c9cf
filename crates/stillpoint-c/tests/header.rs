//! The header of functions is the one that cbindgen makes of the sources.

use std::{env, fs, path::Path};

#[test]
fn the_header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut made = Vec::new();
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("a configuration");
    let builder = ["arena", "border", "callback", "domain", "kvfree", "lru", "pressure", "qsbr", "reader", "tenant"]
        .iter()
        .fold(cbindgen::Builder::new().with_config(config), |builder, file| {
            builder.with_src(root.join(format!("src/{file}.rs")))
        });
    builder.generate().expect("bindings").write(&mut made);
    let made = String::from_utf8(made).expect("text");
    let path = root.join("include/stillpoint/functions.h");
    if env::var_os("STILLPOINT_BLESS").is_some() {
        fs::write(&path, &made).expect("the header is written");
    }
    let kept = fs::read_to_string(&path).unwrap_or_default();
    assert!(made == kept, "functions.h is not what the sources say: run this test with STILLPOINT_BLESS=1 in the environment");
}
