//! Areas beside a tree of ranges.

use super::models::Steps;
use std::collections::BTreeMap;
use stillpoint_vmap::{Area, Arena, Error};

const PAGE: usize = 4096;

/// An area's size, what its bytes are, and the area.
struct Live {
    size: usize,
    mark: u8,
    area: Area,
}

/// # Panics
///
/// If the arena does not do as the model.
pub fn run(program: &[u8]) {
    let mut steps = Steps(program);
    let options = steps.byte().unwrap_or(0);
    let built = Arena::builder()
        .capacity(8 << 20)
        .lazy_limit(1 << 20)
        .guards(options & 1 != 0)
        .poison(options & 2 != 0)
        .memory_file(options & 4 != 0)
        .build();
    let arena = built.expect("there is address space");
    let mut model: BTreeMap<usize, Live> = BTreeMap::new();
    let edges = |arena: &Arena, start: usize, size: usize| {
        let mut ends = [1; 2];
        arena.copy_to(start, &mut ends[..1])?;
        arena.copy_to(start + size - 1, &mut ends[1..])?;
        Ok::<_, Error>(ends)
    };
    while let Some(step) = steps.byte() {
        let Some(argument) = steps.byte().map(usize::from) else {
            break;
        };
        match step % 8 {
            0..=3 => {
                let (size, align) = (
                    argument * argument * 7 + usize::from(step) + 1,
                    1 << (argument % 16),
                );
                match arena.alloc(size, align) {
                    Ok(area) => {
                        let (start, mark) = (area.addr(), 1 + (argument % 255) as u8);
                        assert_eq!(start % align, 0);
                        let below = model.range(..start + size).next_back();
                        assert!(
                            below.is_none_or(|(&at, live)| at + live.size <= start),
                            "two areas overlap"
                        );
                        assert_eq!(
                            edges(&arena, start, size).expect("it lives"),
                            [0; 2],
                            "a new area has old bytes"
                        );
                        area.copy_from(0, &vec![mark; size]).expect("it lives");
                        model.insert(start, Live { size, mark, area });
                    }
                    Err(error) => assert!(
                        matches!(error, Error::AddressSpace { waiting: 0, .. }),
                        "{error}"
                    ),
                }
            }
            4 | 5 => {
                if let Some(&start) = model.keys().nth(argument % model.len().max(1)) {
                    let Live { size, mark, area } = model.remove(&start).expect("it is a key");
                    assert_eq!(edges(&arena, start, size).expect("it lives"), [mark; 2]);
                    drop(area);
                    assert!(edges(&arena, start, size).is_err(), "a freed area is found");
                }
            }
            6 => arena.drain().expect("there are no readers"),
            // An address somewhere: found if the model has an area there.
            _ => {
                let addr =
                    arena.addresses().start + (argument << 12 | usize::from(step)) * 37 % (8 << 20);
                let guard = arena.read_lock();
                let found = arena
                    .find(addr, &guard)
                    .map(|found| (found.addr(), found.len()));
                let expected = model
                    .range(..=addr)
                    .next_back()
                    .filter(|&(&start, live)| addr < start + live.size);
                assert_eq!(found, expected.map(|(&start, live)| (start, live.size)));
            }
        }
    }
    let guard = arena.read_lock();
    let walked: Vec<_> = arena
        .areas(&guard)
        .map(|found| (found.addr(), found.len()))
        .collect();
    assert!(
        walked
            .into_iter()
            .eq(model.iter().map(|(&start, live)| (start, live.size)))
    );
    drop(guard);
    assert_eq!(arena.statistics().areas, model.len() as u64);
    model.clear();
    arena.drain().expect("there are no readers");
    let all = arena.alloc(
        (8 << 20) - if arena.statistics().guards { PAGE } else { 0 },
        1,
    );
    assert!(all.is_ok(), "address space is lost: {all:?}");
}
