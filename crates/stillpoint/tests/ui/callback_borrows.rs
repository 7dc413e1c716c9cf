//! A callback runs some time later: it must not borrow.

fn later(text: &str) {
    stillpoint::call(move || println!("{text}"));
}

fn main() {
    later("now");
}
