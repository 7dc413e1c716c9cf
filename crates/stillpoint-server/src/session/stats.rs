//! `stats`: names and values, which the text and the binary protocol write in their formats.

use super::{Context, Session, operator};
use crate::{
    card::{Card, STATES},
    config::{Address, ClientCertificates},
    lock::lock,
    protocol::{escape, number},
    shared::ShownCertificate,
    space::{Count, Space},
    store::{Cursor, Limits, TenantStatistics},
};
use std::sync::{
    Arc,
    atomic::{AtomicU64, AtomicUsize, Ordering},
};

type Lines = Vec<(String, String)>;

/// Answers `stats` in the text protocol.
pub(super) fn text(session: &mut Session, words: &[&[u8]], cx: &mut Context<'_>) {
    let words = &words[1..];
    match words.first() {
        Some(&b"reset") => {
            reset(session, cx);
            cx.out.line("RESET");
        }
        Some(&b"cachedump") => cache_dump(session, words, cx),
        Some(&b"detail") => match detail(session, words, cx) {
            Some(lines) if words.get(1) == Some(&&b"dump"[..]) => {
                cx.out.bytes.extend_from_slice(&lines);
                cx.out.line("END");
            }
            Some(_) => cx.out.line("OK"),
            None => cx
                .out
                .line("CLIENT_ERROR usage: stats detail on|off|dump, by an admin"),
        },
        _ => match collect(session, words, cx) {
            Some(lines) => {
                for (name, value) in lines {
                    cx.out.bytes.extend_from_slice(b"STAT ");
                    cx.out.bytes.extend_from_slice(name.as_bytes());
                    cx.out.bytes.push(b' ');
                    cx.out.line(&value);
                }
                cx.out.line("END");
            }
            None => cx.out.line("ERROR"),
        },
    }
}

/// Returns the lines of a group; `None` if there is no such group.
pub(super) fn collect(session: &Session, words: &[&[u8]], cx: &Context<'_>) -> Option<Lines> {
    let group = words.first().copied().unwrap_or(b"");
    let mut lines = match group {
        b"" => general(session, cx),
        b"settings" => settings(cx),
        b"items" => items(session, cx),
        b"slabs" => slabs(session, cx),
        b"sizes" => vec![line("sizes_status", "disabled")],
        b"conns" => connections(session, cx),
        b"tenant" => tenant(session, words.get(1).copied(), cx)?,
        b"reset" => {
            reset(session, cx);
            Vec::new()
        }
        b"detail" if detail(session, words, cx).is_some() => Vec::new(),
        _ => return None,
    };
    if !sees_all(session, cx) {
        lines.retain(|(name, _)| !OF_ALL.contains(&name.as_str()));
    }
    Some(lines)
}

fn line(name: &str, value: impl ToString) -> (String, String) {
    (name.into(), value.to_string())
}

/// Returns the spaces that the client may ask about: all for an admin.
fn visible(session: &Session, cx: &Context<'_>) -> Vec<Arc<Space>> {
    if session.access.admin {
        cx.directory.spaces.values().cloned().collect()
    } else {
        cx.directory.reach(&session.access.home).cloned().collect()
    }
}

/// Returns whether the client may ask about all tenants, so that the counts of the server tell it
/// nothing of others.
fn sees_all(session: &Session, cx: &Context<'_>) -> bool {
    session.access.admin || visible(session, cx).len() == cx.directory.spaces.len()
}

/// Statistics that are counted for all tenants together.
const OF_ALL: [&str; 36] = [
    "rusage_user",
    "rusage_system",
    "curr_connections",
    "total_connections",
    "rejected_connections",
    "connection_structures",
    "response_obj_oom",
    "response_obj_count",
    "response_obj_bytes",
    "read_buf_count",
    "read_buf_bytes",
    "read_buf_bytes_free",
    "read_buf_oom",
    "malloc_fails",
    "log_worker_dropped",
    "log_worker_written",
    "log_watcher_skipped",
    "log_watcher_sent",
    "lru_crawler_running",
    "lru_crawler_starts",
    "slow_kicks",
    "idle_kicks",
    "auth_cmds",
    "auth_errors",
    "bytes_read",
    "bytes_written",
    "accepting_conns",
    "listen_disabled_num",
    "time_in_listen_disabled_us",
    "conn_yields",
    "ssl_handshake_errors",
    "ssl_chain_cert",
    "ssl_key",
    "ssl_ca_cert",
    "log_watchers",
    "domain_socket",
];

fn reset(session: &Session, cx: &Context<'_>) {
    for space in visible(session, cx) {
        space.reset();
    }
}

