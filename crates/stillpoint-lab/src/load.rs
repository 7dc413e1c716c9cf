//! What else the machine did during a run: figures of a busy one are too high, and their reader
//! should know.

use std::fmt;
use std::fs;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity};
use serde::{Deserialize, Serialize};

/// The share of the processors' time, taken by others, from which on a machine counts as busy. One
/// thread that never sleeps, beside the sixteen that fill two processors in most of the
/// experiments, gets 6 %.
const BUSY: f64 = 0.05;

/// Seconds of other processes' time below which nothing is reported: the kernel counts in ticks of up to 10
/// ms.
const LEAST_S: f64 = 0.2;

/// What the processors that a run may use did meanwhile, in shares of their time: of 2 processors,
/// one that is always at work is 0.5.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Load {
    /// The system's load average over the minute before the run.
    pub before: f64,
    /// What the run itself took, its children included.
    pub own: f64,
    /// What other programs took, and interrupts.
    pub others: f64,
    /// What the hypervisor gave to other machines.
    pub steal: f64,
    /// True if the last two are so much that the figures are not those of a quiet machine.
    pub busy: bool,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            before,
            others,
            steal,
            ..
        } = self;
        let percent = |share: f64| share * 100.0;
        write!(
            f,
            "busy machine: other programs took {:.0} % of the processors' time, the hypervisor \
             {:.0} % (load {before:.1} before the run); compare only figures of this run with each other",
            percent(*others),
            percent(*steal)
        )
    }
}

/// Looks at the machine from the beginning of a run on.
pub struct Watch {
    before: f64,
    begun: Instant,
    allowed: Option<CpuSet>,
    at_start: Option<Times>,
}

impl Watch {
    /// The run begins now.
    pub fn start() -> Self {
        let allowed = sched_getaffinity(None).ok();
        Self {
            before: fs::read_to_string("/proc/loadavg")
                .ok()
                .and_then(|text| text.split(' ').next()?.parse().ok())
                .unwrap_or(0.0),
            begun: Instant::now(),
            at_start: Times::now(allowed.as_ref()),
            allowed,
        }
    }

    /// What has gone on so far; `None` where the system does not say.
    pub fn so_far(&self) -> Option<Load> {
        let now = Times::now(self.allowed.as_ref())?;
        let span_s = self.begun.elapsed().as_secs_f64();
        Some(load(self.before, self.at_start.as_ref()?, &now, span_s))
    }
}

fn load(before: f64, start: &Times, now: &Times, span_s: f64) -> Load {
    let all_s = span_s * now.processors as f64;
    let own_s = now.own_s - start.own_s;
    let others_s = (now.busy_s - start.busy_s - own_s).max(0.0);
    let steal_s = (now.steal_s - start.steal_s).max(0.0);
    let lost_s = others_s + steal_s;
    Load {
        before,
        own: own_s / all_s,
        others: others_s / all_s,
        steal: steal_s / all_s,
        busy: lost_s >= LEAST_S && lost_s >= BUSY * all_s,
    }
}

/// Seconds since some moment, over all processors that the run may use.
#[derive(Debug, PartialEq)]
struct Times {
    processors: usize,
    /// At work, for whatever program.
    busy_s: f64,
    /// Taken by the hypervisor.
    steal_s: f64,
    /// At work for this process and its ended children.
    own_s: f64,
}

impl Times {
    fn now(allowed: Option<&CpuSet>) -> Option<Self> {
        let text = fs::read_to_string("/proc/stat").ok()?;
        let ticks = procfs::ticks_per_second() as f64;
        let is_allowed = |cpu| allowed.is_none_or(|allowed| allowed.is_set(cpu));
        Self::parse(&text, ticks, is_allowed, own_s())
    }

