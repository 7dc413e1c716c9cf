//! Prints what the store's operations cost on one thread, and what an item takes.
//!
//! `cargo run --release -p stillpoint-server --example store -- [ITEMS] [VALUE BYTES]`

use std::{fs, hint::black_box, time::Instant};
use stillpoint_server::store::{Condition, Config, Mode, Store};

fn resident() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    kib.unwrap_or(0) << 10
}

fn key(number: u64) -> [u8; 20] {
    let mut key = *b"key-0000000000000000";
    let mut rest = number;
    for digit in key[4..].iter_mut().rev() {
        *digit = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    key
}

fn each(name: &str, count: u64, mut operation: impl FnMut(u64)) {
    let began = Instant::now();
    let mut random = 1u64;
    for _ in 0..count {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1);
        operation(random >> 33);
    }
    let nanos = began.elapsed().as_nanos() as f64 / count as f64;
    println!("{name:24} {nanos:8.1} ns");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|argument| argument.parse::<u64>());
    let items = arguments.next().transpose()?.unwrap_or(1_000_000);
    let len = arguments.next().transpose()?.unwrap_or(100) as usize;
    let store = Store::new(Config {
        limit: 4 << 30,
        ..Config::default()
    })?;
    let tenant = store.tenant("")?;
    let value = vec![7u8; len];
    let put = |number: u64| {
        let stored = tenant.set(&key(number), 0, 0, &value, Mode::Set, Condition::default());
        black_box(stored).expect("there is room");
    };
    let empty = resident();
    let began = Instant::now();
    (0..items).for_each(put);
    let nanos = began.elapsed().as_nanos() as f64 / items as f64;
    println!("{:24} {nanos:8.1} ns", "set, new keys");
    let full = resident();
    let taken = (full - empty) as f64 / items as f64;
    println!("{:24} {taken:8.1} bytes", "an item");
    println!(
        "{:24} {:8.1} bytes",
        "beside key and value",
        taken - (20 + len) as f64
    );
    let hot = items.min(10_000);
    each("get, 10,000 keys", items, |number| {
        black_box(tenant.get(&key(number % hot), |item| item.value()[0]));
    });
    each("get, all keys", items, |number| {
        black_box(tenant.get(&key(number % items), |item| item.value()[0]));
    });
    each("get, absent", items, |number| {
        black_box(tenant.get(&key(items + number), |item| item.value()[0]));
    });
    each("set, 10,000 keys", items, |number| put(number % hot));
    each("set, all keys", items, |number| put(number % items));
    println!("{:?}", store.statistics());
    let (full, began) = (resident(), Instant::now());
    store.set_limit(store.statistics().segment_bytes / 2);
    let took = began.elapsed().as_millis();
    let left = resident();
    println!(
        "half the limit           {took} ms, {:.3} of the memory",
        left as f64 / full as f64
    );
    println!("{:?}", store.statistics());
    each("set, evicting", items, |number| put(items + number));
    Ok(())
}