/// `stats detail`. Returns the text to show; `None` if the client may not do that. Only an admin switches
/// it, as it takes a lock in each request.
fn detail(session: &Session, words: &[&[u8]], cx: &Context<'_>) -> Option<Vec<u8>> {
    let mut lines = Vec::new();
    for space in cx.directory.reach(&session.access.home) {
        match words.get(1) {
            Some(&b"on") if session.access.admin => space.details.switch(true),
            Some(&b"off") if session.access.admin => space.details.switch(false),
            Some(&b"dump") => space.details.dump(&mut lines),
            _ => return None,
        }
    }
    Some(lines)
}

fn sum(spaces: &[Arc<Space>], count: Count) -> u64 {
    spaces.iter().map(|space| space.count(count)).sum()
}

/// Returns the sums of the store's figures over those spaces. Counters start at the last reset.
fn figures(spaces: &[Arc<Space>]) -> TenantStatistics {
    let mut all = TenantStatistics::default();
    for space in spaces {
        let now = space.tenant.statistics();
        all.add(&now.since(&space.store_baseline()));
    }
    all
}

const COMMANDS: [(&str, Count); 20] = [
    ("cmd_get", Count::Get),
    ("cmd_set", Count::Set),
    ("cmd_flush", Count::Flush),
    ("cmd_touch", Count::Touch),
    ("cmd_meta", Count::Meta),
    ("get_hits", Count::GetHit),
    ("get_misses", Count::GetMiss),
    ("delete_misses", Count::DeleteMiss),
    ("delete_hits", Count::DeleteHit),
    ("incr_misses", Count::IncrMiss),
    ("incr_hits", Count::IncrHit),
    ("decr_misses", Count::DecrMiss),
    ("decr_hits", Count::DecrHit),
    ("cas_misses", Count::CasMiss),
    ("cas_hits", Count::CasHit),
    ("cas_badval", Count::CasBadValue),
    ("touch_hits", Count::TouchHit),
    ("touch_misses", Count::TouchMiss),
    ("store_too_large", Count::TooLarge),
    ("store_no_memory", Count::NoMemory),
];

