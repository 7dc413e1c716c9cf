//! Sessions in a concurrent map that tasks on tokio share: a request keeps its session across its
//! `.await`s, even if another task ends the session meanwhile.
//!
//! `cargo run --release -p config-reload --bin session_tasks` checks this, and fails otherwise.

use std::{
    sync::{
        LazyLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use stillpoint::tasks_trace::TraceDomain;
use stillpoint_map::HashMap;
use tokio::{task::JoinSet, time::sleep};

const SESSIONS: u64 = 200;
/// Time to answer a request, as with a database.
const WORK: Duration = Duration::from_millis(5);

/// Users whose session has been dropped.
static DROPPED: AtomicUsize = AtomicUsize::new(0);

struct Session {
    user: String,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.user.clear();
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

/// In a separate domain, because tasks hold their sections across `.await`.
static SESSIONS_OF: LazyLock<HashMap<u64, Session>> =
    LazyLock::new(|| HashMap::new_in(&TraceDomain::new()));

/// Answers from the session that it found, whatever happens to the map meanwhile. The section may
/// change threads at each `.await`.
async fn answer(id: u64) -> Option<String> {
    let sessions = SESSIONS_OF.pin_owned();
    let session = sessions.get(&id)?;
    sleep(WORK).await;
    Some(format!("hello {}", session.user))
}

/// Ends a session. Does not wait for the requests that still use it.
async fn log_out(id: u64) -> bool {
    sleep(WORK / 2).await;
    SESSIONS_OF.pin().remove(&id).is_some()
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    for id in 0..SESSIONS {
        let user = format!("user {id}");
        SESSIONS_OF.pin().insert(id, Session { user });
    }
    let mut requests = JoinSet::new();
    let mut ends = JoinSet::new();
    for id in 0..SESSIONS {
        requests.spawn(async move { (id, answer(id).await) });
        ends.spawn(log_out(id));
    }
    let mut answered = 0;
    while let Some(request) = requests.join_next().await {
        let (id, answer) = request.expect("no request panics");
        if let Some(answer) = answer {
            assert_eq!(
                answer,
                format!("hello user {id}"),
                "its session was dropped"
            );
            answered += 1;
        }
    }
    while let Some(ended) = ends.join_next().await {
        assert!(ended.expect("no task panics"), "each session is ended once");
    }
    assert!(answered > 0, "requests found sessions");
    assert!(SESSIONS_OF.is_empty());
    // All requests are done. After a grace period the sessions are dropped, each once.
    tokio::task::spawn_blocking(|| SESSIONS_OF.domain().kvfree_barrier())
        .await
        .expect("it does not panic");
    assert_eq!(DROPPED.load(Ordering::Relaxed), SESSIONS as usize);
    println!("{answered} requests answered beside {SESSIONS} log-outs; all sessions dropped");
}
