//! placeholder
use std::time::Instant;
fn main() {
    for n in [1000_u64, 100_000, 2_000_000] {
        let map = stillpoint_map::HashMap::new();
        let mut hb = hashbrown::HashMap::with_hasher(foldhash::fast::RandomState::default());
        let pp = papaya::HashMap::builder().hasher(foldhash::fast::RandomState::default()).build();
        let start = Instant::now();
        for k in 0..n { map.pin().insert(k.wrapping_mul(0x9e3779b97f4a7c15), k); }
        let ins = start.elapsed().as_nanos() as f64 / n as f64;
        let start = Instant::now();
        for k in 0..n { pp.pin().insert(k.wrapping_mul(0x9e3779b97f4a7c15), k); }
        let pins = start.elapsed().as_nanos() as f64 / n as f64;
        for k in 0..n { hb.insert(k.wrapping_mul(0x9e3779b97f4a7c15), k); }
        let m = 4_000_000_u64;
        for _ in 0..3 {
            let mut x = 1_u64; let mut sum = 0;
            let start = Instant::now();
            for _ in 0..m { x = x.wrapping_mul(6364136223846793005).wrapping_add(1); sum += *map.pin().get(&((((x >> 32) * n) >> 32).wrapping_mul(0x9e3779b97f4a7c15))).unwrap(); }
            let a = start.elapsed().as_nanos() as f64 / m as f64;
            let start = Instant::now();
            for _ in 0..m { x = x.wrapping_mul(6364136223846793005).wrapping_add(1); sum += *hb.get(&((((x >> 32) * n) >> 32).wrapping_mul(0x9e3779b97f4a7c15))).unwrap(); }
            let b = start.elapsed().as_nanos() as f64 / m as f64;
            let start = Instant::now();
            for _ in 0..m { x = x.wrapping_mul(6364136223846793005).wrapping_add(1); sum += *pp.pin().get(&((((x >> 32) * n) >> 32).wrapping_mul(0x9e3779b97f4a7c15))).unwrap(); }
            let c = start.elapsed().as_nanos() as f64 / m as f64;
            let mut dep = [0.0; 3];
            let m2 = m / 4;
            macro_rules! dep { ($i:expr, $map:expr, $get:ident) => {{
                let start = Instant::now(); let mut v = 0_u64;
                for _ in 0..m2 { x = (x ^ v).wrapping_mul(6364136223846793005).wrapping_add(1); v = *$get!($map, &((((x >> 32) * n) >> 32).wrapping_mul(0x9e3779b97f4a7c15))); }
                dep[$i] = start.elapsed().as_nanos() as f64 / m2 as f64; sum += v; }} }
            macro_rules! pinned { ($m:expr, $k:expr) => { $m.pin().get($k).unwrap() } }
            macro_rules! plain { ($m:expr, $k:expr) => { $m.get($k).unwrap() } }
            dep!(0, map, pinned); dep!(1, hb, plain); dep!(2, pp, pinned);
            println!("dependent: {:.1} {:.1} {:.1}", dep[0], dep[1], dep[2]);
            println!("{n}: ours {a:.1} hashbrown {b:.1} papaya {c:.1}   insert {ins:.0} papaya {pins:.0}  {sum}");
        }
    }
}
