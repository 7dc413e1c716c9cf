//! What Prometheus itself says of the text, of the alert rules, and of the dashboard's queries.
//!
//! Without `promtool` (Debian's package `prometheus`) the parts that need it are left out, but not
//! where `CI` is set.

use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::Value;
use std::{
    collections::BTreeSet,
    env, fs,
    io::Write,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};
use stillpoint_metrics::{Exporter, Kind};

/// The output of promtool, if it is there and content.
fn promtool(arguments: &[&str], folder: &Path, input: &str) -> Option<Result<String, String>> {
    let program = env::var_os("PROMTOOL").unwrap_or_else(|| "promtool".into());
    let mut child = match Command::new(program)
        .args(arguments)
        .current_dir(folder)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
    {
        Ok(child) => child,
        Err(error) => {
            assert!(env::var_os("CI").is_none(), "promtool is needed: {error}");
            return None;
        }
    };
    let mut stdin = child.stdin.take().expect("piped");
    // It may end before it has read everything, if it is not content.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    let output = child.wait_with_output().expect("it was started");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    let is_content = output.status.success();
    Some(if is_content { Ok(said) } else { Err(said) })
}

/// promtool reads Prometheus's own format, in which counters are declared with their suffix.
fn in_prometheus_format(text: &str) -> String {
    let counters: BTreeSet<_> = text
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" counter"))
        .collect();
    let declared = |line: &str| {
        let mut words: Vec<_> = line.splitn(4, ' ').map(str::to_owned).collect();
        if counters.contains(words[2].as_str()) {
            words[2] += "_total";
        }
        words.join(" ")
    };
    let lines = text
        .lines()
        .filter(|line| !line.starts_with("# UNIT") && !line.starts_with("# EOF"));
    lines
        .map(|line| match line.strip_prefix("# ") {
            Some(_) => declared(line) + "\n",
            None => line.to_owned() + "\n",
        })
        .collect()
}

fn scrape() -> String {
    let exporter = Exporter::new();
    let tenant = stillpoint_lru::Hierarchy::new()
        .root()
        .create()
        .expect("memory");
    let cache = stillpoint_cache::Cache::<u64, u64>::with_bytes(1 << 20);
    exporter.add_tenant("a", &tenant).expect("a free name");
    exporter.add_cache("a", &cache).expect("a free name");
    let mut registry = Registry::default();
    registry.register_collector(Box::new(exporter));
    let mut text = String::new();
    encode(&mut text, &registry).expect("a string takes all");
    text
}

fn deployed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/prometheus")
}

/// The queries of the dashboard, with what Grafana puts in for its variables.
fn queries() -> Vec<String> {
    let text = fs::read_to_string(deployed().join("dashboard.json")).expect("the dashboard");
    let dashboard: Value = serde_json::from_str(&text).expect("JSON");
    let panels = dashboard["panels"].as_array().expect("panels");
    let mut queries = Vec::new();
    for panel in panels {
        for target in panel["targets"].as_array().expect("targets") {
            let query = target["expr"].as_str().expect("a query");
            queries.push(
                query
                    .replace("$__rate_interval", "5m")
                    .replace("$instance", ".*"),
            );
        }
    }
    queries
}

/// What a text calls that begins like our metrics.
fn named(text: &str) -> BTreeSet<String> {
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
        .filter(|word| word.starts_with("stillpoint_"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn promtool_finds_no_fault_with_the_names() {
    let text = in_prometheus_format(&scrape());
    let Some(verdict) = promtool(&["check", "metrics"], Path::new("."), &text) else {
        return;
    };
    assert_eq!(verdict, Ok(String::new()));
    let faulty = text.replace("stillpoint_stalls_total", "stillpoint_stalls_millis");
    let verdict = promtool(&["check", "metrics"], Path::new("."), &faulty);
    assert!(verdict.expect("it was there").is_err(), "it finds faults");
}

#[test]
fn alert_rules_are_valid_and_do_what_their_tests_say() {
    for arguments in [
        ["check", "rules", "alerts.yml"],
        ["test", "rules", "alerts_test.yml"],
    ] {
        if let Some(verdict) = promtool(&arguments, &deployed(), "") {
            verdict.unwrap_or_else(|said| panic!("{arguments:?}: {said}"));
        }
    }
}

#[test]
fn the_dashboards_queries_are_valid() {
    let queries = queries();
    assert!(queries.len() >= 15, "queries are no longer found");
    let rules: Vec<_> = queries
        .iter()
        .enumerate()
        .map(|(at, query)| serde_json::json!({ "record": format!("panel:query:{at}"), "expr": query }))
        .collect();
    // A rule file is YAML, of which JSON is a part.
    let rules = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    let file = env::temp_dir().join(format!("stillpoint-dashboard-{}.yml", std::process::id()));
    fs::write(&file, rules.to_string()).expect("a file can be written");
    let path = file.to_str().expect("UTF-8");
    let verdict = promtool(&["check", "rules", path], Path::new("."), "");
    fs::remove_file(&file).expect("it was written");
    if let Some(verdict) = verdict {
        verdict.unwrap_or_else(|said| panic!("{said}"));
    }
}

/// Rules, their tests and the dashboard name nothing that is not exported.
#[test]
fn rules_and_queries_name_what_there_is() {
    let mut known = BTreeSet::new();
    for metric in Exporter::metrics() {
        if metric.kind == Kind::Histogram {
            for part in ["_bucket", "_sum", "_count"] {
                known.insert(metric.name.clone() + part);
            }
        } else {
            known.insert(metric.name);
        }
    }
    let mut files = queries().concat();
    for file in ["alerts.yml", "alerts_test.yml"] {
        files += &fs::read_to_string(deployed().join(file)).expect("a file");
    }
    let named = named(&files);
    assert!(named.len() > 15, "names are no longer found: {named:?}");
    assert_eq!(
        named.difference(&known).collect::<Vec<_>>(),
        Vec::<&String>::new()
    );
}
