//! Threads that replace elements, and threads that only wait.

use std::future::Future;
use std::pin::pin;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use stillpoint::lab::{Domain, Policy};
use stillpoint::{CallbackHead, Cookie};

use super::pipe::Pipe;
use super::session::{Session, ThreadCtx};
use super::tally::{Fault, add};

/// A way to have a grace period between a replacement and the element's next step down the pipe.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// `synchronize`.
    Synchronize,
    /// `synchronize_expedited`.
    Expedited,
    /// `get_state`, and `poll` until it is true.
    Poll,
    /// The same in the fewest instructions, and as soon as possible.
    PollAtOnce,
    /// `start_poll`, and now and then a look that ends nothing.
    Promise,
    /// `get_state`, a moment, `cond_synchronize`.
    Cond,
    /// `synchronize_async`, waited for by a thread.
    Future,
    /// `call`, again and again.
    Call,
    /// `call_head`, again and again.
    CallHead,
}

/// The usual ones.
pub const METHODS: &[Method] = &[
    Method::Synchronize,
    Method::Expedited,
    Method::Poll,
    Method::PollAtOnce,
    Method::Promise,
    Method::Cond,
    Method::Future,
    Method::Call,
    Method::CallHead,
];

/// What callbacks need to have, which outlive the calls that queue them.
#[derive(Debug)]
pub struct Shared {
    /// The run.
    pub session: Arc<Session>,
    /// The elements.
    pub pipe: Arc<Pipe>,
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        Self {
            session: Arc::clone(&self.session),
            pipe: Arc::clone(&self.pipe),
        }
    }
}

/// A writer's body: lane number `number` is its own.
pub fn write<P: Policy>(shared: &Shared, domain: &Domain<P>, number: usize, methods: &[Method]) {
    let Shared { session, pipe } = shared;
    let mut ctx = session.thread_ctx("writer", number);
    let lane = &pipe.lanes[number];
    let mut removed: Vec<usize> = Vec::new();
    while !session.is_over() {
        session.beat(number);
        session.wait_while_paused(|| session.beat(number));
        let method = methods[ctx.random.usize(0..methods.len())];
        ctx.spin(if method == Method::PollAtOnce {
            300
        } else {
            2000
        });
        let Some(old) = lane.replace(session) else {
            // All are on their way down the pipe, in callbacks.
            thread::sleep(Duration::from_micros(200));
            continue;
        };
        match method {
            Method::Call => call(shared, domain, number, old),
            Method::CallHead => call_head(shared, domain, number, old),
            _ => {
                removed.push(old);
                lane.begin_grace_period();
                wait(method, domain, &mut ctx);
                lane.end_grace_period();
                removed.retain(|&element| !lane.age(element, session));
            }
        }
    }
}

/// A thread that only waits.
pub fn fake_write<P: Policy>(
    session: &Session,
    domain: &Domain<P>,
    number: usize,
    methods: &[Method],
) {
    let mut ctx = session.thread_ctx("fakewriter", number);
    let who = session.plan.writers + number;
    while !session.is_over() {
        session.beat(who);
        session.wait_while_paused(|| session.beat(who));
        let method = methods[ctx.random.usize(0..methods.len())];
        wait(method, domain, &mut ctx);
        // As rcutorture's: fewer grace periods than those of the writers.
        thread::sleep(Duration::from_micros(ctx.random.u64(10..2000)));
    }
}

/// Waits for a grace period; by `synchronize` where the method is one that does not wait.
///
/// No sign of life is given meanwhile: a cookie that never comes true is a stall like any other. A
/// promise that is not kept can yet come true here, because others end grace periods as well: until
/// the run is over, or if the flavour is isolated.
fn wait<P: Policy>(method: Method, domain: &Domain<P>, ctx: &mut ThreadCtx) {
    let session = ctx.session;
    // What was taken before the wait has to be true after it.
    let before = (method != Method::PollAtOnce && ctx.one_in(4)).then(|| domain.get_state());
    let poll = |cookie: Cookie, pause: &mut dyn FnMut()| {
        while !domain.poll(cookie) {
            pause();
        }
    };
    match method {
        Method::Expedited => domain.synchronize_expedited(),
        Method::Poll => poll(domain.get_state(), &mut || ctx.spin(2000)),
        Method::PollAtOnce => poll(domain.get_state(), &mut || ()),
        Method::Promise => {
            let cookie = domain.start_poll();
            while !domain.has_ended(cookie) {
                thread::sleep(Duration::from_micros(100));
            }
        }
        Method::Cond => {
            let cookie = domain.get_state();
            ctx.spin(2000);
            domain.cond_synchronize(cookie);
        }
        Method::Future => block_on(domain.synchronize_async()),
        Method::Synchronize | Method::Call | Method::CallHead => domain.synchronize(),
    }
    add(&session.tally.waits, 1);
    if let Some(before) = before
        && !domain.poll(before)
    {
        session.tally.fault(Fault::Cookie, || {
            format!("{before:?} was not true after {method:?}, which began later")
        });
    }
}

/// Has a closure age the element after a grace period, and queue itself again until it is dead.
fn call<P: Policy>(shared: &Shared, domain: &Domain<P>, lane: usize, element: usize) {
    let (ours, again) = (shared.clone(), domain.clone());
    let came = Once::new(&shared.session);
    domain.call(move || {
        came.comes(&ours.session);
        if !ours.pipe.lanes[lane].age(element, &ours.session) {
            call(&ours, &again, lane, element);
        }
    });
}

/// A callback that must come once.
struct Once(AtomicBool);

impl Once {
    fn new(session: &Session) -> Self {
        add(&session.tally.queued, 1);
        Self(AtomicBool::new(false))
    }

    fn comes(&self, session: &Session) {
        add(&session.tally.invoked, 1);
        add(&session.tally.waits, 1);
        if self.0.swap(true, Ordering::Relaxed) {
            session
                .tally
                .fault(Fault::Twice, || "a callback was invoked twice".to_owned());
        }
    }
}

/// An embedded callback, the head in front.
#[repr(C)]
struct Job<P: Policy> {
    head: CallbackHead,
    shared: Shared,
    domain: Domain<P>,
    lane: usize,
    element: usize,
    came: Once,
}

/// Like [`call`], by an embedded head.
fn call_head<P: Policy>(shared: &Shared, domain: &Domain<P>, lane: usize, element: usize) {
    unsafe fn run<P: Policy>(head: NonNull<CallbackHead>) {
        // SAFETY: the head is the first field of a boxed `Job<P>` that was leaked for this call.
        let mut job = unsafe { Box::from_raw(head.cast::<Job<P>>().as_ptr()) };
        job.came.comes(&job.shared.session);
        if !job.shared.pipe.lanes[job.lane].age(job.element, &job.shared.session) {
            job.came = Once::new(&job.shared.session);
            queue(job);
        }
    }
    fn queue<P: Policy>(job: Box<Job<P>>) {
        let domain = job.domain.clone();
        let head = NonNull::from(Box::leak(job)).cast();
        // SAFETY: leaked until `run` takes it back; it is Send.
        unsafe { domain.call_head(head, run::<P>) };
    }
    let came = Once::new(&shared.session);
    queue(Box::new(Job {
        head: CallbackHead::new(),
        shared: shared.clone(),
        domain: domain.clone(),
        lane,
        element,
        came,
    }));
}

/// Waits for a future on the calling thread.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
