//! All figures as the text of OpenMetrics, written by ourselves: of thousands of tenants it is
//! megabytes, and a line is put together of four pieces.

use crate::{
    Exporter,
    buckets::buckets,
    family::{Family, Group, Kind, Value, Visitor},
};
use std::{
    borrow::Cow,
    convert::Infallible,
    fmt::Write,
    sync::atomic::{AtomicUsize, Ordering},
};

/// What a text is at least, with room to spare: a domain's histograms have 80 lines.
const FEWEST_BYTES: usize = 16 << 10;

/// The bytes of the longest text so far, so that the next one grows no string step by step.
#[derive(Debug, Default)]
pub(crate) struct Longest(AtomicUsize);

impl Exporter {
    /// Adds all figures to `text`, in the text format of OpenMetrics 1.0, with its `# EOF` at the
    /// end: what a server answers to a scrape, of the type `application/openmetrics-text;
    /// version=1.0.0; charset=utf-8`. It is what a collector of `prometheus-client` writes, in a
    /// third of the time where there are thousands of tenants. A `text` that is used again,
    /// cleared, seldom grows.
    ///
    /// ```
    /// let exporter = stillpoint_metrics::Exporter::new();
    /// let mut text = String::new();
    /// exporter.write_openmetrics(&mut text);
    /// assert!(text.contains("stillpoint_stalls_total{domain=\"global\"} 0\n"));
    /// assert!(text.ends_with("# EOF\n"));
    /// ```
    pub fn write_openmetrics(&self, text: &mut String) {
        let begin = text.len();
        let longest = self.longest_text().0.load(Ordering::Relaxed);
        // A sixteenth more: numbers grow.
        text.reserve(FEWEST_BYTES.max(longest + longest / 16));
        let mut lines = Lines { text };
        let Ok(()) = self.samples().visit(&mut lines);
        text.push_str("# EOF\n");
        let longest = self.longest_text();
        longest.0.fetch_max(text.len() - begin, Ordering::Relaxed);
    }
}

struct Lines<'a> {
    text: &'a mut String,
}

impl Visitor for Lines<'_> {
    type Error = Infallible;

    fn group<S>(&mut self, group: &Group<S>) -> Result<(), Infallible> {
        let names = group.samples.iter().map(|(name, _)| escaped(name));
        let names: Vec<Cow<'_, str>> = names.collect();
        for family in group.families {
            self.describe(family, group.label);
            let metric = family.metric(group.label);
            let begin = format!("{}{{{}=\"", metric.name, group.label);
            for ((_, sample), name) in group.samples.iter().zip(&names) {
                match (family.read)(sample) {
                    None => {}
                    Some(Value::Times(times)) => {
                        let labels = format!("{}=\"{name}\"", group.label);
                        self.histogram(&metric.name, &labels, times);
                    }
                    Some(value) => {
                        self.text.push_str(&begin);
                        self.text.push_str(name);
                        self.text.push_str("\"} ");
                        self.number(value);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Lines<'_> {
    fn describe<S>(&mut self, family: &Family<S>, label: &'static str) {
        let metric = family.metric(label);
        let kind = match family.kind {
            Kind::Counter => "counter",
            Kind::Gauge => "gauge",
            Kind::Histogram => "histogram",
        };
        // A family of counters is called without what their names end with.
        let name = match family.kind {
            Kind::Counter => metric.name.trim_end_matches("_total"),
            _ => &metric.name,
        };
        self.line(format_args!("# HELP {name} {}.", family.help));
        self.line(format_args!("# TYPE {name} {kind}"));
        if let Some(unit) = family.unit {
            self.line(format_args!("# UNIT {name} {}", unit.as_str()));
        }
    }

    fn histogram(&mut self, name: &str, labels: &str, times: &stillpoint::Histogram) {
        let sum = times.sum().as_secs_f64();
        self.line(format_args!("{name}_sum{{{labels}}} {sum:?}"));
        self.line(format_args!("{name}_count{{{labels}}} {}", times.count()));
        let mut count = 0;
        for (end, more) in buckets(times.buckets()) {
            count += more;
            let end = Real(end);
            self.line(format_args!(
                "{name}_bucket{{le=\"{end}\",{labels}}} {count}"
            ));
        }
    }

    /// A value, which is not a histogram, and the line's end.
    fn number(&mut self, value: Value<'_>) {
        match value {
            Value::Number(number) => self.text.push_str(itoa::Buffer::new().format(number)),
            // Most tenants have no limit.
            Value::Real(f64::INFINITY) => self.text.push_str(INFINITE),
            Value::Real(number) => write!(self.text, "{number:?}").expect("a string takes all"),
            Value::Times(_) => {}
        }
        self.text.push('\n');
    }

    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.text, "{line}").expect("a string takes all");
    }
}

const INFINITE: &str = "+Inf";

/// A number as OpenMetrics has it.
struct Real(f64);

impl std::fmt::Display for Real {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == f64::INFINITY {
            f.write_str(INFINITE)
        } else {
            write!(f, "{:?}", self.0)
        }
    }
}

/// A label's value, without its quotes.
fn escaped(name: &str) -> Cow<'_, str> {
    let needs_it = |byte: u8| matches!(byte, b'\\' | b'"' | b'\n');
    if !name.bytes().any(needs_it) {
        return Cow::Borrowed(name);
    }
    let mut text = String::with_capacity(2 * name.len());
    for letter in name.chars() {
        match letter {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            other => text.push(other),
        }
    }
    Cow::Owned(text)
}
