//! Readers by guards, of one thread each: rcu and rcu-fence, and most of the broken flavours.

use std::sync::Arc;

use stillpoint::lab::{Domain, Policy, Sound};

use super::broken::{NoBarriers, NoHeavyBarrier};
use super::pipe_test::PipeTest;
use crate::torture::disturb;
use crate::torture::harness::{Harness, ThreadSpec};
use crate::torture::session::{Session, ThreadCtx};
use crate::torture::store_buffer::StoreBufferStress;
use crate::torture::writers::Method;

/// Tortures a domain with the policy `P`, by membarrier where there is one.
pub fn torture<P: Policy>(session: &Arc<Session>) {
    run(session, &Domain::<P>::starting_at(session.first_cookie()));
}

/// Fences on both sides.
pub fn rcu_fence(session: &Arc<Session>) {
    run(
        session,
        &Domain::<Sound>::fencing_from(session.first_cookie()),
    );
}

/// No heavy barrier. Elements are looked at as soon as they are found, in sections whose beginning
/// is still in the store buffer.
pub fn busted_membarrier(session: &Arc<Session>) {
    let domain = Domain::<NoHeavyBarrier>::starting_at(session.first_cookie());
    let test = PipeTest {
        methods: &[Method::PollAtOnce],
        ..PipeTest::new(session, &domain)
    };
    let body = |ctx: &mut ThreadCtx| read_loop(&test, ctx, with_full_store_buffer);
    // A reader and a writer take turns on each processor, so that there are one of each on two of
    // them at some time soon.
    let writers = test.writers().into_iter().zip(0..);
    let threads = writers.chain(test.readers(&body).zip(1..));
    test.run(
        &|| (),
        threads
            .map(|(spec, number)| spec.pinned_to(number))
            .collect(),
    );
}

/// Barriers that do not wait, beside threads that rely on them.
pub fn busted_barrier(session: &Arc<Session>) {
    let domain = Domain::<NoBarriers>::starting_at(session.first_cookie());
    let test = PipeTest::new(session, &domain);
    let visit = |ctx: &mut ThreadCtx| test.visit(ctx);
    let harness = Harness {
        domain: &domain,
        visit: &visit,
        visit_in_handler: None,
        in_child: &|| (),
    };
    let body = |ctx: &mut ThreadCtx| read_loop(&test, ctx, nested);
    let mut threads = test.writers();
    threads.extend(test.readers(&body));
    threads.push(ThreadSpec::new("barrier", || {
        (0..)
            .take_while(|_| !session.is_over())
            .for_each(|round| disturb::callbacks::barrier(session, &harness, round));
    }));
    test.run(&|| (), threads);
}

type Read<P> = fn(&PipeTest<P>, &mut ThreadCtx, &StoreBufferStress);

fn run<P: Policy>(session: &Arc<Session>, domain: &Domain<P>) {
    let test = PipeTest::new(session, domain);
    let body = |ctx: &mut ThreadCtx| read_loop(&test, ctx, nested);
    let mut threads = test.writers();
    threads.extend(test.readers(&body));
    test.run(&|| (), threads);
}

fn read_loop<P: Policy>(test: &PipeTest<P>, ctx: &mut ThreadCtx, read: Read<P>) {
    let stress = StoreBufferStress::default();
    let session = &test.shared.session;
    while !session.is_over() {
        session.wait_while_paused(|| ());
        read(test, ctx, &stress);
    }
}

/// A section in which guards take turns, so that it ends with another than the one that it began
/// with; or one that is slow to become visible.
fn nested<P: Policy>(test: &PipeTest<P>, ctx: &mut ThreadCtx, stress: &StoreBufferStress) {
    if ctx.one_in(4) {
        return with_full_store_buffer(test, ctx, stress);
    }
    let mut guard = test.domain.read_lock();
    let visit = test.shared.pipe.begin(test.domain, ctx);
    ctx.delay();
    for _ in 0..ctx.random.u32(0..3) {
        let inner = test.domain.read_lock();
        ctx.delay();
        guard = inner;
    }
    test.shared.pipe.end(visit, test.domain, ctx);
    if ctx.one_in(16) {
        stress.delay_later_stores();
    }
    drop(guard);
}

/// A section whose beginning takes its time to become visible, and whose look is quick.
fn with_full_store_buffer<P: Policy>(
    test: &PipeTest<P>,
    ctx: &mut ThreadCtx,
    stress: &StoreBufferStress,
) {
    let lane = ctx.random.usize(0..test.shared.pipe.lanes.len());
    stress.delay_later_stores();
    let guard = test.domain.read_lock();
    let visit = test.shared.pipe.find(lane);
    ctx.spin(64);
    test.shared.pipe.end(visit, test.domain, ctx);
    drop(guard);
}
