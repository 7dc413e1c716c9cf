//! The five kernel patches that Stillpoint's systems follow: figures before and after each, of its
//! authors, simulated, and measured here.

use anyhow::Result;
use maud::{Markup, html};

use super::charts::Better;
use super::page::{Section, figure};
use super::stored::Stored;
use crate::authors::{
    BRIDGE_MEDIAN_MS, KVFREE_FOOTPRINT_MB, KVFREE_TOTAL_NS, LRU_SPINLOCK_PERCENT, SYNC_SUMMARY_MS,
    TRACE_MS, TRACE_READ_NS, VMAP_REQUESTS_PER_S, median,
};
use crate::output::numbers::Unit;
use crate::output::plot::{Bar, Group, Panel, Tone};

/// A figure: before a patch, after it, or after a part of it.
struct Side {
    name: &'static str,
    value: f64,
    text: String,
}

/// Before and after, of one origin.
struct Pair {
    title: String,
    tone: Tone,
    unit: Unit,
    sides: Vec<Side>,
}

impl Pair {
    fn of(title: &str, tone: Tone, unit: Unit, sides: &[(&'static str, f64)]) -> Self {
        let side = |&(name, value)| Side {
            name,
            value,
            text: unit.show(value),
        };
        Self {
            title: title.to_owned(),
            tone,
            unit,
            sides: sides.iter().map(side).collect(),
        }
    }

    fn authors(title: &str, unit: Unit, [before, after]: [f64; 2]) -> Self {
        let sides = [("before", before), ("after", after)];
        Self::of(title, Tone::Authors, unit, &sides)
    }

    /// Returns the ratio of the larger to the smaller of the first two sides, and which is larger.
    fn compared(&self) -> Option<String> {
        let [before, after, ..] = self.sides.as_slice() else {
            return None;
        };
        if before.value <= 0.0 || after.value <= 0.0 {
            return None;
        }
        let ratio = after.value / before.value;
        let (ratio, when) = if ratio < 1.0 {
            (1.0 / ratio, "before")
        } else {
            (ratio, "after")
        };
        Some(match self.unit.times(ratio) {
            Some(words) => format!("{words} {when}"),
            None => "about the same".to_owned(),
        })
    }

    /// Returns bars: each figure as a share of the first.
    fn group(&self) -> Group {
        let bar = |(index, side): (usize, &Side)| Bar {
            name: side.name.to_owned(),
            tone: if index == 1 { self.tone } else { Tone::Limit },
            value: side.value / self.sides[0].value.max(f64::MIN_POSITIVE),
            text: side.text.clone(),
            spread: None,
        };
        let compared = self.compared().map(|words| format!(": {words}"));
        Group {
            heading: self.title.clone() + compared.as_deref().unwrap_or_default(),
            bars: self.sides.iter().enumerate().map(bar).collect(),
        }
    }
}

/// Looks up figures of this report.
struct Here<'s>(&'s Stored);

impl Here<'_> {
    /// Returns figures of Stillpoint's variants in one scenario; `None` if one is missing.
    fn pair(
        &self,
        title: &str,
        tone: Tone,
        unit: Unit,
        (part, scenario, metric): (&str, Option<&str>, &str),
        variants: &[(&'static str, &str)],
    ) -> Option<Pair> {
        let figure = |&(name, variant): &(&'static str, &str)| {
            let row = self.0.row(part, scenario, "stillpoint", variant)?;
            Some((name, row.figure(metric)?))
        };
        let sides: Vec<_> = variants.iter().map(figure).collect::<Option<_>>()?;
        Some(Pair::of(title, tone, unit, &sides))
    }

    fn simulated(
        &self,
        part: &str,
        metric: &str,
        variants: [(&'static str, &str); 2],
    ) -> Option<Pair> {
        self.pair(
            "The same, simulated",
            Tone::Simulated,
            Unit::Milliseconds,
            (part, None, metric),
            &variants,
        )
    }

    fn measured(
        &self,
        title: &str,
        unit: Unit,
        of: (&str, Option<&str>, &str),
        variants: &[(&'static str, &str)],
    ) -> Option<Pair> {
        self.pair(title, Tone::Accent, unit, of, variants)
    }

    fn kvfree(&self) -> Vec<Option<Pair>> {
        let [before, after] = KVFREE_FOOTPRINT_MB.map(|runs| {
            let least = runs.iter().copied().fold(f64::INFINITY, f64::min);
            let most = runs.iter().copied().fold(0.0, f64::max);
            format!("{least} to {most} MB")
        });
        let title = format!(
            "Kernel's patch, memory (rcuscale, 64 CPUs; medians of five runs of {before}, then {after})"
        );
        let ways = [("one for all", "whole-batch"), ("per page", "per-page")];
        let mut memory = Pair::authors(&title, Unit::Megabytes, KVFREE_FOOTPRINT_MB.map(median));
        for side in &mut memory.sides {
            side.text = format!("{} MB", side.value);
        }
        vec![
            Some(memory),
            self.measured(
                "Here, measured, memory",
                Unit::Mebibytes,
                ("kfree", None, "footprint_mib"),
                &ways,
            ),
            Some(Pair::authors(
                "Kernel's patch, time in all (medians of five)",
                Unit::Nanoseconds,
                KVFREE_TOTAL_NS.map(median),
            )),
            self.measured(
                "Here, measured, time in all",
                Unit::Seconds,
                ("kfree", None, "total_s"),
                &ways,
            ),
        ]
    }

    fn grace(&self) -> Vec<Option<Pair>> {
        vec![
            Some(Pair::authors(
                "Kernel's patch, synchronize_rcu() on 32 CPUs, mean",
                Unit::Milliseconds,
                SYNC_SUMMARY_MS,
            )),
            self.simulated(
                "sim-sync",
                "mean_ms",
                [("baseline", "baseline"), ("fix", "fix")],
            ),
            Some(Pair::authors(
                "Kernel's patch with direct wake-ups, a bridge on 64 CPUs, median",
                Unit::Milliseconds,
                BRIDGE_MEDIAN_MS,
            )),
            self.simulated(
                "sim-bridge",
                "p50_ms",
                [("default", "default"), ("fix+wake", "fix+wake")],
            ),
            self.measured(
                "Here, measured, beside 64 threads that sleep, mean",
                Unit::Microseconds,
                ("sync", Some("bridge"), "mean_us"),
                &[("as a callback", "service-led"), ("direct", "rcu")],
            ),
        ]
    }

    fn lru(&self) -> Vec<Option<Pair>> {
        let before = LRU_SPINLOCK_PERCENT.iter().sum::<f64>() / 100.0;
        let mut authors = Pair::authors(
            "Kernel's patch, profile in two spinlock functions (4 CPUs)",
            Unit::Share,
            [before, 0.0],
        );
        authors.sides[1].text = "not among those listed".to_owned();
        vec![
            Some(authors),
            self.measured(
                "Here, measured, samples in locks (16 threads)",
                Unit::Share,
                ("lru", Some("threads-16"), "lock_share"),
                &[("one spinlock", "spinlock"), ("rcu", "rcu")],
            ),
        ]
    }

    fn trace(&self) -> Vec<Option<Pair>> {
        vec![
            Some(Pair::authors(
                "Kernel's series, mean grace period (a laptop)",
                Unit::Milliseconds,
                TRACE_MS,
            )),
            self.simulated(
                "sim-trace",
                "mean_ms",
                [("baseline", "baseline"), ("gp_sleep", "gp_sleep")],
            ),
            Some(Pair::authors(
                "Kernel's series, a pair of lock and unlock",
                Unit::Nanoseconds,
                TRACE_READ_NS,
            )),
        ]
    }

    fn vmap(&self) -> Vec<Option<Pair>> {
        let [before, after, unchecked] = VMAP_REQUESTS_PER_S;
        let sides = [
            ("one lock", before),
            ("lock per node", after),
            ("no check", unchecked),
        ];
        vec![
            Some(Pair::of(
                "Kernel's series, requests to nginx (48 CPUs)",
                Tone::Authors,
                Unit::PerSecond,
                &sides,
            )),
            self.measured(
                "Here, measured, messages of 256 bytes (16 threads)",
                Unit::PerSecond,
                ("vmap", Some("copy-256"), "requests_per_s"),
                &[
                    ("one spinlock", "global-lock"),
                    ("rcu", "rcu"),
                    ("no check", "unchecked"),
                ],
            ),
        ]
    }
}

/// Returns the section; `None` if no figure of ours was measured.
pub fn section(stored: &Stored) -> Result<Option<Section>> {
    let here = Here(stored);
    let patches = [
        (
            "Deferred frees: a grace period per page",
            Better::Less,
            here.kvfree(),
        ),
        (
            "Waiting: direct wake-ups, one scan",
            Better::Less,
            here.grace(),
        ),
        ("LRU lists: time in locks", Better::Less, here.lru()),
        (
            "Readers that sleep: shorter polls",
            Better::Less,
            here.trace(),
        ),
        (
            "Address space: no lock for all areas",
            Better::More,
            here.vmap(),
        ),
    ];
    let mut charts: Vec<Markup> = Vec::new();
    for (title, better, pairs) in patches {
        let pairs: Vec<Pair> = pairs.into_iter().flatten().collect();
        if pairs.iter().all(|pair| pair.tone == Tone::Authors) {
            continue;
        }
        charts.push(figure(&[Panel {
            title: title.to_owned(),
            how: format!("in shares of before, {}", better.words()),
            groups: pairs.iter().map(Pair::group).collect(),
        }])?);
    }
    Ok((!charts.is_empty()).then(|| Section {
        id: "patches",
        title: "Five patches of the kernel",
        parts: Vec::new(),
        commands: Vec::new(),
        body: html! {
            p {
                "Each system of Stillpoint follows a patch to the Linux kernel: before and after it, by its authors and here. The authors' machines had up to 64 "
                "CPUs, so compare the ratios and not the figures. " em { "Measured" } " is this machine, by the commands of the sections above; "
                em { "simulated" } " is the kernel's machinery in virtual time, by those of the section below."
            }
            div.charts { @for chart in &charts { (chart) } }
        },
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_greater_side_is_named() {
        let compared = |sides| Pair::authors("", Unit::Milliseconds, sides).compared();
        assert_eq!(
            compared([980.0, 18.0]).as_deref(),
            Some("54 times as long before")
        );
        assert_eq!(
            compared([2.0, 3.0]).as_deref(),
            Some("1.5 times as long after")
        );
        assert_eq!(compared([2.0, 2.05]).as_deref(), Some("about the same"));
        assert_eq!(compared([2.0, 0.0]), None);
    }
}
