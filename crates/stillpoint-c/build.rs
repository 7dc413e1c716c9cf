//! Compiles the thread-local state that C's inlined read side uses: stable Rust cannot give such a thing a name that C knows.

fn main() {
    println!("cargo::rerun-if-changed=src/thread.c");
    println!("cargo::rerun-if-changed=include/stillpoint/types.h");
    cc::Build::new()
        .file("src/thread.c")
        .include("include")
        .std("c11")
        .pic(true)
        .warnings(true)
        .extra_warnings(true)
        .compile("stillpoint_thread");
}