fn general(session: &Session, cx: &Context<'_>) -> Lines {
    let (shared, totals, watchers) = (cx.shared, &cx.shared.totals, &cx.shared.watchers);
    let spaces = visible(session, cx);
    let figures = figures(&spaces);
    let usage = cpu_time();
    let threads = |of: fn(&crate::shared::ThreadCounts) -> &AtomicU64| -> u64 {
        shared
            .threads
            .iter()
            .map(|thread| of(thread).load(Ordering::Relaxed))
            .sum()
    };
    let open = totals.connections.load(Ordering::Relaxed);
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let size = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    let dropped = count(&totals.dropped_memory);
    let limited = count(&totals.over_limit);
    let limit = match session.access.admin {
        true => shared.store.limit(),
        false => shared
            .store
            .limit()
            .min(session.access.home.tenant.limits().max),
    };
    let mut lines = vec![
        line("pid", std::process::id()),
        line("uptime", shared.started.elapsed().as_secs()),
        line("time", shared.unix_now()),
        line("version", crate::VERSION),
        // Sockets are waited for by epoll, without a library.
        line("libevent", "none"),
        line("pointer_size", usize::BITS),
        line("rusage_user", usage.0),
        line("rusage_system", usage.1),
        line("max_connections", shared.settings.max_connections),
        line("curr_connections", open),
        line(
            "total_connections",
            totals.connections_total.load(Ordering::Relaxed),
        ),
        line(
            "rejected_connections",
            totals.connections_rejected.load(Ordering::Relaxed),
        ),
        line("connection_structures", open),
        line("response_obj_oom", count(&totals.no_room)),
        line("response_obj_count", size(&totals.answers)),
        line("response_obj_bytes", size(&totals.answer_bytes)),
        line("read_buf_count", size(&totals.requests)),
        line("read_buf_bytes", size(&totals.buffer_bytes)),
        // A connection gives back what it does not use.
        line("read_buf_bytes_free", 0),
        line("read_buf_oom", dropped),
        line("reserved_fds", shared.settings.reserved_descriptors()),
        line("slow_kicks", totals.dropped_slow.load(Ordering::Relaxed)),
        line("idle_kicks", totals.idle_kicks.load(Ordering::Relaxed)),
    ];
    lines.extend(
        COMMANDS
            .iter()
            .map(|&(name, count)| line(name, sum(&spaces, count))),
    );
    lines.extend([
        line("get_expired", figures.get_expired),
        line("get_flushed", figures.get_flushed),
        line("auth_cmds", threads(|thread| &thread.auth)),
        line("auth_errors", threads(|thread| &thread.auth_errors)),
        line("bytes_read", threads(|thread| &thread.bytes_read)),
        line("bytes_written", threads(|thread| &thread.bytes_written)),
        line("limit_maxbytes", limit),
        line(
            "accepting_conns",
            u8::from(!totals.accept_paused.load(Ordering::Relaxed)),
        ),
        line(
            "listen_disabled_num",
            totals.accept_pauses.load(Ordering::Relaxed),
        ),
        line(
            "time_in_listen_disabled_us",
            totals.accept_paused_us.load(Ordering::Relaxed),
        ),
        line("threads", shared.settings.threads),
        line("conn_yields", threads(|thread| &thread.yields)),
        line("hash_power_level", power_of_buckets(figures.index_bytes)),
        line("hash_bytes", figures.index_bytes),
        // An index grows by some buckets at a time.
        line("hash_is_expanding", 0),
        line("malloc_fails", dropped.saturating_sub(limited)),
        line("log_worker_dropped", count(&watchers.dropped)),
        line("log_worker_written", count(&watchers.written)),
        line("log_watcher_skipped", count(&watchers.skipped)),
        line("log_watcher_sent", count(&watchers.sent)),
        line("log_watchers", watchers.count()),
        // A connection goes to the threads in turn, whatever queue of the card it came by.
        line("unexpected_napi_ids", 0),
        line("round_robin_fallback", 0),
        line("bytes", figures.item_bytes),
        line("curr_items", figures.items),
        line("total_items", figures.stored),
        line("expired_unfetched", figures.expired_unfetched),
        line("evicted_unfetched", figures.evicted_unfetched),
        line("evictions", figures.evicted),
        line("reclaimed", figures.expired + figures.flushed),
        line("crawler_reclaimed", figures.expired),
        line("crawler_items_checked", figures.searched),
        // There are no lists of items, and no thread that moves them.
        line("lrutail_reflocked", 0),
        line("lru_maintainer_juggles", 0),
        line("lru_bumps_dropped", 0),
        line("moves_to_cold", 0),
        line("moves_to_warm", 0),
        line("moves_within_lru", 0),
        line("direct_reclaims", 0),
        line("evicted_active", 0),
        line("segment_bytes", figures.segment_bytes),
        line("segments", figures.segments),
        line("compacted_items", figures.copied),
        line("pinned_bytes", figures.pinned_bytes),
    ]);
    if shared.store.search().on {
        let search = shared.store.search_statistics();
        lines.extend([
            line("lru_crawler_running", u8::from(search.is_running)),
            line("lru_crawler_starts", search.passes),
        ]);
    }
    if shared.settings.tls.is_some() {
        let read = totals.certificate_read.load(Ordering::Relaxed);
        lines.extend([
            line(
                "ssl_handshake_errors",
                totals.handshake_errors.load(Ordering::Relaxed),
            ),
            line(
                "time_since_server_cert_refresh",
                cx.now.saturating_sub(read),
            ),
        ]);
    }
    if session.access.admin {
        let store = shared.store.statistics_with(figures);
        lines.extend([
            line("tenants", store.tenants),
            line("limbo_bytes", store.limbo_bytes),
            line("spare_bytes", store.spare_bytes),
        ]);
    }
    lines
}

/// Returns the power of two of the buckets, each of a cache line, in indexes of `bytes` bytes.
fn power_of_buckets(bytes: u64) -> u32 {
    (bytes / 64).checked_ilog2().unwrap_or(0)
}

/// Seconds of user and system time, with microseconds.
fn cpu_time() -> (String, String) {
    // SAFETY: an all-zero `rusage` is a valid one, which the call fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let show = |time: libc::timeval| format!("{}.{:06}", time.tv_sec, time.tv_usec);
    (show(usage.ru_utime), show(usage.ru_stime))
}

