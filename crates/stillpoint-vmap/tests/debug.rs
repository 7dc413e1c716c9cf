//! Texts for people: the Debug output of each public type identifies the value, and each error says
//! what to do.
#![cfg(all(target_os = "linux", target_pointer_width = "64", not(miri)))]

use stillpoint_vmap::{Arena, Builder, Error};

#[test]
fn debug_of_areas() {
    let arena = Builder::default().capacity(64 << 20).build().unwrap();
    let area = arena.alloc(5000, 1).unwrap();
    let at = format!("{:#x}", area.addr());
    let guard = arena.read_lock();
    let checked = arena.check(area.addr() + 1, 12, &guard).unwrap();
    for (shown, says) in [
        (format!("{area:?}"), [at.as_str(), "len: 5000"]),
        (format!("{checked:?}"), ["Checked", "len: 12"]),
        (format!("{arena:?}"), ["addresses: ", "areas: 1"]),
        (format!("{:?}", arena.reader(7..19)), ["Reader", "7..19"]),
    ] {
        says.iter()
            .for_each(|part| assert!(shown.contains(part), "no '{part}' in: {shown}"));
    }
    assert_eq!(arena, arena.clone());
    assert_ne!(arena, Arena::new().unwrap());
}

#[test]
fn error_messages() {
    let system = |call, errno| Error::System { call, errno };
    let space = |waiting| Error::AddressSpace {
        size: 5,
        capacity: 7,
        waiting,
    };
    let errors = [
        (Error::ZeroSize, "0 bytes|ask for 1"),
        (Error::BadAlign { align: 24 }, "24|power of two"),
        (
            Error::TooLarge { size: 9, most: 8 },
            "9 bytes|8 are the most|split it up",
        ),
        (
            space(0),
            "5 bytes|the arena's 7|free some areas|larger capacity",
        ),
        (
            space(3),
            "3 that have been freed wait for readers|drop the calling thread's guards",
        ),
        (Error::PageSize { size: 65_536 }, "65536|4096"),
        (Error::Forked, "allocate in the parent"),
        (
            Error::Overflow {
                addr: 0xFFF0,
                len: 77,
            },
            "77 bytes|0xfff0|check the length",
        ),
        (Error::NotLive { addr: 0x1234 }, "0x1234|Arena::describe"),
        (
            Error::CrossesEnd {
                addr: 0x100,
                len: 0x20,
                end: 0x110,
            },
            "0x100|0x110|shorten the range by 16",
        ),
        (
            Error::NotAStart {
                addr: 0x1008,
                start: 0x1000,
            },
            "0x1008|free its first address, 0x1000",
        ),
        (Error::InSection, "drop the guard first"),
        (
            system("mmap", libc::ENOMEM),
            "mmap|ulimit -v|vm.max_map_count|smaller capacity",
        ),
        (
            system("mprotect", libc::ENOMEM),
            "mprotect|vm.overcommit_memory",
        ),
        (system("madvise", libc::ENOMEM), "madvise|try again"),
        (
            system("memfd_create", libc::EMFILE),
            "memfd_create|ulimit -n",
        ),
        (system("madvise", libc::EPERM), "seccomp"),
        (system("ftruncate", libc::EIO), "ftruncate|manual page"),
    ];
    for (error, says) in errors {
        let text = error.to_string();
        for part in says.split('|') {
            assert!(text.contains(part), "no '{part}' in: {text}");
        }
    }
}
