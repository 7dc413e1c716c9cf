//! What is retired is freed by another thread: it must be `Send`.

fn retire(object: std::ptr::NonNull<std::rc::Rc<u32>>) {
    unsafe { stillpoint::retire(object) };
}

fn main() {
    retire(Box::leak(Box::new(std::rc::Rc::new(1))).into());
}
