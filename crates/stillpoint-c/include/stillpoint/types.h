/* The types of <stillpoint/stillpoint.h>, which includes this; not for programs. SPDX: MIT OR Apache-2.0 */
#ifndef STILLPOINT_TYPES_H
#define STILLPOINT_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* No zero where C++ wants none for a pointer. */
#ifdef __cplusplus
#define STILLPOINT_NULL_ nullptr
#else
#define STILLPOINT_NULL_ NULL
#endif

/*
 * How the headers' functions are inlined. In C++ they are inline, not static, so that inline functions and templates that call them are the same
 * in every file. They are hidden and tagged (and in extern "C++"), so that they clash neither with the program's functions nor with other versions of
 * these headers.
 */
#ifdef __cplusplus
#define STILLPOINT_INLINE_ inline __attribute__((visibility("hidden"), abi_tag("stillpoint")))
#else
#define STILLPOINT_INLINE_ static inline
#endif

/* For what is called for each object: not by way of a stub, where the compiler can do without. */
#define STILLPOINT_NO_STUB_
#if defined __has_attribute
#if __has_attribute(noplt)
#undef STILLPOINT_NO_STUB_
#define STILLPOINT_NO_STUB_ __attribute__((noplt))
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* A domain of read-copy update: its sections delay its own grace periods only. */
struct stillpoint_domain;

/* Names a grace period: see stillpoint_domain_get_state(). */
typedef uint64_t stillpoint_cookie;

/*
 * Queues an object for a callback or a free: the kernel's struct rcu_head, four words in the object. It needs no initialisation, which only
 * silences memory checkers. The library owns it from stillpoint_call() until the function is called.
 */
struct stillpoint_head {
    void *opaque[4];
};
#define STILLPOINT_HEAD_INIT {{STILLPOINT_NULL_, STILLPOINT_NULL_, STILLPOINT_NULL_, STILLPOINT_NULL_}}

typedef void (*stillpoint_function)(struct stillpoint_head *head);

/* A section that belongs to no thread: see stillpoint_domain_guard(). */
struct stillpoint_guard;

/* A stall report: see stillpoint_domain_on_stall(). */
struct stillpoint_stall;
typedef void (*stillpoint_stall_function)(const struct stillpoint_stall *stall, void *data);

/* What functions of the program's are given; the other handles are declared in functions.h. */
struct stillpoint_entry;
struct stillpoint_relieved;

/* Bytes that are charged to a tenant. Part of the object that they are for. */
struct stillpoint_charge {
    uint64_t opaque[2];
};
#define STILLPOINT_CHARGE_INIT {{0, 0}}

/* For stillpoint_lru_walk(): all nodes. */
#define STILLPOINT_ALL_NODES SIZE_MAX

typedef void (*stillpoint_release_function)(void *object);
typedef int (*stillpoint_isolate_function)(struct stillpoint_entry *entry, void *object, void *data);
typedef void (*stillpoint_relieved_function)(const struct stillpoint_relieved *relieved, void *data);

/* What a program embeds in the objects of a map: see <stillpoint/map.h>. It needs no initialisation. */
struct stillpoint_map_node {
    uint64_t opaque;
};

/* A place in a map, of a section. `node` is what was found last, or NULL. */
struct stillpoint_map_iter {
    struct stillpoint_map_node *node;
    uint64_t opaque[8];
};

/* For stillpoint_map_new(): the table does not shrink below what it is made for. */
#define STILLPOINT_MAP_KEEP_CAPACITY 1u

typedef int (*stillpoint_match_function)(struct stillpoint_map_node *node, const void *key);
typedef void (*stillpoint_map_node_function)(struct stillpoint_map_node *node, void *data);

/* ---- The inlined read side. What follows up to the functions is the library's and the header's own business. ---- */

/* A thread's record. Only its owner writes the word: its nesting in the low 16 bits, above them when its section began. */
struct stillpoint_record {
    uint64_t word;
    uint32_t flags;
    uint32_t opaque;
    uint64_t more[6];
} __attribute__((aligned(64)));

#define STILLPOINT_NESTING_ 0xffffu

/* What the outermost section of a global domain begins with: where it loads its word from, a line each. */
struct stillpoint_line {
    uint64_t word;
} __attribute__((aligned(128)));

extern struct stillpoint_line stillpoint_started[2];

/* Who reads, and, for QSBR readers, where from. */
struct stillpoint_reader {
    struct stillpoint_record *record;
    const uint64_t *started;
};

enum { STILLPOINT_RCU_ = 0, STILLPOINT_TRACE_ = 1, STILLPOINT_QSBR_ = 2 };

/* A thread's reader of a separate domain: see stillpoint_domain_reader_init(). On the thread's stack, or thread-local. */
struct stillpoint_domain_reader {
    struct stillpoint_reader reader;
    struct stillpoint_domain *domain;
};

/* A thread's buffer of the global domain's deferred frees. */
struct stillpoint_thread_buffer;

struct stillpoint_thread {
    struct stillpoint_reader reader[3];
    struct stillpoint_thread_buffer *buffer;
};

__extension__ extern __thread struct stillpoint_thread stillpoint_thread __attribute__((tls_model("initial-exec")));

#ifdef __cplusplus
}
#endif

#endif
