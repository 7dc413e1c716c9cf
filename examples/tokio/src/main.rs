//! A server on tokio that reloads its configuration under load, without a lock and without a
//! request that sees two of them.
//!
//! A request takes an owned guard and holds it across its `.await`s, on whatever threads its task
//! runs: the configuration that it began with stays as it is until it is done. A reload swaps the
//! new one in and waits for the requests of before, as a future, beside them; only then is the old
//! one taken apart. Among the requests is one that is slow on purpose: it takes the first
//! configuration before anything is reloaded, and is not done until many reloads have come and
//! gone.
//!
//! `cargo run --release -p config-reload`: a server on the loopback interface, its clients and 200
//! reloads in one program. It checks what it says here, and fails if that is not so.

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
/// How long a request takes to be answered; what a database would take.
const WORK: Duration = Duration::from_millis(2);
/// Number of reloads that are swapped in while the slow request is at work.
const MEANWHILE: u64 = 50;
/// Nothing here should take that long on any machine.
const LIMIT: Duration = Duration::from_secs(60);
/// Nor should that many reloads, unless the slow request holds them up, which is then told.
const PATIENCE: Duration = Duration::from_secs(30);

/// What an operator may change while the server runs.
#[derive(Debug)]
struct Config {
    version: u64,
    greeting: String,
    /// Derived from the version, so that a mixture would show.
    backends: Vec<String>,
}

/// Configurations that have been made and not dropped.
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

/// The server's readers have a separate domain: a slow request delays reloads of this
/// configuration, and nothing else.
static DOMAIN: LazyLock<TraceDomain> = LazyLock::new(TraceDomain::new);
static CONFIG: LazyLock<Rcu<Config>> = LazyLock::new(|| Rcu::new_in(&DOMAIN, Config::load(0)));
static DONE: AtomicBool = AtomicBool::new(false);
/// Reloads that have swapped their configuration in.
static SWAPPED: AtomicU64 = AtomicU64::new(0);
/// The slow request has its configuration.
static SLOW_HOLDS: Notify = Notify::const_new();
/// How many were swapped in while it had it.
static SWAPPED_MEANWHILE: AtomicU64 = AtomicU64::new(0);

/// Answers a request from one configuration, whatever is loaded meanwhile. The guard may leave its
/// thread at each `.await`.
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
    // Not needed, as it would be dropped here: the borrow checker sees that nothing of the
    // configuration leaves before.
    drop(guard);
    answer
}

/// What the slow request does while it holds its configuration.
async fn work_slowly() {
    let before = SWAPPED.load(Ordering::Relaxed);
    let swapped = || SWAPPED.load(Ordering::Relaxed) - before;
    SLOW_HOLDS.notify_one();
    let reloaded = async {
        while swapped() < MEANWHILE {
            sleep(WORK).await;
        }
    };
    // Whether it was enough is asked at the end.
    drop(timeout(PATIENCE, reloaded).await);
    SWAPPED_MEANWHILE.store(swapped(), Ordering::Relaxed);
}

/// A connection: a request a line, an answer a line.
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

    /// The version that the answer is from.
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

/// Asks until the reloads are done. How many answers that were.
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
            // No request has it any more: it can be changed, or closed in an orderly way, as its
            // owner may.
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
