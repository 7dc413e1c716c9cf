//! Loads: one for all callers, whatever becomes of the loader.

use std::{
    convert::Infallible,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::{Pin, pin},
    sync::{
        Arc, Barrier,
        atomic::{AtomicUsize, Ordering},
        mpsc,
    },
    task::{Context, Poll, Waker},
    thread,
};
use stillpoint_cache::Cache;

fn cache() -> Cache<u32, u32> {
    Cache::with_bytes(1 << 20)
}

fn poll<F: Future>(future: &mut Pin<&mut F>) -> Poll<F::Output> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}

/// Pends once.
async fn pend() {
    let mut pended = false;
    std::future::poll_fn(|_| {
        if std::mem::replace(&mut pended, true) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

#[test]
fn many_callers_share_one_load() {
    let (cache, loads, start) = (cache(), AtomicUsize::new(0), Barrier::new(8));
    thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                start.wait();
                for key in 0..100 {
                    let value = cache.get_with(key, || {
                        loads.fetch_add(1, Ordering::Relaxed);
                        thread::yield_now();
                        key * 2
                    });
                    assert_eq!(value, key * 2);
                }
            });
        }
    });
    assert_eq!(loads.load(Ordering::Relaxed), 100);
    assert_eq!(cache.statistics().loads, 100);
}

#[test]
fn an_error_is_for_all_who_wait_and_is_not_kept() {
    let cache = cache();
    let (began, begin) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let leader = scope.spawn(|| {
            cache.try_get_with(1, move || {
                began.send(()).unwrap();
                ended.recv().unwrap();
                Err::<u32, &str>("no answer")
            })
        });
        begin.recv().unwrap();
        let mut waiter = pin!(cache.try_get_with_async(1, async { Ok::<u32, &str>(7) }));
        assert!(poll(&mut waiter).is_pending());
        end.send(()).unwrap();
        assert_eq!(*leader.join().unwrap().unwrap_err(), "no answer");
        let Poll::Ready(Err(error)) = poll(&mut waiter) else {
            panic!("the flight has ended");
        };
        assert_eq!(*error, "no answer");
    });
    assert_eq!(cache.get_with(1, || 8), 8);
    assert_eq!(cache.statistics().load_failures, 1);
}

#[test]
fn a_panic_is_its_callers_alone() {
    let cache = cache();
    let panicked = catch_unwind(AssertUnwindSafe(|| {
        cache.get_with(1, || std::panic::resume_unwind(Box::new("expected")))
    }));
    assert!(panicked.is_err());
    assert_eq!(cache.get_with(1, || 5), 5);
}

#[test]
fn a_load_that_is_cancelled_is_taken_up_by_another_caller() {
    let cache = cache();
    let mut first = Box::pin(cache.get_with_async(1, std::future::pending::<u32>()));
    assert!(poll(&mut first.as_mut()).is_pending());
    let mut second = pin!(cache.get_with_async(1, async {
        pend().await;
        6
    }));
    assert!(poll(&mut second).is_pending(), "it waits");
    drop(first);
    assert!(poll(&mut second).is_pending(), "it loads");
    assert_eq!(poll(&mut second), Poll::Ready(6));
    assert_eq!(cache.get(&1), Some(6));
    let statistics = cache.statistics();
    assert_eq!((statistics.loads, statistics.load_failures), (1, 1));
}

#[test]
fn a_loader_may_ask_for_its_own_key() {
    let cache = cache();
    let value = cache.get_with(1, || cache.get_with(1, || 3) + cache.get_with(2, || 4));
    assert_eq!((value, cache.get(&1), cache.get(&2)), (7, Some(7), Some(4)));
    let mut outer = pin!(cache.get_with_async(3, async {
        pend().await;
        cache.get_with_async(3, async { 1 }).await + 1
    }));
    assert!(poll(&mut outer).is_pending());
    assert_eq!(poll(&mut outer), Poll::Ready(2));
}

#[test]
fn a_waiter_with_another_error_loads_itself() {
    let cache = cache();
    let mut first = Box::pin(cache.try_get_with_async(1, async {
        pend().await;
        Err::<u32, String>("no".to_owned())
    }));
    assert!(poll(&mut first.as_mut()).is_pending());
    let mut second = pin!(cache.try_get_with_async(1, async { Ok::<u32, Infallible>(9) }));
    assert!(poll(&mut second).is_pending());
    assert!(matches!(poll(&mut first.as_mut()), Poll::Ready(Err(_))));
    assert!(matches!(poll(&mut second), Poll::Ready(Ok(9))));
}

#[test]
fn futures_of_loads_may_change_threads() {
    fn is_send<T: Send>(value: T) -> T {
        value
    }
    let cache = Arc::new(cache());
    let load = is_send(cache.get_with_async(1, async { 2 }));
    assert_eq!(poll(&mut pin!(load)), Poll::Ready(2));
}
