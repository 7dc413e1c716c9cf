//! A cell's value is dropped some time later: it must not borrow.

fn keep(text: &str) {
    stillpoint::Rcu::new(text).store("static");
}

fn main() {
    keep("now");
}