fn settings(cx: &Context<'_>) -> Lines {
    let settings = &cx.shared.settings;
    let search = cx.shared.store.search();
    let yes = |flag: bool| if flag { "yes" } else { "no" };
    let (mut unix, mut port) = (None, 0);
    for listener in settings.listeners.iter().rev() {
        match &listener.address {
            Address::Unix(path) => unix = Some(path.display().to_string()),
            Address::Tcp(address) => port = address.port(),
        }
    }
    let mut lines = vec![
        line("maxbytes", cx.shared.store.limit()),
        line("maxconns", settings.max_connections),
        line("tcpport", port),
        line("udpport", 0),
        line("verbosity", cx.shared.log.level()),
        line("evictions", if settings.evict { "on" } else { "off" }),
        line("domain_socket", unix.unwrap_or_else(|| "NULL".into())),
        line("shutdown_command", yes(settings.shutdown)),
        line("num_threads", settings.threads),
        line("stat_key_prefix", ":"),
        line("detail_enabled", "no"),
        line("reqs_per_event", settings.requests_per_event),
        line("cas_enabled", yes(settings.cas)),
        line("tcp_backlog", settings.backlog),
        line("binding_protocol", settings.binding.name()),
        line("auth_enabled_sasl", "no"),
        line("auth_enabled_ascii", yes(settings.authenticates())),
        line("item_size_max", settings.item_max),
        line("maxconns_fast", "yes"),
        line("flush_enabled", yes(settings.flush)),
        line("dump_enabled", yes(settings.dump)),
        line("watch_enabled", yes(settings.watch)),
        line("idle_timeout", settings.idle_timeout),
        line("send_timeout", settings.send_timeout),
        line("read_buf_mem_limit", settings.reserved_max),
        line("lru_crawler", yes(search.on)),
        line("lru_crawler_sleep", search.rest.as_micros()),
        line("lru_crawler_tocrawl", search.most),
        line("ssl_enabled", yes(settings.tls.is_some())),
    ];
    // Those that were read last.
    if let Some(ShownCertificate { files: tls, .. }) = &*lock(&cx.shared.certificate) {
        let mode = match tls.clients {
            ClientCertificates::None => 0,
            ClientCertificates::Optional => 1,
            ClientCertificates::Required => 2,
        };
        let version = if tls.only_1_3() { "tlsv1.3" } else { "tlsv1.2" };
        let authority = tls.authority.as_ref();
        lines.extend([
            line("ssl_chain_cert", tls.chain.display()),
            line("ssl_key", tls.key.display()),
            line("ssl_verify_mode", mode),
            // PEM, of ciphers that are not to be chosen.
            line("ssl_keyformat", 1),
            line("ssl_ciphers", "NULL"),
            line(
                "ssl_ca_cert",
                authority.map_or("NULL".into(), |path| path.display().to_string()),
            ),
            line("ssl_wbuf_size", tls.buffer),
            line("ssl_session_cache", yes(tls.sessions)),
            line("ssl_kernel_tls", "no"),
            line("ssl_min_version", version),
        ]);
    }
    lines
}

/// There are no slab classes: the figures that memcached has for each are those of one.
fn items(session: &Session, cx: &Context<'_>) -> Lines {
    let figures = figures(&visible(session, cx));
    vec![
        line("items:1:number", figures.items),
        line("items:1:mem_requested", figures.item_bytes),
        line("items:1:evicted", figures.evicted),
        line("items:1:evicted_unfetched", figures.evicted_unfetched),
        line("items:1:outofmemory", figures.refused),
        line("items:1:reclaimed", figures.expired + figures.flushed),
        line("items:1:crawler_reclaimed", figures.expired),
        line("items:1:expired_unfetched", figures.expired_unfetched),
    ]
}

fn slabs(session: &Session, cx: &Context<'_>) -> Lines {
    let figures = figures(&visible(session, cx));
    vec![
        line("1:total_pages", figures.segments),
        line("1:used_chunks", figures.items),
        line("1:mem_requested", figures.item_bytes),
        line("active_slabs", 1),
        line("total_malloced", figures.segment_bytes),
    ]
}

fn connections(session: &Session, cx: &Context<'_>) -> Lines {
    let mut lines = Vec::new();
    let cards: Vec<(i32, Arc<Card>)> = lock(&cx.shared.cards)
        .iter()
        .map(|(id, card)| (*id, Arc::clone(card)))
        .collect();
    for (id, card) in cards {
        if !session.access.admin && *lock(&card.tenant) != session.access.home.name {
            continue;
        }
        let own = id == session.id;
        let mut state = STATES[usize::from(card.state.load(Ordering::Relaxed)) % STATES.len()];
        if own {
            state = STATES[3];
        }
        let last = card.last.load(Ordering::Relaxed);
        lines.push((format!("{id}:addr"), card.peer.clone()));
        if !card.local.is_empty() {
            lines.push((format!("{id}:listen_addr"), card.local.clone()));
        }
        lines.push((format!("{id}:state"), state.into()));
        lines.push((
            format!("{id}:secs_since_last_cmd"),
            cx.now.saturating_sub(last).to_string(),
        ));
    }
    lines
}

