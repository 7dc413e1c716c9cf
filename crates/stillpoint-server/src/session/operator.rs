//! Commands for operators.

use super::{Context, Session, State, stats, text::NOT_ADMIN};
use crate::{
    config::MAX_REST_US,
    directory::Directory,
    lock::lock,
    log::note,
    protocol::{
        escape,
        number::{parse_i32, parse_u32},
        text::{BAD_FORMAT, Words},
    },
    shared::ShownCertificate,
    store::{Cursor, Item, Limits, Search, TenantError},
    watch,
};
use std::{io::Write, sync::Arc, time::Duration};

/// Number of items that a dump shows in one section, and most bytes of a line.
const DUMP_STEP: usize = 32;
const DUMP_LINE: usize = 1024;
/// Number of sections after which other connections have their turn, unless the output is full before.
const DUMP_STEPS: u32 = 32;
/// Smallest limit that memcached accepts, in MiB.
const LEAST_LIMIT_MIB: u64 = 8;

impl Session {
    /// Executes a command for operators. Returns its answer, unless it has been given.
    pub(super) fn operate(
        &mut self,
        words: &Words<'_>,
        cx: &mut Context<'_>,
    ) -> Option<&'static str> {
        let name = words.at(0);
        // These may look at all tenants, or connections.
        if matches!(name, b"stats" | b"tenant") {
            cx.work.end();
        }
        Some(match name {
            b"stats" => return stats::text(self, words.as_slice(), cx),
            b"watch" => self.watch(words, cx),
            b"lru_crawler" => return self.crawler(words, cx),
            b"tenant" => {
                let answer = self.tenant(words, cx);
                cx.out.line(&answer);
                return None;
            }
            b"debugtime" => self.debug_time(words, cx).unwrap_or("ERROR"),
            b"slabs" if words.at(1) == b"automove" && parse_u32(words.at(2)).is_none() => {
                BAD_FORMAT.line
            }
            b"slabs" => "CLIENT_ERROR there are no slab classes to move memory between",
            _ => "CLIENT_ERROR lru has nothing to tune",
        })
    }

    fn watch(&mut self, words: &Words<'_>, cx: &mut Context<'_>) -> &'static str {
        if !cx.shared.settings.watch {
            return "CLIENT_ERROR watch commands not allowed";
        }
        if !cx.out.is_empty() {
            return "ERROR cannot pipeline other commands before watch";
        }
        let mut events = 0;
        for word in &words.as_slice()[1..] {
            events |= match *word {
                b"fetchers" => watch::FETCHERS,
                b"mutations" => watch::MUTATIONS,
                b"evictions" => watch::EVICTIONS,
                b"connevents" => watch::CONNECTIONS,
                _ => return "ERROR",
            };
        }
        if events == 0 {
            events = watch::FETCHERS;
        }
        let wake = Arc::clone(cx.wake);
        let reach = self.access.watched(cx.directory);
        let watchers = &cx.shared.watchers;
        let Some(watch) = watchers.add(events, reach, Box::new(move || wake())) else {
            return "SERVER_ERROR too many clients watch";
        };
        self.state = State::Watch(watch);
        "OK"
    }

    /// Returns the answer; none to a dump that has begun.
    fn crawler(&mut self, words: &Words<'_>, cx: &mut Context<'_>) -> Option<&'static str> {
        let number = parse_u32(words.at(2));
        Some(match (words.at(1), words.at(2)) {
            (b"metadump", b"all" | b"hash") if !cx.shared.settings.dump => {
                "ERROR metadump not allowed"
            }
            (b"metadump", b"all" | b"hash") if !cx.out.is_empty() => {
                "ERROR cannot pipeline other commands before metadump"
            }
            (b"metadump", b"all" | b"hash") => {
                let spaces = cx.directory.reach(&self.access.home).cloned().collect();
                let cursor = Cursor::default();
                self.state = State::Dump { spaces, cursor };
                return None;
            }
            (b"metadump", _) => "BADCLASS invalid class id",
            (b"crawl", classes) => self.crawl(classes, cx),
            (b"enable", _) => self.set_search(cx, |search| search.on = true),
            (b"disable", _) => self.set_search(cx, |search| search.on = false),
            (b"sleep", _) => match number.filter(|rest| *rest <= MAX_REST_US) {
                Some(rest) => self.set_search(cx, |search| {
                    search.rest = Duration::from_micros(rest.into());
                }),
                None => BAD_FORMAT.line,
            },
            (b"tocrawl", _) => match number {
                Some(most) => self.set_search(cx, |search| search.most = most),
                None => BAD_FORMAT.line,
            },
            _ => "ERROR",
        })
    }

    /// Starts a search of all items for expired ones. There is one slab class, the first.
    fn crawl(&self, classes: &[u8], cx: &Context<'_>) -> &'static str {
        if !self.access.admin {
            NOT_ADMIN
        } else if !cx.shared.store.search().on {
            "CLIENT_ERROR lru crawler disabled"
        } else if !matches!(classes, b"all" | b"hash" | b"1") {
            "BADCLASS invalid class id"
        } else if cx.shared.store.request_search() {
            "OK"
        } else {
            "BUSY currently processing crawler request"
        }
    }

    /// Changes the settings of the search for expired items. A request that changes nothing needs no right.
    fn set_search(&self, cx: &Context<'_>, change: impl FnOnce(&mut Search)) -> &'static str {
        cx.shared.store.change_search(|search| {
            let mut wanted = *search;
            change(&mut wanted);
            if !self.access.admin && wanted != *search {
                return NOT_ADMIN;
            }
            *search = wanted;
            "OK"
        })
    }

    /// Appends some lines of a dump.
    pub(super) fn dump(&mut self, cx: &mut Context<'_>) {
        let State::Dump { spaces, cursor } = &mut self.state else {
            return;
        };
        let unix_zero = cx.shared.unix_now() - i64::from(cx.now);
        for _ in 0..DUMP_STEPS {
            if cx.out.is_full() {
                break;
            }
            let Some(space) = spaces.last() else {
                cx.out.line("END");
                self.state = State::Request;
                return;
            };
            let out = &mut cx.out.bytes;
            // No allocation happens inside the section, in which a few more may come.
            if out.try_reserve(2 * DUMP_STEP * DUMP_LINE).is_err() {
                self.close = Some(super::Close::Memory);
                return;
            }
            let more = space
                .tenant
                .keys(cursor, DUMP_STEP, |item| push_item(out, item, unix_zero));
            if !more {
                spaces.pop();
                *cursor = Cursor::default();
            }
        }
        cx.work.end();
    }

    /// `cache_memlimit`, by an admin.
    pub(super) fn set_limit(&mut self, mib: u64, cx: &Context<'_>) -> &'static str {
        let Some(bytes) = mib.checked_mul(1 << 20).filter(|_| mib >= LEAST_LIMIT_MIB) else {
            return "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m";
        };
        cx.shared.store.request_limit(bytes);
        let (log, id) = (&cx.shared.log, self.id);
        note!(log, "limit set to {mib} MiB by client {id}");
        "OK"
    }

    /// `refresh_certs`: reads the files of TLS again.
    pub(super) fn refresh_certificates(&self, cx: &Context<'_>) -> &'static str {
        let files = lock(&cx.shared.certificate)
            .as_ref()
            .map(|shown| shown.files.clone());
        let Some(files) = files else {
            return "ERROR";
        };
        if !self.access.admin {
            return NOT_ADMIN;
        }
        match ShownCertificate::load(&files) {
            Ok(shown) => {
                cx.shared.show_certificate(shown);
                "OK"
            }
            Err(error) => {
                note!(cx.shared.log, "not refreshed: {error}");
                "SERVER_ERROR the certificate cannot be read; the log says why"
            }
        }
    }

    /// `debugtime`: moves the clock, in servers for tests. `None` in others.
    fn debug_time(&self, words: &Words<'_>, cx: &mut Context<'_>) -> Option<&'static str> {
        let clock = cx.shared.debug_clock.as_ref()?;
        clock.advance(parse_i32(words.at(1))?.try_into().ok()?);
        cx.now = clock.now();
        Some("OK")
    }

    /// `tenant list`, `create`, `set`, `delete`. Returns the last line of the answer.
    fn tenant(&self, words: &Words<'_>, cx: &mut Context<'_>) -> String {
        if !self.access.admin {
            return NOT_ADMIN.into();
        }
        let name = std::str::from_utf8(words.at(2)).unwrap_or("");
        let rest = words.as_slice().get(3..).unwrap_or(&[]);
        let store = &cx.shared.store;
        let result = match words.at(1) {
            b"list" => {
                list(cx);
                return "END".into();
            }
            b"create" if !crate::config::is_tenant_name(name) => {
                Err("CLIENT_ERROR a tenant's name has 1 to 64 letters, digits, -, _ or .".into())
            }
            b"create" => limits(rest, Limits::default()).and_then(|wanted| {
                let tenant = store.create_tenant(name).map_err(refused)?;
                tenant.request_limits(wanted);
                Ok(())
            }),
            b"set" => store.tenant(name).map_err(refused).and_then(|tenant| {
                tenant.request_limits(limits(rest, tenant.limits())?);
                Ok(())
            }),
            b"delete" => store.delete_tenant(name).map_err(refused),
            _ => Err("CLIENT_ERROR usage: tenant list|create NAME|set NAME|delete NAME [min=BYTES] [low=BYTES] [high=BYTES] [max=BYTES]".into()),
        };
        if let Err(line) = result {
            return line;
        }
        if words.at(1) != b"set" {
            let threads = cx.shared.settings.threads;
            let follow = |directory: &mut Directory| directory.follow_tenant(store, name, threads);
            cx.shared.change(follow);
        }
        let line = words.as_slice().join(&b' ');
        let line = String::from_utf8_lossy(&line);
        let (log, id) = (&cx.shared.log, self.id);
        note!(log, "{} by client {id}", line.escape_debug());
        "OK".into()
    }
}

fn push_item(out: &mut Vec<u8>, item: &Item<'_>, unix_zero: i64) {
    let unix = |seconds: u32| (unix_zero + i64::from(seconds)).max(0);
    watch::push_key(out, item.key());
    let exptime = match item.exptime() {
        0 => -1,
        exptime => unix(exptime),
    };
    push_about(out, item, exptime, unix(item.last_access()));
    out.push(b'\n');
}

/// Appends an item's expiry, last use, CAS value and size, as `me` and dumps show them. Allocates nothing if
/// there is room.
pub(super) fn push_about(out: &mut Vec<u8>, item: &Item<'_>, exptime: i64, last_access: i64) {
    let fetched = if item.was_fetched() { "yes" } else { "no" };
    let (cas, size) = (item.cas(), item.key().len() + item.value().len());
    // A `Vec` takes all.
    let _ = write!(
        out,
        " exp={exptime} la={last_access} cas={cas} fetch={fetched} cls=1 size={size}"
    );
}

/// Returns `limits` with the `NAME=BYTES` of `words`.
fn limits(words: &[&[u8]], mut limits: Limits) -> Result<Limits, String> {
    for word in words {
        let word = std::str::from_utf8(word).unwrap_or("");
        let (name, value) = word.split_once('=').unwrap_or_default();
        let wrong = |why: String| format!("CLIENT_ERROR {}: {why}", word.escape_debug());
        let field = match name {
            "min" => &mut limits.min,
            "low" => &mut limits.low,
            "high" => &mut limits.high,
            "max" => &mut limits.max,
            _ => return Err(wrong("what is not min=, low=, high= or max=".into())),
        };
        *field = crate::config::parse_bytes(value).map_err(wrong)?;
    }
    let checked = crate::config::check_limits(&limits);
    checked.map_err(|error| format!("CLIENT_ERROR {error}"))?;
    Ok(limits)
}

fn refused(error: TenantError) -> String {
    format!("SERVER_ERROR {error}")
}

fn list(cx: &mut Context<'_>) {
    for name in cx.shared.store.names() {
        // A tenant that was deleted meanwhile is left out.
        let Ok(tenant) = cx.shared.store.tenant(&name) else {
            continue;
        };
        cx.out.bytes.extend_from_slice(b"TENANT ");
        match &*name {
            "" => cx.out.bytes.push(b'-'),
            name => escape::push(&mut cx.out.bytes, name.as_bytes()),
        }
        let (limits, used) = (tenant.limits(), tenant.statistics().segment_bytes);
        let show = |(label, value)| match value {
            u64::MAX => format!(" {label}=none"),
            value => format!(" {label}={value}"),
        };
        let [min, low, high, max] = [limits.min, limits.low, limits.high, limits.max];
        let values = [
            ("min", min),
            ("low", low),
            ("high", high),
            ("max", max),
            ("used", used),
        ];
        cx.out.line(&values.map(show).concat());
    }
}
