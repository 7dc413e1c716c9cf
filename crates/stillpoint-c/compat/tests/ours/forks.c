/* Who waits for whom around fork() and the locks of defer_rcu(), where liburcu would hang or its hooks race. `run` bounds the time. */
#include <stdatomic.h>
#include <urcu/urcu-bp.h>
#include <urcu/urcu-mb.h>
#include <urcu/urcu-qsbr.h>

#include <urcu.h>

#include "../programs/common.h"

/* ---- QSBR readers that are online all the time ---- */

static _Atomic int called;

static void count(void *unused)
{
    (void)unused;
    called++;
}

/* Each holds the lock while it waits for the others' quiescent states. */
static void *defer(void *unused)
{
    (void)unused;
    urcu_qsbr_register_thread();
    for (int n = 0; n < 300; n++) {
        CHECK(urcu_qsbr_defer_register_thread() == 0 && urcu_qsbr_read_ongoing());
        urcu_qsbr_defer_rcu(count, NULL);
        urcu_qsbr_defer_unregister_thread();
        CHECK(urcu_qsbr_read_ongoing());
    }
    urcu_qsbr_unregister_thread();
    return NULL;
}

static void qsbr_defers(void)
{
    pthread_t threads[3] = {start(defer, NULL), start(defer, NULL), start(defer, NULL)};
    for (int n = 0; n < 3; n++) {
        join(threads[n]);
    }
    CHECK(called == 900);
}

static _Atomic int begun;

static void synchronize_in_callback(struct rcu_head *unused)
{
    (void)unused;
    begun = 1;
    usleep(20000);
    urcu_qsbr_synchronize_rcu();
}

/* The hook waits for the callback, which waits for the quiescent state of the thread that forks. */
static void qsbr_forks(void)
{
    static struct rcu_head head;
    urcu_qsbr_register_thread();
    urcu_qsbr_call_rcu(&head, synchronize_in_callback);
    urcu_qsbr_thread_offline();
    while (!begun) {
        usleep(100);
    }
    urcu_qsbr_thread_online();
    urcu_qsbr_call_rcu_before_fork();
    CHECK(urcu_qsbr_read_ongoing());
    pid_t child = fork();
    if (child == 0) {
        urcu_qsbr_call_rcu_after_fork_child();
        urcu_qsbr_synchronize_rcu();
        _exit(0);
    }
    urcu_qsbr_call_rcu_after_fork_parent();
    CHECK(exit_of(child) == 0);
    urcu_qsbr_unregister_thread();
}

/* ---- Two who fork at the same time ---- */

static void fork_and(void (*in_child)(void))
{
    call_rcu_before_fork();
    pid_t child = fork();
    if (child == 0) {
        call_rcu_after_fork_child();
        in_child();
        _exit(0);
    }
    call_rcu_after_fork_parent();
    CHECK(exit_of(child) == 0);
}

static void fork_once(void)
{
    fork_and(rcu_barrier);
}

static void do_nothing(void)
{
}

static _Atomic int forks_in_callbacks, stop;

static void fork_in_callback(struct rcu_head *head)
{
    fork_and(do_nothing);
    forks_in_callbacks++;
    if (!stop) {
        call_rcu(head, fork_in_callback);
    }
}

static void forks_beside_callbacks(void)
{
    static struct rcu_head head;
    call_rcu(&head, fork_in_callback);
    for (int n = 0; n < 50 || forks_in_callbacks < 5; n++) {
        fork_and(do_nothing);
    }
    stop = 1;
    rcu_barrier();
    rcu_barrier();
}

static _Atomic int in_callback, in_hook;

static void fork_later(struct rcu_head *unused)
{
    (void)unused;
    in_callback = 1;
    while (!in_hook) {
        usleep(100);
    }
    fork_once();
}

static void let_it(void *unused)
{
    (void)unused;
    in_hook = 1;
}

static void ignore(void *unused)
{
    (void)unused;
}

/* The first waits for the callback that is running, and that for its turn. */
static void fork_before_a_callback(void)
{
    static struct rcu_head head;
    static struct urcu_atfork atfork = {let_it, ignore, ignore, NULL};
    urcu_mb_register_rculfhash_atfork(&atfork);
    urcu_mb_call_rcu(&head, fork_later);
    while (!in_callback) {
        usleep(100);
    }
    urcu_mb_call_rcu_before_fork();
    urcu_mb_call_rcu_after_fork_parent();
    urcu_mb_barrier();
    urcu_mb_unregister_rculfhash_atfork(&atfork);
}

/* As the hash table's: they count, with no lock, and one set of them serves all flavours. */
static struct {
    int inside, befores, afters;
    pthread_t owner;
    struct urcu_atfork *leaves;
} hooks;

static void before(void *of)
{
    CHECK(of == &hooks);
    CHECK(hooks.inside == 0 || pthread_equal(hooks.owner, pthread_self()));
    hooks.owner = pthread_self();
    hooks.inside++;
    sched_yield();
    hooks.befores++;
    if (hooks.leaves) {
        urcu_memb_unregister_rculfhash_atfork(hooks.leaves);
    }
}