/// Returns the figures of the client's own tenant, or for an admin of any.
fn tenant(session: &Session, name: Option<&[u8]>, cx: &Context<'_>) -> Option<Lines> {
    let space = match name {
        None => Arc::clone(&session.access.home),
        Some(name) => {
            let name = std::str::from_utf8(name).ok()?;
            let name = if name == "-" { "" } else { name };
            // A client that may not ask gets the same answer as for a tenant that does not exist.
            if !session.access.admin && name != &*session.access.home.name {
                return None;
            }
            Arc::clone(cx.directory.spaces.get(name)?)
        }
    };
    let figures = figures(std::slice::from_ref(&space));
    let Limits {
        min,
        low,
        high,
        max,
    } = space.tenant.limits();
    let limit = |value: u64| {
        if value == u64::MAX {
            "none".into()
        } else {
            value.to_string()
        }
    };
    let name = if space.name.is_empty() {
        "-"
    } else {
        &*space.name
    };
    let mut lines = vec![
        line("tenant", name),
        line("limit_min", limit(min)),
        line("limit_low", limit(low)),
        line("limit_high", limit(high)),
        line("limit_max", limit(max)),
        line("segment_bytes", figures.segment_bytes),
        line("segments", figures.segments),
        line("index_bytes", figures.index_bytes),
        line("bytes", figures.item_bytes),
        line("curr_items", figures.items),
        line("total_items", figures.stored),
        line("evictions", figures.evicted),
        line("evicted_unfetched", figures.evicted_unfetched),
        line("reclaimed", figures.expired + figures.flushed),
        line("expired_unfetched", figures.expired_unfetched),
        line("compacted_items", figures.copied),
        line("refused", figures.refused),
        line("pinned_bytes", figures.pinned_bytes),
    ];
    lines.extend(
        COMMANDS
            .iter()
            .map(|&(name, count)| line(name, space.count(count))),
    );
    Some(lines)
}

/// Number of items that `stats cachedump` looks at in a section, and the number of its sections: most
/// items may have expired.
const CACHE_DUMP_STEP: usize = 16;
/// Number of slab classes that memcached may have.
const CLASSES: u32 = 64;
const CACHE_DUMP_LOOKS: usize = 1024;

/// `stats cachedump CLASS NUMBER`: some items, with their lengths and expiry.
fn cache_dump(session: &Session, words: &[&[u8]], cx: &mut Context<'_>) {
    if !cx.shared.settings.dump {
        return cx.out.line("CLIENT_ERROR stats cachedump not allowed");
    }
    if words.len() < 3 {
        return cx.out.line("CLIENT_ERROR bad command line");
    }
    // memcdump asks for all that there may be.
    match number::parse_u32(words[1]) {
        Some(1) => {}
        Some(0..CLASSES) => return cx.out.line("END"),
        _ => return cx.out.line("CLIENT_ERROR Illegal slab id"),
    }
    let mut left = operator::dump_count(words[2]);
    let mut looks = CACHE_DUMP_LOOKS;
    let unix_zero = cx.shared.unix_now() - i64::from(cx.now);
    let spaces: Vec<_> = cx.directory.reach(&session.access.home).cloned().collect();
    for space in spaces {
        let mut cursor = Cursor::default();
        loop {
            let step = left.min(CACHE_DUMP_STEP);
            // Inside the section items are only copied to memory that is there: a few more may come than were asked for.
            let mut shown = Vec::with_capacity(64);
            let mut keys = Vec::with_capacity(64 * crate::protocol::MAX_KEY);
            let more = step > 0
                && looks > 0
                && space.tenant.keys(&mut cursor, step, |item| {
                    if shown.len() < shown.capacity().min(left)
                        && keys.capacity() - keys.len() >= item.key().len()
                    {
                        keys.extend_from_slice(item.key());
                        shown.push((keys.len(), item.value().len(), item.exptime()));
                    }
                });
            left -= shown.len();
            looks = looks.saturating_sub(1);
            let mut from = 0;
            for (to, len, exptime) in shown {
                cx.out.bytes.extend_from_slice(b"ITEM ");
                escape::push_word(&mut cx.out.bytes, &keys[from..to]);
                let expires = if exptime == 0 {
                    0
                } else {
                    unix_zero + i64::from(exptime)
                };
                cx.out.line(&format!(" [{len} b; {expires} s]"));
                from = to;
            }
            if !more || cx.out.is_full() {
                break;
            }
        }
    }
    cx.out.line("END");
}
