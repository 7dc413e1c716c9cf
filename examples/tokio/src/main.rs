//! A server on tokio that reloads its configuration under load, without locks; no request sees two
//! configurations.
//!
//! A request takes an owned guard and holds it across its `.await`s, on any threads: its
//! configuration stays unchanged until it is done. A reload swaps in the new one and waits for
//! earlier requests, as a future, while they run; only then does it take the old one apart. One
//! request is slow on purpose: it takes the first configuration before anything is reloaded, and is
//! done only after many reloads.
//!
//! `cargo run --release -p config-reload`: a server on the loopback interface, its clients and 200
//! reloads in one program. It checks all this, and fails otherwise.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::{
        LazyLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};
use stillpoint::{
    Rcu,
    tasks_trace::{OwnedGuard, TraceDomain},
};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
    time::{sleep, timeout},
};

const RELOADS: u64 = 200;
const CLIENTS: usize = 8;
/// Time to answer a request, as with a database.
const WORK: Duration = Duration::from_millis(2);
/// Number of reloads during the slow request.
const MEANWHILE: u64 = 50;
/// Longer than anything here should take on any machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Longer than that many reloads should take; otherwise the slow request holds them up, which is
/// reported.
const PATIENCE: Duration = Duration::from_secs(30);

/// Settings that an operator may change while the server runs.
#[derive(Debug)]
struct Config {
    version: u64,
    greeting: String,
    /// Derived from the version, to detect a mixture.
    backends: Vec<String>,
}

/// Number of configurations that exist.
static ALIVE: AtomicUsize = AtomicUsize::new(0);

impl Config {
    fn load(version: u64) -> Self {
        ALIVE.fetch_add(1, Ordering::Relaxed);
        let backends = (0..4)
            .map(|number| format!("backend-{number}.v{version}"))
            .collect();
        Self {
            version,
            greeting: format!("hello from v{version}"),
            backends,
        }
    }

    fn is_whole(&self) -> bool {
        let mark = format!("v{}", self.version);
        self.greeting.ends_with(&mark)
            && self.backends.iter().all(|backend| backend.ends_with(&mark))
    }
}