static void after(void *of)
{
    CHECK(of == &hooks);
    CHECK(hooks.inside > 0 && pthread_equal(hooks.owner, pthread_self()));
    hooks.inside--;
    hooks.afters++;
}

static void *fork_often(void *of)
{
    for (int n = 0; n < 40; n++) {
        bool both = of != NULL || n % 2;
        if (both) {
            urcu_bp_call_rcu_before_fork();
        }
        call_rcu_before_fork();
        pid_t child = fork();
        if (child == 0) {
            call_rcu_after_fork_child();
            if (both) {
                urcu_bp_call_rcu_after_fork_child();
            }
            CHECK(hooks.inside == 0);
            fork_once();
            _exit(0);
        }
        call_rcu_after_fork_parent();
        if (both) {
            urcu_bp_call_rcu_after_fork_parent();
        }
        CHECK(exit_of(child) == 0);
    }
    return NULL;
}

static void two_threads_fork(void)
{
    static struct urcu_atfork atfork = {before, after, after, &hooks};
    urcu_memb_register_rculfhash_atfork(&atfork);
    urcu_bp_register_rculfhash_atfork(&atfork);
    pthread_t threads[2] = {start(fork_often, NULL), start(fork_often, &hooks)};
    join(threads[0]);
    join(threads[1]);
    CHECK(hooks.befores == 40 + 20 + 80 && hooks.afters == hooks.befores);
    /* Unregistered between the hook and its partner, which is called all the same. */
    hooks.leaves = &atfork;
    call_rcu_before_fork();
    call_rcu_after_fork_parent();
    CHECK(hooks.inside == 0 && hooks.afters == hooks.befores);
    urcu_bp_unregister_rculfhash_atfork(&atfork);
}

/* A fork with no hooks while another thread is between two of them: the child can fork by itself. */
static void *fork_plainly(void *unused)
{
    (void)unused;
    pid_t child = fork();
    if (child == 0) {
        fork_once();
        _exit(0);
    }
    CHECK(exit_of(child) == 0);
    return NULL;
}

static void plain_fork_meanwhile(void)
{
    call_rcu_before_fork();
    join(start(fork_plainly, NULL));
    call_rcu_after_fork_parent();
}

/* ---- A fork inside a deferred function ---- */

static pid_t parent;
static pthread_t parents_thread;
static int order[3], ran;

static void note(void *of)
{
    /* In the child there is no other thread. */
    CHECK(getpid() == parent || pthread_equal(pthread_self(), parents_thread));
    order[ran++] = (int)(long)of;
}

static void fork_here(void *unused)
{
    (void)unused;
    order[ran++] = 2;
    fflush(stdout);
    pid_t child = fork();
    if (child > 0) {
        CHECK(exit_of(child) == 0);
    } else if (!pthread_equal(pthread_self(), parents_thread)) {
        /* What looks after the rings was faster. */
        _exit(0);
    } else {
        /* What looks after the rings in the child must not be faster than this thread with the next of them. */
        usleep(50000);
    }
}

static void fork_in_function(void)
{
    parent = getpid();
    parents_thread = pthread_self();
    CHECK(rcu_defer_register_thread() == 0);
    defer_rcu(note, (void *)1);
    defer_rcu(fork_here, NULL);
    defer_rcu(note, (void *)3);
    rcu_defer_barrier_thread();
    CHECK(ran == 3 && order[0] == 1 && order[1] == 2 && order[2] == 3);
    defer_rcu(count, NULL);
    rcu_defer_unregister_thread();
    if (getpid() != parent) {
        _exit(0);
    }
}

/* ---- Workers that end ---- */

static struct call_rcu_data *own;
static _Atomic long turns;
static _Atomic int enough;

static void again(struct rcu_head *head)
{
    if (!enough) {
        CHECK(turns > 0 || get_thread_call_rcu_data() == own);
        turns++;
        call_rcu(head, again);
    }
}

/* A callback that queues itself does not keep its worker for ever. */
static void free_beside_a_loop(void)
{
    static struct rcu_head head;
    own = create_call_rcu_data(0, -1);
    set_thread_call_rcu_data(own);
    call_rcu(&head, again);
    set_thread_call_rcu_data(NULL);
    while (turns < 3) {
        usleep(100);
    }
    call_rcu_data_free(own);
    long before_ = turns;
    while (turns < before_ + 3) {
        usleep(100);
    }
    enough = 1;
    rcu_barrier();
    rcu_barrier();
}

int main(void)
{
    static const struct {
        const char *name;
        void (*run)(void);
    } all[] = {
        {"qsbr defers", qsbr_defers},
        {"qsbr forks", qsbr_forks},
        {"forks beside callbacks", forks_beside_callbacks},
        {"fork before a callback", fork_before_a_callback},
        {"two threads fork", two_threads_fork},
        {"plain fork meanwhile", plain_fork_meanwhile},
        {"fork in a deferred function", fork_in_function},
        {"free beside a loop", free_beside_a_loop},
    };
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        fprintf(stderr, "%s\n", all[n].name);
        all[n].run();
    }
    printf("%zu waits\n", sizeof all / sizeof *all);
    return 0;
}
