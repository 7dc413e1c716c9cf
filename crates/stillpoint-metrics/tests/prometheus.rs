//! A Prometheus server (Debian's package) scrapes an exporter, and answers with its figures.
//!
//! Without `prometheus` it is left out, but not where `CI` is set.

use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::Value;
use std::{
    env, fs,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};
use stillpoint::Domain;
use stillpoint_metrics::Exporter;

/// Answers every request with a scrape, until the test program ends.
fn serve(listener: TcpListener, exporter: Exporter) {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(exporter));
    for stream in listener.incoming() {
        let mut stream = stream.expect("a connection");
        // The request fits in one read; what it says does not matter.
        let _ = stream.read(&mut [0; 4096]);
        let mut text = String::new();
        encode(&mut text, &registry).expect("a string takes all");
        let head = "HTTP/1.0 200 OK\r\nContent-Type: application/openmetrics-text; version=1.0.0";
        let _ = write!(stream, "{head}\r\n\r\n{text}");
    }
}

/// The first value that the server has for a query, once it has one.
fn ask(port: u16, query: &str) -> Option<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    let request = format!("GET /api/v1/query?query={query} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let (_, body) = answer.split_once("\r\n\r\n")?;
    let answer: Value = serde_json::from_str(body).ok()?;
    let value = answer["data"]["result"][0]["value"][1].as_str()?;
    Some(value.to_owned())
}

/// Ends with the test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_prometheus_server_understands_a_scrape() {
    let (exporter, domain) = (Exporter::new(), Domain::new());
    exporter
        .add_domain("scraped", &domain)
        .expect("a free name");
    (0..1_000).for_each(|_| domain.call(|| ()));
    domain.barrier();
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let target = listener.local_addr().expect("it is bound");
    // Free a moment ago.
    let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
    let port = port.expect("a port").port();
    let folder = env::temp_dir().join(format!("stillpoint-prometheus-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("a folder");
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs: [{{job_name: test, static_configs: [{{targets: ['{target}']}}]}}]\n"
    );
    fs::write(folder.join("prometheus.yml"), config).expect("a file");
    let program = env::var_os("PROMETHEUS").unwrap_or_else(|| "prometheus".into());
    let child = Command::new(program)
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"])
        .current_dir(&folder)
        .stderr(Stdio::null())
        .spawn();
    let _server = match child {
        Ok(child) => Server(child),
        Err(error) => {
            assert!(env::var_os("CI").is_none(), "prometheus is needed: {error}");
            return;
        }
    };
    thread::spawn(move || serve(listener, exporter));
    // A pass counts when it has ended, which is after the barrier: what is asked for comes in a while.
    let wait_for = |query: &str, is_it: &dyn Fn(&str) -> bool| {
        let query = format!("{query}%7Bdomain%3D%22scraped%22%7D");
        let mut last = None;
        for _ in 0..1_200 {
            last = ask(port, &query);
            if last.as_deref().is_some_and(is_it) {
                return;
            }
            thread::sleep(Duration::from_millis(100));
        }
        panic!("the last answer to {query}: {last:?}");
    };
    wait_for("stillpoint_callbacks_invoked_total", &|answer| {
        let invoked = domain.statistics().callbacks_invoked;
        invoked > 1_000 && answer == invoked.to_string()
    });
    wait_for("stillpoint_budget_bytes", &|answer| {
        answer == domain.budget().to_string()
    });
    let is_all = |answer: &str| answer.parse().is_ok_and(|count: u64| count >= 1_000);
    wait_for("stillpoint_callback_delay_seconds_count", &is_all);
    wait_for("stillpoint_callback_delay_seconds_bucket", &|answer| {
        answer.parse::<u64>().is_ok()
    });
    fs::remove_dir_all(&folder).expect("it was made");
}