impl Drop for Config {
    fn drop(&mut self) {
        ALIVE.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The server's readers have a separate domain: a slow request delays only this configuration's
/// reloads.
static DOMAIN: LazyLock<TraceDomain> = LazyLock::new(TraceDomain::new);
static CONFIG: LazyLock<Rcu<Config>> = LazyLock::new(|| Rcu::new_in(&DOMAIN, Config::load(0)));
static DONE: AtomicBool = AtomicBool::new(false);
/// Number of reloads that have swapped in their configuration.
static SWAPPED: AtomicU64 = AtomicU64::new(0);
/// Set once the slow request has its configuration.
static SLOW_HOLDS: Notify = Notify::const_new();
/// Number of reloads while it had it.
static SWAPPED_MEANWHILE: AtomicU64 = AtomicU64::new(0);

/// Answers a request from one configuration, whatever is loaded meanwhile. The guard may change
/// threads at each `.await`.
async fn answer(request: &str, guard: OwnedGuard<'_>) -> String {
    let config = CONFIG.load(&guard);
    let backend = &config.backends[request.len() % config.backends.len()];
    if request == "slow" {
        work_slowly().await
    } else {
        sleep(WORK).await
    }
    assert!(config.is_whole(), "a configuration changed under a request");
    let answer = format!("{} {backend} {}\n", config.version, config.greeting);
    // Optional: it would be dropped here anyway. The borrow checker ensures that no borrow of the
    // configuration outlives it.
    drop(guard);
    answer
}

/// Waits as the slow request, while it holds its configuration.
async fn work_slowly() {
    let before = SWAPPED.load(Ordering::Relaxed);
    let swapped = || SWAPPED.load(Ordering::Relaxed) - before;
    SLOW_HOLDS.notify_one();
    let reloaded = async {
        while swapped() < MEANWHILE {
            sleep(WORK).await;
        }
    };
    // The end of the program checks whether that was enough.
    drop(timeout(PATIENCE, reloaded).await);
    SWAPPED_MEANWHILE.store(swapped(), Ordering::Relaxed);
}

/// Serves a connection: one line per request and answer.
async fn serve(stream: TcpStream) -> std::io::Result<()> {
    let (input, mut output) = stream.into_split();
    let mut lines = BufReader::new(input).lines();
    while let Some(request) = lines.next_line().await? {
        let answer = answer(&request, DOMAIN.read_lock_static().named(request.as_str())).await;
        output.write_all(answer.as_bytes()).await?;
    }
    Ok(())
}

/// A client's connection.
struct Client {
    lines: tokio::io::Lines<BufReader<tokio::net::tcp::OwnedReadHalf>>,
    output: tokio::net::tcp::OwnedWriteHalf,
}

impl Client {
    async fn connect(server: SocketAddr) -> std::io::Result<Self> {
        let (input, output) = TcpStream::connect(server).await?.into_split();
        Ok(Self {
            lines: BufReader::new(input).lines(),
            output,
        })
    }

    /// Returns the version in the answer.
    async fn ask(&mut self, request: &str) -> std::io::Result<u64> {
        self.output
            .write_all(format!("{request}\n").as_bytes())
            .await?;
        let answer = self
            .lines
            .next_line()
            .await?
            .expect("the server answers every request");
        let (version, rest) = answer.split_once(' ').expect("it begins with the version");
        let mark = format!("v{version}");
        assert!(
            rest.split(' ')
                .next()
                .is_some_and(|backend| backend.ends_with(&mark)),
            "a mixture of two configurations: {answer}"
        );
        assert!(
            rest.ends_with(&mark),
            "a mixture of two configurations: {answer}"
        );
        Ok(version.parse().expect("a number"))
    }
}

/// Sends requests until the reloads are done. Returns the number of answers.
async fn client(server: SocketAddr, number: usize) -> std::io::Result<u64> {
    let mut client = Client::connect(server).await?;
    let (mut answers, mut newest) = (0, 0);
    loop {
        let version = client.ask(&"x".repeat(number)).await?;
        assert!(
            version >= newest,
            "an answer from a configuration that had been replaced before the request came"
        );
        newest = version;
        answers += 1;
        if DONE.load(Ordering::Relaxed) {
            return Ok(answers);
        }
    }
}

/// Reloads while requests are served. A separate task waits out each old configuration, so that a
/// slow request holds up no reload.
async fn reload() {
    let mut retiring = JoinSet::new();
    for version in 1..=RELOADS {
        let mut old = CONFIG.swap(Config::load(version));
        SWAPPED.fetch_add(1, Ordering::Relaxed);
        retiring.spawn(async move {
            DOMAIN.cond_synchronize_async(old.cookie()).await;
            // No request uses it any longer, so its owner may change or close it.
            let old = old.try_into_box().expect("its grace period has ended");
            assert!(old.is_whole());
        });
        sleep(Duration::from_millis(5)).await;
    }
    while let Some(done) = retiring.join_next().await {
        done.expect("no task panics");
    }
}

async fn run() -> std::io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let server = listener.local_addr()?;
    let accepting = tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((stream, _)) => drop(tokio::spawn(serve(stream))),
                Err(error) => return error,
            }
        }
    });

    let mut clients: JoinSet<_> = (0..CLIENTS).map(|number| client(server, number)).collect();
    let mut slow = Client::connect(server).await?;
    let slow = tokio::spawn(async move { slow.ask("slow").await });
    SLOW_HOLDS.notified().await;

    reload().await;
    DONE.store(true, Ordering::Relaxed);

    let mut answers = 0;
    while let Some(client) = clients.join_next().await {
        answers += client.expect("no client panics")?;
    }
    let slow = slow.await.expect("the slow client does not panic")?;
    accepting.abort();

    let meanwhile = SWAPPED_MEANWHILE.load(Ordering::Relaxed);
    println!(
        "{answers} requests answered beside {RELOADS} reloads, each from one configuration; the slow one, \
         {meanwhile} reloads later, from version {slow}; {} grace periods",
        DOMAIN.statistics().grace_periods
    );
    assert!(answers >= CLIENTS as u64, "each client was answered");
    assert_eq!(slow, 0, "the slow request began before the first reload");
    assert!(
        meanwhile >= MEANWHILE,
        "the slow request held up the reloads"
    );
    let alive = ALIVE.load(Ordering::Relaxed);
    assert_eq!(
        alive, 1,
        "all but the newest configuration have been taken apart"
    );
    Ok(())
}

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() -> std::io::Result<()> {
    timeout(LIMIT, run())
        .await
        .unwrap_or_else(|_| panic!("not done within {LIMIT:?}"))
}
