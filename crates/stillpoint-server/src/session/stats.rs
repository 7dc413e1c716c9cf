//! `stats`: names and values, which the text and the binary protocol write in their formats.

use super::{Context, Session};
use crate::{
    config::ClientCertificates,
    directory::{Count, Space},
    lock::lock,
    protocol::{escape, number},
    shared::{STATES, ShownCertificate, ThreadCounts},
    store::{Cursor, TenantStatistics},
};
use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

type Lines = Vec<(String, String)>;

/// Executes `stats` of the text protocol. Returns the last line of the answer.
pub(super) fn text(
    session: &Session,
    words: &[&[u8]],
    cx: &mut Context<'_>,
) -> Option<&'static str> {
    let words = &words[1..];
    Some(match words.first() {
        Some(&b"reset") => {
            reset(session, cx);
            "RESET"
        }
        Some(&b"cachedump") => cache_dump(session, words, cx),
        Some(&b"detail") => match detail(session, words, cx) {
            Some(lines) if words.get(1) == Some(&&b"dump"[..]) => {
                cx.out.bytes.extend_from_slice(&lines);
                "END"
            }
            Some(_) => "OK",
            None => "CLIENT_ERROR usage: stats detail on|off|dump, by an admin",
        },
        _ => match collect(session, words, cx) {
            Some(lines) => {
                for (name, value) in lines {
                    cx.out.line(&format!("STAT {name} {value}"));
                }
                "END"
            }
            None => "ERROR",
        },
    })
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
        lines.retain(|(name, _)| OF_ALL.split(' ').all(|of_all| of_all != name));
    }
    Some(lines)
}

fn line(name: &str, value: impl ToString) -> (String, String) {
    (name.into(), value.to_string())
}

/// Makes lines of names and values.
macro_rules! lines {
    ($($name:literal, $value:expr;)*) => {
        vec![$(line($name, $value)),*]
    };
}

/// Returns the spaces that the client may ask about: all for an admin.
fn visible(session: &Session, cx: &Context<'_>) -> Vec<Arc<Space>> {
    match session.access.admin {
        true => cx.directory.spaces.values().cloned().collect(),
        false => cx.directory.reach(&session.access.home).cloned().collect(),
    }
}

/// Returns whether the client may ask about all tenants, so that the counts of the server tell it
/// nothing of others.
fn sees_all(session: &Session, cx: &Context<'_>) -> bool {
    session.access.admin || visible(session, cx).len() == cx.directory.spaces.len()
}

/// Statistics that are counted for all tenants together.
const OF_ALL: &str = "rusage_user rusage_system curr_connections total_connections rejected_connections \
    connection_structures response_obj_oom response_obj_count response_obj_bytes read_buf_count read_buf_bytes \
    read_buf_bytes_free read_buf_oom malloc_fails log_worker_dropped log_worker_written log_watcher_skipped \
    log_watcher_sent lru_crawler_running lru_crawler_starts slow_kicks idle_kicks auth_cmds auth_errors bytes_read \
    bytes_written accepting_conns listen_disabled_num time_in_listen_disabled_us conn_yields ssl_handshake_errors \
    ssl_chain_cert ssl_key ssl_ca_cert log_watchers domain_socket";

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

