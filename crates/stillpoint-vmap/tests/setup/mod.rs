//! What the tests share: arenas, and looks at what is in them.
#![allow(dead_code, reason = "each test program uses a part of this")]

#[path = "../../../stillpoint/tests/common/mod.rs"]
pub mod common;

use stillpoint_vmap::{Area, Arena, Builder};

pub const PAGE: usize = 4096;

/// Returns an arena of `mib` MiB with the given options.
pub fn arena_with(mib: usize, options: impl FnOnce(Builder) -> Builder) -> Arena {
    let builder = options(Arena::builder().capacity(mib << 20));
    builder.build().expect("address space")
}

pub fn arena(mib: usize) -> Arena {
    arena_with(mib, |builder| builder)
}

/// Allocates `count` areas of `pages` each, and fills them with `byte`.
pub fn areas(arena: &Arena, count: usize, pages: usize, byte: u8) -> Vec<Area> {
    let area = |_| {
        let area = arena.alloc(pages * PAGE, 1).unwrap();
        area.copy_from(0, &vec![byte; pages * PAGE]).unwrap();
        area
    };
    (0..count).map(area).collect()
}

/// Returns the value of the bytes at `addr`, if they are found and all the same.
pub fn all_bytes(arena: &Arena, addr: usize, len: usize) -> Option<u8> {
    let mut bytes = vec![0; len];
    arena.copy_to(addr, &mut bytes).ok()?;
    bytes
        .iter()
        .all(|&byte| byte == bytes[0])
        .then_some(bytes[0])
}
