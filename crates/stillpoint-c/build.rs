//! Compiles the thread-local state that C's inlined read side uses: stable Rust cannot give such a
//! thing a name that C knows.

fn main() {
    println!("cargo::rerun-if-changed=src/thread.c");
    cc::Build::new()
        .file("src/thread.c")
        .include("include")
        .std("c11")
        .pic(true)
        .warnings(true)
        .extra_warnings(true)
        .compile("stillpoint_thread");
    let files = std::fs::read_dir("compat/runtime")
        .expect("compat/runtime")
        .map(|file| file.expect("a file").path());
    let mut compat: Vec<_> = files
        .filter(|path| path.extension().is_some_and(|end| end == "c"))
        .collect();
    compat.sort();
    for place in ["compat/runtime", "include/stillpoint"] {
        println!("cargo::rerun-if-changed={place}");
    }
    // Initial-exec, as the inlined readers' state: a general access is a call.
    cc::Build::new()
        .files(compat)
        .include("include")
        .include("include/stillpoint/compat")
        .std("c11")
        .pic(true)
        .flag("-ftls-model=initial-exec")
        .warnings(true)
        .extra_warnings(true)
        .compile("stillpoint_urcu");
}