/// Returns a line for each count of commands, for those spaces together.
fn commands(spaces: &[Arc<Space>]) -> impl Iterator<Item = (String, String)> {
    let sum = |count| spaces.iter().map(|space| space.count(count)).sum::<u64>();
    let counts = Count::ALL.iter();
    counts.map(move |&(count, name)| line(name, sum(count)))
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

/// Returns the lines that one tenant has, and all together.
fn of_figures(figures: &TenantStatistics) -> Lines {
    lines! {
        "bytes", figures.item_bytes;
        "curr_items", figures.items;
        "total_items", figures.stored;
        "expired_unfetched", figures.expired_unfetched;
        "evicted_unfetched", figures.evicted_unfetched;
        "evictions", figures.evicted;
        "reclaimed", figures.expired + figures.flushed;
        "segment_bytes", figures.segment_bytes;
        "segments", figures.segments;
        "compacted_items", figures.copied;
        "pinned_bytes", figures.pinned_bytes;
    }
}

fn general(session: &Session, cx: &Context<'_>) -> Lines {
    let (shared, totals, watchers) = (cx.shared, &cx.shared.totals, &cx.shared.watchers);
    let spaces = visible(session, cx);
    let figures = figures(&spaces);
    let usage = cpu_time();
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let size = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    let threads = |of: fn(&ThreadCounts) -> &AtomicU64| -> u64 {
        shared.threads.iter().map(|thread| count(of(thread))).sum()
    };
    let open = size(&totals.connections);
    let dropped = count(&totals.dropped_memory);
    let store_limit = shared.store.limit();
    let limit = match session.access.admin {
        true => store_limit,
        false => store_limit.min(session.access.home.tenant.limits().max),
    };
    let mut lines = lines! {
        "pid", std::process::id();
        "uptime", shared.started.elapsed().as_secs();
        "time", shared.unix_now();
        "version", crate::VERSION;
        // Sockets are waited for by epoll, without a library.
        "libevent", "none";
        "pointer_size", usize::BITS;
        "rusage_user", usage.0;
        "rusage_system", usage.1;
        "max_connections", shared.settings.max_connections;
        "curr_connections", open;
        "total_connections", count(&totals.connections_total);
        "rejected_connections", count(&totals.connections_rejected);
        "connection_structures", open;
        "response_obj_oom", count(&totals.no_room);
        "response_obj_count", size(&totals.answers);
        "response_obj_bytes", size(&totals.answer_bytes);
        "read_buf_count", size(&totals.requests);
        "read_buf_bytes", size(&totals.buffer_bytes);
        // A connection gives back what it does not use.
        "read_buf_bytes_free", 0;
        "read_buf_oom", dropped;
        "reserved_fds", shared.settings.reserved_descriptors();
        "slow_kicks", count(&totals.dropped_slow);
        "idle_kicks", count(&totals.idle_kicks);
    };
    lines.extend(commands(&spaces));
    lines.extend(of_figures(&figures));
    lines.extend(lines! {
        "get_expired", figures.get_expired;
        "get_flushed", figures.get_flushed;
        "auth_cmds", threads(|thread| &thread.auth);
        "auth_errors", threads(|thread| &thread.auth_errors);
        "bytes_read", threads(|thread| &thread.bytes_read);
        "bytes_written", threads(|thread| &thread.bytes_written);
        "limit_maxbytes", limit;
        "accepting_conns", u8::from(!totals.accept_paused.load(Ordering::Relaxed));
        "listen_disabled_num", count(&totals.accept_pauses);
        "time_in_listen_disabled_us", count(&totals.accept_paused_us);
        "threads", shared.settings.threads;
        "conn_yields", threads(|thread| &thread.yields);
        "hash_power_level", power_of_buckets(figures.index_bytes);
        "hash_bytes", figures.index_bytes;
        // An index grows by some buckets at a time.
        "hash_is_expanding", 0;
        "malloc_fails", dropped.saturating_sub(count(&totals.over_limit));
        "log_worker_dropped", count(&watchers.dropped);
        "log_worker_written", count(&watchers.written);
        "log_watcher_skipped", count(&watchers.skipped);
        "log_watcher_sent", count(&watchers.sent);
        "log_watchers", watchers.count();
        // A connection goes to the threads in turn, whatever queue of the card it came by.
        "unexpected_napi_ids", 0;
        "round_robin_fallback", 0;
        "crawler_reclaimed", figures.expired;
        "crawler_items_checked", figures.searched;
        // There are no lists of items, and no thread that moves them.
        "lrutail_reflocked", 0;
        "lru_maintainer_juggles", 0;
        "lru_bumps_dropped", 0;
        "moves_to_cold", 0;
        "moves_to_warm", 0;
        "moves_within_lru", 0;
        "direct_reclaims", 0;
        "evicted_active", 0;
    });
    if shared.store.search().on {
        let search = shared.store.search_statistics();
        lines.extend(lines! {
            "lru_crawler_running", u8::from(search.is_running);
            "lru_crawler_starts", search.passes;
        });
    }
    if shared.settings.tls.is_some() {
        let read = totals.certificate_read.load(Ordering::Relaxed);
        lines.extend(lines! {
            "ssl_handshake_errors", count(&totals.handshake_errors);
            "time_since_server_cert_refresh", cx.now.saturating_sub(read);
        });
    }
    if session.access.admin {
        let store = shared.store.statistics_with(figures);
        lines.extend(lines! {
            "tenants", store.tenants;
            "limbo_bytes", store.limbo_bytes;
            "spare_bytes", store.spare_bytes;
        });
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
        match (&listener.path, listener.found.first()) {
            (Some(path), _) => unix = Some(path.display().to_string()),
            (None, first) => port = first.map_or(port, SocketAddr::port),
        }
    }
    let mut lines = lines! {
        "maxbytes", cx.shared.store.limit();
        "maxconns", settings.max_connections;
        "tcpport", port;
        "udpport", 0;
        "verbosity", cx.shared.log.level();
        "evictions", if settings.evict { "on" } else { "off" };
        "domain_socket", unix.unwrap_or_else(|| "NULL".into());
        "shutdown_command", yes(settings.shutdown);
        "num_threads", settings.threads;
        "stat_key_prefix", ":";
        "detail_enabled", "no";
        "reqs_per_event", settings.requests_per_event;
        "cas_enabled", yes(settings.cas);
        "tcp_backlog", settings.backlog;
        "binding_protocol", settings.binding.name();
        "auth_enabled_sasl", "no";
        "auth_enabled_ascii", yes(settings.authenticates());
        "item_size_max", settings.item_max;
        "maxconns_fast", "yes";
        "flush_enabled", yes(settings.flush);
        "dump_enabled", yes(settings.dump);
        "watch_enabled", yes(settings.watch);
        "idle_timeout", settings.idle_timeout;
        "send_timeout", settings.send_timeout;
        "read_buf_mem_limit", settings.reserved_max;
        "lru_crawler", yes(search.on);
        "lru_crawler_sleep", search.rest.as_micros();
        "lru_crawler_tocrawl", search.most;
        "ssl_enabled", yes(settings.tls.is_some());
    };
    // Those that were read last.
    if let Some(ShownCertificate { files: tls, .. }) = &*lock(&cx.shared.certificate) {
        let mode = match tls.clients {
            ClientCertificates::None => 0,
            ClientCertificates::Optional => 1,
            ClientCertificates::Required => 2,
        };
        let version = if tls.only_1_3() { "tlsv1.3" } else { "tlsv1.2" };
        let authority = tls.authority.as_ref();
        lines.extend(lines! {
            "ssl_chain_cert", tls.chain.display();
            "ssl_key", tls.key.display();
            "ssl_verify_mode", mode;
            // PEM, of ciphers that are not to be chosen.
            "ssl_keyformat", 1;
            "ssl_ciphers", "NULL";
            "ssl_ca_cert", authority.map_or("NULL".into(), |path| path.display().to_string());
            "ssl_wbuf_size", tls.buffer;
            "ssl_session_cache", yes(tls.sessions);
            "ssl_kernel_tls", "no";
            "ssl_min_version", version;
        });
    }
    lines
}

/// There are no slab classes: the figures that memcached has for each are those of one.
fn items(session: &Session, cx: &Context<'_>) -> Lines {
    let figures = figures(&visible(session, cx));
    lines! {
        "items:1:number", figures.items;
        "items:1:mem_requested", figures.item_bytes;
        "items:1:evicted", figures.evicted;
        "items:1:evicted_unfetched", figures.evicted_unfetched;
        "items:1:outofmemory", figures.refused;
        "items:1:reclaimed", figures.expired + figures.flushed;
        "items:1:crawler_reclaimed", figures.expired;
        "items:1:expired_unfetched", figures.expired_unfetched;
    }
}

fn slabs(session: &Session, cx: &Context<'_>) -> Lines {
    let figures = figures(&visible(session, cx));
    lines! {
        "1:total_pages", figures.segments;
        "1:used_chunks", figures.items;
        "1:mem_requested", figures.item_bytes;
        "active_slabs", 1;
        "total_malloced", figures.segment_bytes;
    }
}

fn connections(session: &Session, cx: &Context<'_>) -> Lines {
    let mut lines = Vec::new();
    let cards = lock(&cx.shared.cards).clone();
    for (id, card) in cards {
        if !session.access.admin && *lock(&card.tenant) != session.access.home.name {
            continue;
        }
        let state = match id == session.id {
            true => 3,
            false => usize::from(card.state.load(Ordering::Relaxed)),
        };
        let last = card.last.load(Ordering::Relaxed);
        lines.push(line(&format!("{id}:addr"), &card.peer));
        if !card.local.is_empty() {
            lines.push(line(&format!("{id}:listen_addr"), &card.local));
        }
        lines.push(line(&format!("{id}:state"), STATES[state % STATES.len()]));
        let since = cx.now.saturating_sub(last);
        lines.push(line(&format!("{id}:secs_since_last_cmd"), since));
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
    let spaces = std::slice::from_ref(&space);
    let figures = figures(spaces);
    let limits = space.tenant.limits();
    let limit = |value: u64| match value {
        u64::MAX => "none".into(),
        value => value.to_string(),
    };
    let mut lines = lines! {
        "tenant", if space.name.is_empty() { "-" } else { &*space.name };
        "limit_min", limit(limits.min);
        "limit_low", limit(limits.low);
        "limit_high", limit(limits.high);
        "limit_max", limit(limits.max);
        "index_bytes", figures.index_bytes;
        "refused", figures.refused;
    };
    lines.extend(commands(spaces));
    lines.extend(of_figures(&figures));
    Some(lines)
}

/// Number of items that `stats cachedump` looks at in a section, and the number of its sections: most
/// items may have expired.
const CACHE_DUMP_STEP: usize = 16;
/// Number of slab classes that memcached may have.
const CLASSES: u32 = 64;
const CACHE_DUMP_LOOKS: usize = 1024;
const MOST_DUMPED: usize = 10_000;

/// `stats cachedump CLASS NUMBER`: some items, with their lengths and expiry.
fn cache_dump(session: &Session, words: &[&[u8]], cx: &mut Context<'_>) -> &'static str {
    if !cx.shared.settings.dump {
        return "CLIENT_ERROR stats cachedump not allowed";
    }
    if words.len() < 3 {
        return "CLIENT_ERROR bad command line";
    }
    // memcdump asks for all that there may be.
    match number::parse_u32(words[1]) {
        Some(1) => {}
        Some(0..CLASSES) => return "END",
        _ => return "CLIENT_ERROR Illegal slab id",
    }
    let count = number::parse_u32(words[2]).filter(|count| *count > 0);
    // 0 is all, of which memcached shows as many as fit into its buffer.
    let mut left = count.map_or(MOST_DUMPED, |count| MOST_DUMPED.min(count as usize));
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
                let expires = match exptime {
                    0 => 0,
                    exptime => unix_zero + i64::from(exptime),
                };
                cx.out.line(&format!(" [{len} b; {expires} s]"));
                from = to;
            }
            if !more || cx.out.is_full() {
                break;
            }
        }
    }
    "END"
}