    fn parse(
        stat: &str,
        ticks_per_s: f64,
        is_allowed: impl Fn(usize) -> bool,
        own_s: f64,
    ) -> Option<Self> {
        let (mut processors, mut busy, mut steal) = (0, 0, 0);
        for line in stat.lines() {
            let Some((name, counts)) = line.split_once(' ') else {
                continue;
            };
            let Some(cpu) = name.strip_prefix("cpu").and_then(|cpu| cpu.parse().ok()) else {
                continue;
            };
            if !is_allowed(cpu) {
                continue;
            }
            let counts: Vec<u64> = counts
                .split_whitespace()
                .map_while(|count| count.parse().ok())
                .collect();
            let [user, nice, system, _idle, _iowait, irq, softirq, stolen, ..] = counts[..] else {
                return None;
            };
            processors += 1;
            busy += user + nice + system + irq + softirq;
            steal += stolen;
        }
        (processors > 0).then_some(Self {
            processors,
            busy_s: busy as f64 / ticks_per_s,
            steal_s: steal as f64 / ticks_per_s,
            own_s,
        })
    }
}

/// Processor time of this process and of its children that have ended.
fn own_s() -> f64 {
    [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN]
        .into_iter()
        .map(|who| {
            // SAFETY: all zeros are an `rusage`, which the call fills.
            let usage = unsafe {
                let mut usage: libc::rusage = std::mem::zeroed();
                libc::getrusage(who, &raw mut usage);
                usage
            };
            let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 / 1e6;
            seconds(usage.ru_utime) + seconds(usage.ru_stime)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: &str = "cpu  999 0 0 0 0 0 0 0 0 0\n\
        cpu0 100 10 20 5000 7 3 2 50 0 0\n\
        cpu2 200 0 0 5000 0 0 0 0 0 0\n\
        intr 12345 0 0\nctxt 99\n";

    #[test]
    fn only_processors_that_may_be_used_count() {
        let both = Times::parse(STAT, 100.0, |_| true, 1.5).expect("it is well formed");
        let expected = Times {
            processors: 2,
            busy_s: 3.35,
            steal_s: 0.5,
            own_s: 1.5,
        };
        assert_eq!(both, expected);
        let one = Times::parse(STAT, 100.0, |cpu| cpu == 2, 0.0).expect("it is well formed");
        assert_eq!((one.processors, one.busy_s), (1, 2.0));
        assert_eq!(Times::parse(STAT, 100.0, |cpu| cpu == 1, 0.0), None);
        assert_eq!(Times::parse("cpu0 1 2\n", 100.0, |_| true, 0.0), None);
    }

    fn times(busy_s: f64, steal_s: f64, own_s: f64) -> Times {
        Times {
            processors: 2,
            busy_s,
            steal_s,
            own_s,
        }
    }

    #[test]
    fn what_the_run_takes_is_not_held_against_the_machine() {
        let start = times(100.0, 5.0, 1.0);
        let quiet = load(0.5, &start, &times(118.5, 5.2, 19.0), 10.0);
        assert!(!quiet.busy, "{quiet:?}");
        assert_eq!((quiet.own, quiet.others), (0.9, 0.025));
        let others = load(0.5, &start, &times(118.5, 5.0, 17.5), 10.0);
        assert!(others.busy, "{others:?}");
        assert!(others.to_string().contains("other programs took 10 %"));
        let stolen = load(0.5, &start, &times(110.0, 6.5, 11.0), 10.0);
        assert!(stolen.busy, "{stolen:?}");
        assert_eq!((stolen.others, stolen.steal), (0.0, 0.075));
    }

    #[test]
    fn a_run_of_a_few_ticks_says_nothing() {
        let start = times(100.0, 0.0, 0.0);
        let short = load(0.5, &start, &times(100.15, 0.0, 0.0), 0.2);
        assert!(!short.busy, "{short:?}");
    }

    #[test]
    fn this_machine_says_what_it_does() {
        let watch = Watch::start();
        let mut spun = 0_u64;
        let own = |watch: &Watch| watch.so_far().map(|load| load.own);
        // Ends when the kernel has counted some of it.
        while own(&watch).is_some_and(|own| own <= 0.0) {
            spun = std::hint::black_box(spun + 1);
        }
        assert!(own(&watch).is_some(), "/proc/stat can be read");
    }
}
