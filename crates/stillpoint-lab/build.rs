//! Compiles the C side of the liburcu peers where liburcu is installed, and sets `cfg(have_liburcu)` there; where it is new enough
//! to have polled grace periods, `cfg(have_liburcu_poll)` as well. Without it the program is built all the same, and says at run
//! time what is missing.

fn main() {
    println!("cargo::rustc-check-cfg=cfg(have_liburcu, have_liburcu_poll)");
    println!("cargo::rerun-if-changed=c");

    // Both flavours come in one package; 0.12 gave each flavour its own function names.
    let mut found = Vec::new();
    for library in ["liburcu-memb", "liburcu-qsbr"] {
        match pkg_config::Config::new().atleast_version("0.12").probe(library) {
            Ok(library) => found.push(library),
            Err(_) => return,
        }
    }

    let mut build = cc::Build::new();
    for library in &found {
        build.includes(&library.include_paths);
    }
    build
        // Asks liburcu for its inlined read side, the best use that its documentation names.
        .define("_LGPL_SOURCE", None)
        // As a C program would be compiled: code for an executable reaches liburcu's thread-local state directly.
        .opt_level(2)
        .pic(false)
        .flag("-fPIE")
        .force_frame_pointer(false)
        // As the workspace's .cargo/config.toml does for Rust, and for its reason: no luck with jumps across 32 bytes.
        .flag_if_supported("-Wa,-mbranches-within-32B-boundaries")
        .warnings(true);
    // Asks for the version alone: what to link is known from above.
    if pkg_config::Config::new().atleast_version("0.14").cargo_metadata(false).probe("liburcu-memb").is_ok() {
        build.define("LAB_HAVE_POLL", None);
        println!("cargo::rustc-cfg=have_liburcu_poll");
    }
    build.files(["c/urcu_memb.c", "c/urcu_qsbr.c"]).compile("stillpoint_lab_urcu");
    println!("cargo::rustc-cfg=have_liburcu");
}
