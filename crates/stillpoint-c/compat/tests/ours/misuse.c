/* What must not be done: each in a forked child, which has to end by abort() with the message, or to go on without harm. */
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <urcu/urcu-qsbr.h>

#include <urcu.h>

#include "again.h"

static struct rcu_head head;

static void nothing(struct rcu_head *unused)
{
    (void)unused;
}

static void wait_inside(struct rcu_head *unused)
{
    (void)unused;
    rcu_barrier();
}

static void synchronize_inside(void)
{
    rcu_read_lock();
    synchronize_rcu();
}

static void synchronize_nested(void)
{
    rcu_register_thread();
    rcu_read_lock();
    rcu_read_lock();
    rcu_read_unlock();
    synchronize_rcu();
}

static void barrier_inside(void)
{
    rcu_read_lock();
    call_rcu(&head, nothing);
    rcu_barrier();
    rcu_read_unlock();
    rcu_barrier();
}

static void barrier_in_callback(void)
{
    call_rcu(&head, wait_inside);
    rcu_barrier();
}

static void null_head(void)
{
    call_rcu(NULL, nothing);
}

static void null_function(void)
{
    call_rcu(&head, NULL);
}

static void live_head(void)
{
    rcu_read_lock();
    /* The worker is kept from taking the first by a batch that waits for this section. */
    static struct rcu_head earlier;
    call_rcu(&earlier, nothing);
    usleep(50000);
    call_rcu(&head, nothing);
    call_rcu(&head, nothing);
}

static void free_inside(void)
{
    struct call_rcu_data *worker = create_call_rcu_data(0, -1);
    rcu_read_lock();
    call_rcu_data_free(worker);
}

static void free_twice(void)
{
    struct call_rcu_data *worker = create_call_rcu_data(0, -1);
    call_rcu_data_free(worker);
    call_rcu_data_free(worker);
}

static struct {
    struct rcu_head head;
    struct call_rcu_data *worker;
} freed;

static void free_own_worker(struct rcu_head *unused)
{
    (void)unused;
    call_rcu_data_free(freed.worker);
}

static void free_by_callback(void)
{
    freed.worker = create_call_rcu_data(0, -1);
    set_thread_call_rcu_data(freed.worker);
    call_rcu(&freed.head, free_own_worker);
    rcu_barrier();
}

static void free_all_inside(void)
{
    rcu_read_lock();
    free_all_cpu_call_rcu_data();
}

/* Programs call both in every child, whether or not its parent had called the first. */
static void after_without_before(void)
{
    call_rcu_after_fork_parent();
    call_rcu(&head, nothing);
    rcu_barrier();
}

static void child_without_before(void)
{
    call_rcu_after_fork_child();
    call_rcu(&head, nothing);
    rcu_barrier();
    /* That it is no good is told to who asks. */
    int ends[2];
    CHECK(pipe(ends) == 0);
    dup2(ends[1], STDERR_FILENO);
    call_rcu_after_fork_child();
    char text[256] = "";
    CHECK(read(ends[0], text, sizeof text - 1) > 0 && strstr(text, "without call_rcu_before_fork()"));
}

static void call(void *unused)
{
    (void)unused;
}

static void defer_unregistered(void)
{
    defer_rcu(call, NULL);
}

static void barrier_unregistered(void)
{
    rcu_defer_barrier_thread();
}

static void unregister_unregistered(void)
{
    rcu_defer_unregister_thread();
}

static void defer_null(void)
{
    rcu_defer_register_thread();
    defer_rcu(NULL, NULL);
}

static void defer_barrier_inside(void)
{
    rcu_defer_register_thread();
    defer_rcu(call, NULL);
    rcu_read_lock();
    rcu_defer_barrier();
}

static void defer_register_inside(void)
{
    rcu_read_lock();
    rcu_defer_register_thread();
}

static void defer_full_inside(void)
{
    rcu_defer_register_thread();
    rcu_read_lock();
    for (int n = 0; n <= 4096; n++) {
        defer_rcu(call, NULL);
    }
}

static void wait_for_itself(void *unused)
{
    (void)unused;
    rcu_defer_barrier();
}

static void defer_barrier_in_function(void)
{
    rcu_defer_register_thread();
    defer_rcu(wait_for_itself, NULL);
    rcu_defer_barrier_thread();
}

/* ---- Without harm. ---- */

static void unlock_without_lock(void)
{
    rcu_read_unlock();
    rcu_register_thread();
    rcu_read_unlock();
    rcu_read_lock();
    CHECK(rcu_read_ongoing());
    rcu_read_unlock();
    CHECK(!rcu_read_ongoing());
    synchronize_rcu();
}

static void register_twice(void)
{
    rcu_register_thread();
    rcu_register_thread();
    rcu_unregister_thread();
    rcu_unregister_thread();
    urcu_qsbr_register_thread();
    urcu_qsbr_register_thread();
    urcu_qsbr_unregister_thread();
    urcu_qsbr_unregister_thread();
    CHECK(rcu_defer_register_thread() == 0 && rcu_defer_register_thread() == 0);
    rcu_defer_unregister_thread();
    synchronize_rcu();
    urcu_qsbr_synchronize_rcu();
}

static void unregistered(void)
{
    rcu_read_lock();
    rcu_read_unlock();
    urcu_qsbr_quiescent_state();
    urcu_qsbr_thread_offline();
    urcu_qsbr_thread_online();
    CHECK(!urcu_qsbr_read_ongoing());
    urcu_qsbr_synchronize_rcu();
}

static void *forget(void *unused)
{
    (void)unused;
    rcu_register_thread();
    urcu_qsbr_register_thread();
    urcu_qsbr_thread_offline();
    rcu_read_lock();
    rcu_read_unlock();
    return NULL;
}

