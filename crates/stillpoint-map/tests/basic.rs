//! placeholder
use std::collections::HashMap as Std;
use stillpoint_map::HashMap;

#[test]
fn like_std() {
    let map = HashMap::new();
    let mut std = Std::new();
    let mut x = 1_u64;
    for i in 0..400_000_u64 {
        x = x
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        let key = (x >> 33) % 50_000;
        let pinned = map.pin();
        if i > 300_000 || (x >> 20).is_multiple_of(3) {
            assert_eq!(pinned.remove(&key).copied(), std.remove(&key));
        } else {
            assert_eq!(pinned.insert(key, i).copied(), std.insert(key, i));
        }
        assert_eq!(map.len(), std.len());
        if i % 20_000 == 0 {
            let mut all: Vec<_> = pinned.iter().map(|(k, v)| (*k, *v)).collect();
            let mut theirs: Vec<_> = std.iter().map(|(k, v)| (*k, *v)).collect();
            all.sort();
            theirs.sort();
            assert_eq!(all, theirs);
        }
    }
    for key in 0..50_000 {
        assert_eq!(map.pin().get(&key), std.get(&key));
    }
}

#[test]
fn threads() {
    let map = HashMap::new();
    std::thread::scope(|scope| {
        for t in 0..4_u64 {
            let map = &map;
            scope.spawn(move || {
                for round in 0..5 {
                    for k in 0..20_000_u64 {
                        assert_eq!(map.pin().insert(k * 4 + t, format!("{k}")), None);
                    }
                    for k in 0..20_000_u64 {
                        assert_eq!(map.pin().get(&(k * 4 + t)).unwrap(), &format!("{k}"));
                    }
                    for k in 0..20_000_u64 {
                        assert_eq!(map.pin().remove(&(k * 4 + t)).unwrap(), &format!("{k}"));
                    }
                    let _ = round;
                }
            });
        }
    });
    assert_eq!(map.len(), 0);
    assert_eq!(map.pin().iter().count(), 0);
}
