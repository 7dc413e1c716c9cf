//! Commands for operators.

use super::{Context, Session, State, stats, text::NOT_ADMIN, text::reply};
use crate::{
    config::MAX_REST_US,
    lock::lock,
    log::note,
    protocol::{
        escape,
        number::{parse_i32, parse_u32},
        text::{BAD_FORMAT, Operator, Words},
    },
    shared::ShownCertificate,
    space::Directory,
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
    pub(super) fn operate(&mut self, which: Operator, words: &Words<'_>, cx: &mut Context<'_>) {
        // These may look at all tenants, or connections.
        if matches!(which, Operator::Stats | Operator::Tenant) {
            cx.work.end();
        }
        match which {
            Operator::Stats => stats::text(self, words.as_slice(), cx),
            Operator::Watch => self.watch(words, cx),
            Operator::Crawler => self.crawler(words, cx),
            Operator::Tenant => self.tenant(words, cx),
            Operator::DebugTime => self.debug_time(words, cx),
            Operator::Slabs if words.at(1) == b"automove" && parse_u32(words.at(2)).is_none() => {
                cx.out.line(BAD_FORMAT.line)
            }
            Operator::Slabs => cx
                .out
                .line("CLIENT_ERROR there are no slab classes to move memory between"),
            Operator::Lru => cx.out.line("CLIENT_ERROR lru has nothing to tune"),
        }
    }

    fn watch(&mut self, words: &Words<'_>, cx: &mut Context<'_>) {
        if !cx.shared.settings.watch {
            return cx.out.line("CLIENT_ERROR watch commands not allowed");
        }
        if !cx.out.is_empty() {
            return cx
                .out
                .line("ERROR cannot pipeline other commands before watch");
        }
        let mut events = 0;
        for word in &words.as_slice()[1..] {
            events |= match *word {
                b"fetchers" => watch::FETCHERS,
                b"mutations" => watch::MUTATIONS,
                b"evictions" => watch::EVICTIONS,
                b"connevents" => watch::CONNECTIONS,
                _ => return cx.out.line("ERROR"),
            };
        }
        if events == 0 {
            events = watch::FETCHERS;
        }
        let wake = Arc::clone(cx.wake);
        let watch = cx.shared.watchers.add(
            events,
            self.access.watched(cx.directory),
            Box::new(move || wake()),
        );
        let Some(watch) = watch else {
            return cx.out.line("SERVER_ERROR too many clients watch");
        };
        cx.out.line("OK");
        self.state = State::Watch(watch);
    }

    fn crawler(&mut self, words: &Words<'_>, cx: &mut Context<'_>) {
        match (words.at(1), words.at(2)) {
            (b"metadump", b"all" | b"hash") => {
                if !cx.shared.settings.dump {
                    cx.out.line("ERROR metadump not allowed");
                } else if cx.out.is_empty() {
                    let spaces = cx.directory.reach(&self.access.home).cloned().collect();
                    let cursor = Cursor::default();
                    self.state = State::Dump { spaces, cursor };
                } else {
                    cx.out
                        .line("ERROR cannot pipeline other commands before metadump");
                }
            }
            (b"metadump", _) => cx.out.line("BADCLASS invalid class id"),
            (b"crawl", classes) => self.crawl(classes, cx),
            (b"enable", _) => self.set_search(cx, |search| search.on = true),
            (b"disable", _) => self.set_search(cx, |search| search.on = false),
            (b"sleep", word) => match parse_u32(word).filter(|rest| *rest <= MAX_REST_US) {
                Some(rest) => self.set_search(cx, |search| {
                    search.rest = Duration::from_micros(rest.into());
                }),
                None => cx.out.line(BAD_FORMAT.line),
            },
            (b"tocrawl", word) => match parse_u32(word) {
                Some(most) => self.set_search(cx, |search| search.most = most),
                None => cx.out.line(BAD_FORMAT.line),
            },
            _ => cx.out.line("ERROR"),
        }
    }

    /// Starts a search of all items for expired ones. There is one slab class, the first.
    fn crawl(&self, classes: &[u8], cx: &mut Context<'_>) {
        let line = if !self.access.admin {
            NOT_ADMIN
        } else if !cx.shared.store.search().on {
            "CLIENT_ERROR lru crawler disabled"
        } else if !matches!(classes, b"all" | b"hash" | b"1") {
            "BADCLASS invalid class id"
        } else if cx.shared.store.request_search() {
            "OK"
        } else {
            "BUSY currently processing crawler request"
        };
        cx.out.line(line);
    }

    /// Changes the settings of the search for expired items. A request that changes nothing needs no right.
    fn set_search(&self, cx: &mut Context<'_>, change: impl FnOnce(&mut Search)) {
        let is_allowed = cx.shared.store.change_search(|search| {
            let mut wanted = *search;
            change(&mut wanted);
            let is_allowed = self.access.admin || wanted == *search;
            if is_allowed {
                *search = wanted;
            }
            is_allowed
        });
        cx.out.line(if is_allowed { "OK" } else { NOT_ADMIN });
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

    /// `cache_memlimit`.
    pub(super) fn set_limit(&mut self, mib: u64, noreply: bool, cx: &mut Context<'_>) {
        if !self.access.admin {
            return reply(cx, noreply, NOT_ADMIN);
        }
        let Some(bytes) = mib.checked_mul(1 << 20).filter(|_| mib >= LEAST_LIMIT_MIB) else {
            return reply(
                cx,
                noreply,
                "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m",
            );
        };
        cx.shared.store.request_limit(bytes);
        note!(
            cx.shared.log,
            "limit set to {mib} MiB by client {}",
            self.id
        );
        reply(cx, noreply, "OK");
    }

    /// `refresh_certs`: reads the files of TLS again.
    pub(super) fn refresh_certificates(&self, cx: &mut Context<'_>) {
        let files = lock(&cx.shared.certificate)
            .as_ref()
            .map(|shown| shown.files.clone());
        let Some(files) = files else {
            return cx.out.line("ERROR");
        };
        if !self.access.admin {
            return cx.out.line(NOT_ADMIN);
        }
        match ShownCertificate::load(&files) {
            Ok(shown) => {
                cx.shared.show_certificate(shown);
                cx.out.line("OK");
            }
            Err(error) => {
                note!(cx.shared.log, "not refreshed: {error}");
                cx.out
                    .line("SERVER_ERROR the certificate cannot be read; the log says why");
            }
        }
    }

    /// `debugtime`: moves the clock, in servers for tests.
    fn debug_time(&mut self, words: &Words<'_>, cx: &mut Context<'_>) {
        let Some(clock) = &cx.shared.debug_clock else {
            return cx.out.line("ERROR");
        };
        let Some(seconds) = parse_i32(words.at(1)).and_then(|seconds| u32::try_from(seconds).ok())
        else {
            return cx.out.line("ERROR");
        };
        clock.advance(seconds);
        cx.now = clock.now();
        cx.out.line("OK");
    }

    /// `tenant list`, `create`, `set`, `delete`.
    fn tenant(&mut self, words: &Words<'_>, cx: &mut Context<'_>) {
        if !self.access.admin {
            return cx.out.line(NOT_ADMIN);
        }
        let name = std::str::from_utf8(words.at(2)).unwrap_or("");
        let rest = words.as_slice().get(3..).unwrap_or(&[]);
        let result = match words.at(1) {
            b"list" => return list(cx),
            b"create" if !crate::config::is_tenant_name(name) => {
                Err("CLIENT_ERROR a tenant's name has 1 to 64 letters, digits, -, _ or .".into())
            }
            b"create" => create(name, rest, cx),
            b"set" => change(name, rest, cx),
            b"delete" => delete(name, cx),
            _ => Err("CLIENT_ERROR usage: tenant list|create NAME|set NAME|delete NAME [min=BYTES] [low=BYTES] [high=BYTES] [max=BYTES]".into()),
        };
        match result {
            Ok(()) => {
                let line = words.as_slice().join(&b' ');
                let line = String::from_utf8_lossy(&line).into_owned();
                note!(
                    cx.shared.log,
                    "{} by client {}",
                    line.escape_debug(),
                    self.id
                );
                cx.out.line("OK");
            }
            Err(line) => cx.out.line(&line),
        }
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

/// `NAME=BYTES` words, over `limits`.
fn limits(words: &[&[u8]], limits: &mut Limits) -> Result<(), String> {
    for word in words {
        let word = std::str::from_utf8(word).unwrap_or("");
        let field = match word.split_once('=') {
            Some(("min", _)) => &mut limits.min,
            Some(("low", _)) => &mut limits.low,
            Some(("high", _)) => &mut limits.high,
            Some(("max", _)) => &mut limits.max,
            _ => {
                return Err(format!(
                    "CLIENT_ERROR {}: what is not min=, low=, high= or max=",
                    word.escape_debug()
                ));
            }
        };
        let value = word.split_once('=').map_or("", |(_, value)| value);
        *field = crate::config::parse_bytes(value)
            .map_err(|error| format!("CLIENT_ERROR {}: {error}", word.escape_debug()))?;
    }
    crate::config::check_limits(limits).map_err(|error| format!("CLIENT_ERROR {error}"))
}

fn refused(error: TenantError) -> String {
    format!("SERVER_ERROR {error}")
}

fn create(name: &str, words: &[&[u8]], cx: &mut Context<'_>) -> Result<(), String> {
    let mut wanted = Limits::default();
    limits(words, &mut wanted)?;
    let tenant = cx.shared.store.create_tenant(name).map_err(refused)?;
    tenant.request_limits(wanted);
    follow(name, cx);
    Ok(())
}

fn change(name: &str, words: &[&[u8]], cx: &mut Context<'_>) -> Result<(), String> {
    let tenant = cx.shared.store.tenant(name).map_err(refused)?;
    let mut wanted = tenant.limits();
    limits(words, &mut wanted)?;
    tenant.request_limits(wanted);
    Ok(())
}

fn delete(name: &str, cx: &mut Context<'_>) -> Result<(), String> {
    cx.shared.store.delete_tenant(name).map_err(refused)?;
    follow(name, cx);
    Ok(())
}

/// Updates the directory's tenant of that name from the store.
fn follow(name: &str, cx: &mut Context<'_>) {
    let (store, threads) = (&cx.shared.store, cx.shared.settings.threads);
    cx.shared
        .change(|directory: &mut Directory| directory.follow_tenant(store, name, threads));
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
    cx.out.line("END");
}

/// The number of items that `stats cachedump CLASS NUMBER` is asked for.
pub(super) fn dump_count(word: &[u8]) -> usize {
    // 0 is all, of which memcached shows as many as fit into its buffer.
    match parse_u32(word) {
        None | Some(0) => 10_000,
        Some(number) => (number as usize).min(10_000),
    }
}
