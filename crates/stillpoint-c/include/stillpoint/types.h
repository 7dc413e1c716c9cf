/* The types of <stillpoint/stillpoint.h>, which includes this file; programs do not. SPDX: MIT OR Apache-2.0 */
#ifndef STILLPOINT_TYPES_H
#define STILLPOINT_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* C++ compilers may warn of a 0 that stands for a null pointer. */
#ifdef __cplusplus
#define STILLPOINT_NULL_ nullptr
#else
#define STILLPOINT_NULL_ NULL
#endif

/*
 * Linkage of the headers' functions. In C++ they are inline, not static, so that inline functions and templates that call them are the same in every
 * file. They are hidden and tagged (and in extern "C++"), so that they clash neither with the program's functions nor with other versions of these
 * headers.
 */
#ifdef __cplusplus
#define STILLPOINT_INLINE_ inline __attribute__((visibility("hidden"), abi_tag("stillpoint")))
#else
#define STILLPOINT_INLINE_ static inline
#endif

/* For functions that are called once per object: calls them without a PLT stub if the compiler can. */
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

/* An RCU domain: its sections delay only its own grace periods. */
struct stillpoint_domain;

/* Names a grace period: see stillpoint_domain_get_state(). */
typedef uint64_t stillpoint_cookie;

/*
 * Links an object into the queue of callbacks or frees: the kernel's struct rcu_head, four words in the object. Initialising it only silences memory
 * checkers. The library owns it from stillpoint_call() until the function is called.
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

/* Arguments of the program's callbacks; functions.h declares the other handles. */
struct stillpoint_entry;
struct stillpoint_relieved;

/* Bytes charged to a tenant. Keep it in the object that they are for. */
struct stillpoint_charge {
    uint64_t opaque[2];
};
#define STILLPOINT_CHARGE_INIT {{0, 0}}

/* For stillpoint_lru_walk(): all nodes. */
#define STILLPOINT_ALL_NODES SIZE_MAX

typedef void (*stillpoint_release_function)(void *object);
typedef int (*stillpoint_isolate_function)(struct stillpoint_entry *entry, void *object, void *data);
typedef void (*stillpoint_relieved_function)(const struct stillpoint_relieved *relieved, void *data);

/* The node that a program embeds in each object of a map: see <stillpoint/map.h>. It needs no initialisation. */
struct stillpoint_map_node {
    uint64_t opaque;
};

/* A position in a map, valid in one section. `node` is the node found last, or NULL. */
struct stillpoint_map_iter {
    struct stillpoint_map_node *node;
    uint64_t opaque[8];
};

/* For stillpoint_map_new(): the table does not shrink by itself below its initial capacity. */
#define STILLPOINT_MAP_KEEP_CAPACITY 1u

typedef int (*stillpoint_match_function)(struct stillpoint_map_node *node, const void *key);
typedef void (*stillpoint_map_node_function)(struct stillpoint_map_node *node, void *data);

/* ---- The inlined read side. The names and fields below are private to the library and its headers. ---- */

/* A thread's record. Only its owner writes the word: the nesting depth in the low 16 bits, above them the grace period in which its section began. */
struct stillpoint_record {
    uint64_t word;
    uint32_t flags;
    uint32_t opaque;
    uint64_t more[6];
} __attribute__((aligned(64)));

#define STILLPOINT_NESTING_ 0xffffu

/* The words that a global domain's outermost sections load when they begin, each on its own cache lines. */
struct stillpoint_line {
    uint64_t word;
} __attribute__((aligned(128)));

extern struct stillpoint_line stillpoint_started[2];

/* A thread's record in a domain, and the address of the domain's word. RCU and trace readers take that from stillpoint_started instead. */
struct stillpoint_reader {
    struct stillpoint_record *record;
    const uint64_t *started;
};

enum { STILLPOINT_RCU_ = 0, STILLPOINT_TRACE_ = 1, STILLPOINT_QSBR_ = 2 };

/* A thread's reader of a separate domain: see stillpoint_domain_reader_init(). Put it on the thread's stack, or make it thread-local. */
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