static void ends_without_unregistering(void)
{
    join(start(forget, NULL));
    synchronize_rcu();
    urcu_qsbr_synchronize_rcu();
}

static void fork_without_hooks(void)
{
    static struct rcu_head first, second;
    call_rcu(&first, nothing);
    rcu_barrier();
    rcu_read_lock();
    pid_t child = fork();
    if (child == 0) {
        rcu_read_unlock();
        call_rcu(&second, nothing);
        rcu_barrier();
        call_rcu_before_fork();
        pid_t grandchild = fork();
        if (grandchild == 0) {
            call_rcu_after_fork_child();
            rcu_barrier();
            _exit(0);
        }
        call_rcu_after_fork_parent();
        CHECK(exit_of(grandchild) == 0);
        _exit(0);
    }
    rcu_read_unlock();
    CHECK(exit_of(child) == 0);
}

static void hooks_inside_a_section(void)
{
    /* liburcu's wait for the workers' grace period, and so for ever. */
    rcu_read_lock();
    call_rcu(&head, nothing);
    usleep(50000);
    call_rcu_before_fork();
    call_rcu_after_fork_parent();
    rcu_read_unlock();
    rcu_barrier();
}

/* The second does nothing, nor does its partner. */
static void before_fork_twice(void)
{
    call_rcu_before_fork();
    call_rcu_before_fork();
    call_rcu_after_fork_parent();
    call_rcu_after_fork_parent();
    call_rcu_before_fork();
    call_rcu_before_fork();
    pid_t child = fork();
    if (child == 0) {
        call_rcu_after_fork_child();
        call_rcu_after_fork_child();
        call_rcu(&head, nothing);
        rcu_barrier();
        _exit(0);
    }
    call_rcu_after_fork_parent();
    CHECK(exit_of(child) == 0);
    call_rcu(&head, nothing);
    rcu_barrier();
}

static int forks_left = 2;

static void fork_in_callback_(struct rcu_head *of)
{
    if (forks_left-- > 0) {
        call_rcu(of, fork_in_callback_);
        call_rcu_before_fork();
        pid_t child = fork();
        if (child == 0) {
            call_rcu_after_fork_child();
            /* This thread is the worker, and goes on. */
            return;
        }
        call_rcu_after_fork_parent();
        CHECK(exit_of(child) == 0);
    } else if (getpid() != getpgrp()) {
        _exit(0);
    }
}

static void fork_in_callback(void)
{
    call_rcu(&head, fork_in_callback_);
    for (int n = 0; n < 4; n++) {
        rcu_barrier();
    }
}

struct misuse {
    const char *name;
    void (*run)(void);
    /* NULL where nothing bad comes of it. */
    const char *message;
};

#define WAITS "would wait for itself"
static const struct misuse all[] = {
    {"synchronize inside", synchronize_inside, WAITS},
    {"synchronize inside a nested one", synchronize_nested, WAITS},
    {"barrier in a callback", barrier_in_callback, WAITS},
    {"null head", null_head, "null head or function"},
    {"null function", null_function, "null head or function"},
    {"live head", live_head, "waits already"},
    {"free inside", free_inside, WAITS},
    {"free twice", free_twice, "no worker of this flavour"},
    {"free by a callback", free_by_callback, WAITS},
    {"free all inside", free_all_inside, WAITS},
    {"defer unregistered", defer_unregistered, "not registered"},
    {"defer barrier unregistered", barrier_unregistered, "not registered"},
    {"defer unregister unregistered", unregister_unregistered, "not registered"},
    {"defer null", defer_null, "null function"},
    {"defer barrier inside", defer_barrier_inside, WAITS},
    {"defer full inside", defer_full_inside, WAITS},
    {"defer barrier in a function", defer_barrier_in_function, "waits for such functions"},
    {"defer register inside", defer_register_inside, WAITS},
    {"barrier inside", barrier_inside, NULL},
    {"after fork without before", after_without_before, NULL},
    {"in child without before", child_without_before, NULL},
    {"unlock without lock", unlock_without_lock, NULL},
    {"register twice", register_twice, NULL},
    {"unregistered", unregistered, NULL},
    {"ends without unregistering", ends_without_unregistering, NULL},
    {"fork without hooks", fork_without_hooks, NULL},
    {"hooks inside a section", hooks_inside_a_section, NULL},
    {"fork in a callback", fork_in_callback, NULL},
    {"before a fork twice", before_fork_twice, NULL},
};

static void try(const struct misuse *misuse)
{
    int ends[2];
    CHECK(pipe(ends) == 0);
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        setpgid(0, 0);
        dup2(ends[1], STDERR_FILENO);
        alarm(30);
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        misuse->run();
        _exit(0);
    }
    close(ends[1]);
    char text[4096];
    size_t length = 0;
    for (ssize_t got; length < sizeof text - 1 && (got = read(ends[0], text + length, sizeof text - 1 - length)) > 0;) {
        length += (size_t)got;
    }
    text[length] = 0;
    close(ends[0]);
    int status;
    CHECK(waitpid(child, &status, 0) == child);
    int good = misuse->message ? WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strstr(text, misuse->message)
                               : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!good) {
        fprintf(stderr, "%s: status %#x, and said: %s\n", misuse->name, status, text);
        exit(1);
    }
}

int main(int count, char **arguments)
{
    (void)count;
    start_again_with("STILLPOINT_DEBUG", "1", arguments);
    for (size_t n = 0; n < sizeof all / sizeof *all; n++) {
        try(&all[n]);
    }
    printf("%zu misuses\n", sizeof all / sizeof *all);
    return 0;
}
