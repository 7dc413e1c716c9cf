//! A server on axum whose handlers get the configuration as an argument: a snapshot that does not
//! change until the request is done.
//!
//! The extractor is a [`Snapshot`]: a section and the object found in it, in one value. So a
//! handler borrows nothing, and may await and pass the snapshot to other functions, tasks and
//! streams. A part of the configuration, here a tenant's, is a snapshot, too.
//!
//! `cargo run --release -p config-extractor`: the server and its clients in one program. It checks
//! all this, and fails otherwise.

use axum::{
    Router,
    extract::{FromRef, FromRequestParts, Path, State},
    http::{StatusCode, request::Parts},
    routing::{get, put},
};
use std::{
    collections::BTreeMap,
    convert::Infallible,
    net::{Ipv4Addr, SocketAddr},
    ops::Deref,
    sync::Arc,
    time::Duration,
};
use stillpoint::{Rcu, Snapshot, tasks_trace::TraceDomain};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::Notify,
    time::timeout,
};

/// Longer than anything here should take on any machine.
const LIMIT: Duration = Duration::from_secs(60);

/// Settings that an operator may change while the server runs.
#[derive(Debug, Clone)]
struct Config {
    version: u64,
    tenants: BTreeMap<String, Tenant>,
}

#[derive(Debug, Clone)]
struct Tenant {
    greeting: String,
}

/// State that all requests share.
#[derive(Debug, Clone)]
struct Server(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// A separate domain: a slow request delays only the frees of old configurations.
    domain: TraceDomain,
    config: Rcu<Config>,
    /// The slow request has its configuration.
    slow_holds: Notify,
    /// The slow request may go on.
    slow_may_go: Notify,
}

impl Server {
    fn new() -> Self {
        let tenant = |greeting: &str| Tenant {
            greeting: greeting.into(),
        };
        let tenants = BTreeMap::from([
            ("a".into(), tenant("hello")),
            ("b".into(), tenant("good day")),
        ]);
        let domain = TraceDomain::new();
        let config = Rcu::new_in(
            &domain,
            Config {
                version: 1,
                tenants,
            },
        );
        Self(Arc::new(Shared {
            domain,
            config,
            slow_holds: Notify::new(),
            slow_may_go: Notify::new(),
        }))
    }
}

/// The configuration at the time of the request.
#[derive(Debug)]
struct Current(Snapshot<Config>);

impl Deref for Current {
    type Target = Config;

    fn deref(&self) -> &Config {
        &self.0
    }
}

impl<S> FromRequestParts<S> for Current
where
    Server: FromRef<S>,
    S: Sync,
{
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Infallible> {
        let Server(shared) = Server::from_ref(state);
        // Stall reports name the section by the request's path.
        let guard = shared.domain.read_lock_static().named(parts.uri.path());
        Ok(Self(shared.config.load_owned(guard)))
    }
}

/// Part of the configuration; keeps the whole alive.
fn tenant(config: Current, name: &str) -> Result<Snapshot<Tenant>, StatusCode> {
    Snapshot::try_map(config.0, |config| config.tenants.get(name))
        .map_err(|_| StatusCode::NOT_FOUND)
}

async fn greet(Path(name): Path<String>, config: Current) -> Result<String, StatusCode> {
    let version = config.version;
    let tenant = tenant(config, &name)?;
    tokio::task::yield_now().await; // a database, say; may continue on another thread
    Ok(format!("{} from version {version}", tenant.greeting))
}

/// Answers from the configuration at its start, however many have followed.
async fn slow(State(Server(shared)): State<Server>, config: Current) -> String {
    shared.slow_holds.notify_one();
    shared.slow_may_go.notified().await;
    format!("version {}", config.version)
}

async fn set_greeting(
    State(Server(shared)): State<Server>,
    Path((name, greeting)): Path<(String, String)>,
) -> Result<String, StatusCode> {
    // An update for an unknown tenant is refused: nothing is published.
    let replaced = shared.config.try_update(|old| {
        let mut new = old.clone();
        new.version += 1;
        new.tenants
            .get_mut(&name)
            .ok_or(StatusCode::NOT_FOUND)?
            .greeting
            .clone_from(&greeting);
        Ok::<_, StatusCode>(new)
    })?;
    Ok(format!("version {} is over", replaced.version))
}

fn router(server: Server) -> Router {
    Router::new()
        .route("/greet/{tenant}", get(greet))
        .route("/slow", get(slow))
        .route("/greet/{tenant}/{greeting}", put(set_greeting))
        .with_state(server)
}

/// Sends a raw request. Returns the answer's status and body.
async fn ask(server: SocketAddr, method: &str, path: &str) -> std::io::Result<(u16, String)> {
    let mut stream = TcpStream::connect(server).await?;
    let question =
        format!("{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    stream.write_all(question.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer
        .split(' ')
        .nth(1)
        .and_then(|status| status.parse().ok())
        .expect("a status");
    let (_, body) = answer.split_once("\r\n\r\n").expect("a head");
    Ok((status, body.to_owned()))
}

async fn run() -> std::io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let address = listener.local_addr()?;
    let server = Server::new();
    let serving = tokio::spawn(axum::serve(listener, router(server.clone())).into_future());
    let ask = |method, path| ask(address, method, path);

    let slow = tokio::spawn(ask("GET", "/slow"));
    server.0.slow_holds.notified().await;

    for (method, path, answer) in [
        ("GET", "/greet/a", (200, "hello from version 1")),
        ("PUT", "/greet/a/hi", (200, "version 1 is over")),
        ("PUT", "/greet/c/hi", (404, "")),
        ("GET", "/greet/c", (404, "")),
        ("GET", "/greet/a", (200, "hi from version 2")),
        ("GET", "/greet/b", (200, "good day from version 2")),
    ] {
        let (status, body) = ask(method, path).await?;
        assert_eq!((status, &*body), answer, "{method} {path}");
    }

    // The slow request still has its configuration, which is therefore not freed yet.
    let domain = &server.0.domain;
    assert!(!domain.poll(domain.start_poll()));
    server.0.slow_may_go.notify_one();
    let slow = slow.await.expect("the client does not panic")?;
    assert_eq!(slow, (200, "version 1".into()));
    domain.synchronize_async().await;
    serving.abort();
    println!(
        "served versions 1 and 2; the slow request, which began before the change, was answered from {}",
        slow.1
    );
    Ok(())
}

#[tokio::main]
async fn main() -> std::io::Result<()> {
    timeout(LIMIT, run())
        .await
        .expect("a server that hangs is an error")
}
