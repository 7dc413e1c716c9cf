//! Readers that are tasks: they hold their sections across awaits, move between threads meanwhile,
//! and are cancelled there.

use std::sync::Arc;
use std::time::Duration;

use stillpoint::{lab::core_of, tasks_trace::TraceDomain};
use tokio::runtime::Builder;
use tokio::time::{sleep, timeout};

use super::pipe_test::PipeTest;
use crate::torture::harness::ThreadSpec;
use crate::torture::session::{Session, ThreadCtx};
use crate::torture::writers::Shared;

/// Tasks for each reader that was asked for.
const TASKS_EACH: usize = 16;

/// The flavour.
pub fn run(session: &Arc<Session>) {
    let domain = TraceDomain::starting_at(session.first_cookie());
    let test = PipeTest::new(session, core_of(&domain));
    let mut threads = test.writers();
    threads.push(ThreadSpec::new("executor", || {
        let threads = session.plan.readers.clamp(1, 4);
        let runtime = Builder::new_multi_thread()
            .worker_threads(threads)
            .enable_time()
            .build()
            .expect("there are threads");
        let tasks = (0..session.plan.readers * TASKS_EACH)
            .map(|number| read_loop(test.shared.clone(), domain.clone(), number));
        let tasks: Vec<_> = tasks.map(|task| runtime.spawn(task)).collect();
        for task in tasks {
            if let Err(panicked) = runtime.block_on(task) {
                std::panic::resume_unwind(panicked.into_panic());
            }
        }
    }));
    // SAFETY: the child goes on with no guard of the parent's, and has one thread.
    let in_child = || unsafe { domain.abandon_owned_guards() };
    test.run(&in_child, threads);
}

async fn read_loop(shared: Shared, domain: TraceDomain, number: usize) {
    let mut ctx = shared.session.thread_ctx("task", number);
    while !shared.session.is_over() {
        let limit = Duration::from_micros(ctx.random.u64(100..5000));
        // Some run into their time limits and are dropped where they are, guard and all.
        let _ = timeout(limit, section(&shared, &domain, &mut ctx)).await;
        if ctx.one_in(16) {
            domain.synchronize_async().await;
        }
        tokio::task::yield_now().await;
    }
}

async fn section(shared: &Shared, domain: &TraceDomain, ctx: &mut ThreadCtx<'_>) {
    let guard = domain.read_lock_static();
    let visit = shared.pipe.begin(core_of(domain), ctx);
    for _ in 0..ctx.random.u32(0..4) {
        if ctx.one_in(8) {
            sleep(Duration::from_micros(ctx.random.u64(50..3000))).await;
        } else {
            tokio::task::yield_now().await;
        }
    }
    shared.pipe.end(visit, core_of(domain), ctx);
    drop(guard);
}
