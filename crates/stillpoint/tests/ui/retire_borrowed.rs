//! What is retired is dropped some time later: it must not borrow.

fn retire(text: &str) {
    let object = std::ptr::NonNull::from(Box::leak(Box::new(text)));
    unsafe { stillpoint::global().retire(object) };
}

fn main() {
    retire("now");
}
