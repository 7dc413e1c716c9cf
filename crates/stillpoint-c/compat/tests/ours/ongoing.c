/*
 * rcu_read_ongoing(): what it says in every flavour, and that it says so without a call where the answer is yes. The library's function is
 * counted by standing in its place; once more with fences, where all goes by calls.
 */
#include <dlfcn.h>
#include <malloc.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <urcu/urcu-bp.h>
#include <urcu/urcu-mb.h>
#include <urcu/urcu-qsbr.h>

#include <urcu.h>

#include "again.h"

static unsigned long calls;
static bool fences;

__attribute__((noinline)) bool stillpoint_urcu_read_ongoing(int flavour)
{
    static bool (*librarys)(int);
    __atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED);
    if (!librarys) {
        *(void **)&librarys = dlsym(RTLD_NEXT, "stillpoint_urcu_read_ongoing");
        CHECK(librarys != NULL);
    }
    return librarys(flavour);
}

struct names {
    void (*lock)(void), (*unlock)(void);
    int (*ongoing)(void);
};

/* Called through pointers to functions of this file, into which the inlined ones go. */
#define NAMES(flavour)                                                                     \
    static __attribute__((noinline)) void flavour##_lock(void)                             \
    {                                                                                      \
        urcu_##flavour##_read_lock();                                                      \
    }                                                                                      \
    static __attribute__((noinline)) void flavour##_unlock(void)                           \
    {                                                                                      \
        urcu_##flavour##_read_unlock();                                                    \
    }                                                                                      \
    __attribute__((noinline)) int ongoing_##flavour(void);                                 \
    int ongoing_##flavour(void)                                                            \
    {                                                                                      \
        return urcu_##flavour##_read_ongoing();                                            \
    }                                                                                      \
    static const struct names flavour = {flavour##_lock, flavour##_unlock, ongoing_##flavour};

NAMES(memb)
NAMES(mb)
NAMES(bp)

__attribute__((noinline)) int ongoing_qsbr(void);
int ongoing_qsbr(void)
{
    return urcu_qsbr_read_ongoing();
}

static const struct names *const all[] = {&memb, &mb, &bp};

/* Only the flavour `reading` is in a section. */
static void only(const struct names *reading)
{
    for (int n = 0; n < 3; n++) {
        CHECK(!all[n]->ongoing() == (all[n] != reading));
    }
}

static void nested(const struct names *names)
{
    only(NULL);
    names->lock();
    only(names);
    unsigned long before = calls;
    for (int depth = 0; depth < 1000; depth++) {
        CHECK(names->ongoing());
        names->lock();
    }
    for (int depth = 0; depth < 1000; depth++) {
        CHECK(names->ongoing());
        names->unlock();
    }
    CHECK(names->ongoing());
    CHECK(fences ? calls > before : calls == before);
    names->unlock();
    only(NULL);
}

/* As deep as can be: the word looks like the sentinel's. */
static void deepest(const struct names *names)
{
    for (int depth = 0; depth < 65535; depth++) {
        names->lock();
    }
    CHECK(names->ongoing());
    for (int depth = 0; depth < 65535; depth++) {
        names->unlock();
    }
    CHECK(!names->ongoing());
}

static const struct names *in_handler;
static bool handler_reads;

static void handle(int signal)
{
    (void)signal;
    CHECK(!in_handler->ongoing() == !handler_reads);
    in_handler->lock();
    CHECK(in_handler->ongoing());
    in_handler->unlock();
    CHECK(!in_handler->ongoing() == !handler_reads);
}

static void handlers(const struct names *names)
{
    in_handler = names;
    signal(SIGUSR1, handle);
    handler_reads = false;
    raise(SIGUSR1);
    names->lock();
    handler_reads = true;
    raise(SIGUSR1);
    names->unlock();
}

static void forked(const struct names *names)
{
    names->lock();
    names->lock();
    pid_t child = fork();
    CHECK(child >= 0);
    only(names);
    if (child == 0) {
        names->unlock();
        only(names);
        names->unlock();
        only(NULL);
        nested(names);
        _exit(0);
    }
    CHECK(exit_of(child) == 0);
    names->unlock();
    names->unlock();
    only(NULL);
}

/* A thread that has never read, and one that has registered alone. */
static void *fresh(void *unused)
{
    (void)unused;
    only(NULL);
    CHECK(!ongoing_qsbr());
    urcu_memb_register_thread();
    urcu_mb_register_thread();
    urcu_bp_register_thread();
    only(NULL);
    for (int n = 0; n < 3; n++) {
        nested(all[n]);
    }
    return NULL;
}

/* The first round may be before the library has forgotten the thread, the second is after it: sections begin without a binding there. */
static pthread_key_t key;
static int rounds;

static void at_the_end(void *value)
{
    for (int n = 0; n < 3; n++) {
        only(NULL);
        all[n]->lock();
        only(all[n]);
        all[n]->lock();
        only(all[n]);
        all[n]->unlock();
        only(all[n]);
        all[n]->unlock();
        only(NULL);
    }
    if (++rounds == 1) {
        CHECK(pthread_setspecific(key, value) == 0);
    }
}

static void *ends(void *unused)
{
    CHECK(pthread_setspecific(key, &key) == 0);
    return fresh(unused);
}

static void quiescent_states(void)
{
    unsigned long before = calls;
    CHECK(!ongoing_qsbr());
    urcu_qsbr_register_thread();
    CHECK(ongoing_qsbr());
    urcu_qsbr_read_lock();
    CHECK(ongoing_qsbr());
    urcu_qsbr_read_unlock();
    urcu_qsbr_quiescent_state();
    CHECK(ongoing_qsbr());
    urcu_qsbr_thread_offline();
    CHECK(!ongoing_qsbr());
    urcu_qsbr_synchronize_rcu();
    CHECK(!ongoing_qsbr());
    urcu_qsbr_thread_online();
    CHECK(ongoing_qsbr());
    urcu_qsbr_synchronize_rcu();
    CHECK(ongoing_qsbr());
    pid_t child = fork();
    CHECK(child >= 0);
    CHECK(ongoing_qsbr());
    if (child == 0) {
        urcu_qsbr_thread_offline();
        CHECK(!ongoing_qsbr());
        _exit(0);
    }
    CHECK(exit_of(child) == 0);
    urcu_qsbr_unregister_thread();
    CHECK(!ongoing_qsbr());
    CHECK(calls == before);
}

static void *quiescent_thread(void *unused)
{
    (void)unused;
    quiescent_states();
    return NULL;
}

/* The names that stand for no flavour's own. */
static void native(void)
{
    CHECK(!stillpoint_read_lock_held() && !stillpoint_trace_read_lock_held());
    stillpoint_read_lock();
    CHECK(stillpoint_read_lock_held() && !stillpoint_trace_read_lock_held() && rcu_read_ongoing());
    stillpoint_trace_read_lock();
    stillpoint_read_unlock();
    CHECK(!stillpoint_read_lock_held() && stillpoint_trace_read_lock_held() && !rcu_read_ongoing());
    stillpoint_trace_read_unlock();
    CHECK(!stillpoint_trace_read_lock_held());
    CHECK(stillpoint_domain_read_lock_held(stillpoint_urcu_domain(STILLPOINT_URCU_BP_)) == false);
    /* A section of the flavour's that was begun by the function of its domain. */
    stillpoint_domain_read_lock(stillpoint_urcu_domain(STILLPOINT_URCU_BP_));
    only(&bp);
    CHECK(stillpoint_domain_read_unlock(stillpoint_urcu_domain(STILLPOINT_URCU_BP_)) == 0);
    only(NULL);
}

/* Asked by a signal handler before there is anything of the flavour: nothing is allocated for the answer. */
static void asked_first(void)
{
    CHECK(!ongoing_memb()); /* looks the library's function up, and has a domain from the beginning */
    size_t before = mallinfo2().uordblks;
    only(NULL);
    CHECK(!ongoing_qsbr());
    CHECK(mallinfo2().uordblks == before);
}

int main(int argc, char **argv)
{
    (void)argc;
    const char *mode = getenv("STILLPOINT_MEMBARRIER");
    fences = mode && !strcmp(mode, "off");
    asked_first();
    CHECK(pthread_key_create(&key, at_the_end) == 0);
    for (int n = 0; n < 3; n++) {
        nested(all[n]);
        deepest(all[n]);
        handlers(all[n]);
        forked(all[n]);
    }
    native();
    join(start(fresh, NULL));
    join(start(ends, NULL));
    CHECK(rounds == 2);
    quiescent_states();
    join(start(quiescent_thread, NULL));
    start_again_with("STILLPOINT_MEMBARRIER", "off", argv);
    puts("ongoing sections");
    return 0;
}
