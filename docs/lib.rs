//! The manual of Stillpoint, which is an mdBook: the chapters are in `src/`, in the order of
//! `src/SUMMARY.md`.
//!
//! This crate has no code of its own. It is there so that `cargo test` runs the chapters' Rust (as
//! doc tests, below) and checks the rest: `tests/manual` compiles and runs their C and C++, and
//! follows their links and commands.
//!
//! To read it as a book: `cargo install mdbook`, then `mdbook serve docs`.

/// One item a chapter, for its doc tests. A test checks that none is missing.
#[cfg(doctest)]
mod chapters {
    macro_rules! chapter {
        ($name:ident, $file:literal) => {
            #[doc = include_str!($file)]
            mod $name {}
        };
    }
    chapter!(start, "src/start.md");
    chapter!(flavours, "src/flavours.md");
    chapter!(map, "src/map.md");
    chapter!(sleepable, "src/sleepable.md");
    chapter!(tokio_and_axum, "src/async.md");
    chapter!(cache, "src/cache.md");
    chapter!(tenants, "src/tenants.md");
    chapter!(vmap, "src/vmap.md");
    chapter!(stillcache, "src/stillcache.md");
    chapter!(stalls, "src/stalls.md");
    chapter!(production, "src/production.md");
    chapter!(from_arc_swap, "src/from-arc-swap.md");
    chapter!(from_locked_maps, "src/from-locked-maps.md");
    chapter!(from_crossbeam_epoch, "src/from-crossbeam-epoch.md");
    chapter!(from_seize, "src/from-seize.md");
    chapter!(from_liburcu, "src/from-liburcu.md");
    chapter!(from_kernel, "src/from-kernel.md");
    chapter!(c_and_cpp, "src/c-and-cpp.md");
    chapter!(stability, "src/stability.md");
    chapter!(proofs, "src/proofs.md");
    chapter!(limits, "src/limits.md");
    chapter!(platforms, "src/platforms.md");
    chapter!(process, "src/process.md");
    chapter!(five_systems, "src/five-systems.md");
    chapter!(lab, "src/lab.md");
    chapter!(figures, "src/figures.md");
    chapter!(carry_on, "src/carry-on.md");
    chapter!(testing, "src/testing.md");
}

/// The repository's README beside them: the package has one of its own.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
