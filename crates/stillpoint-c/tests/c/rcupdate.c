/* The kernel's spellings do what the kernel's do. */
#include "check.h"

#include <malloc.h>
#include <stillpoint/rcupdate.h>
#include <unistd.h>

struct node {
    int value;
    struct rcu_head rcu;
};

static struct node __rcu *current;
static int called;

static void count(struct rcu_head *head)
{
    (void)head;
    __atomic_fetch_add(&called, 1, __ATOMIC_RELAXED);
}

static void again(struct rcu_head *head)
{
    if (__atomic_fetch_add(&called, 1, __ATOMIC_RELAXED) < 9) {
        call_rcu(head, again); /* a head may be queued again by its own callback */
    }
}

static struct node *make(int value)
{
    struct node *node = calloc(1, sizeof *node);
    CHECK(node != NULL);
    node->value = value;
    return node;
}

static int left;

static void *sleeper(void *started)
{
    rcu_read_lock_trace();
    __atomic_store_n((int *)started, 1, __ATOMIC_RELEASE);
    usleep(20000);
    __atomic_store_n(&left, 1, __ATOMIC_RELEASE);
    rcu_read_unlock_trace();
    return NULL;
}

DEFINE_STATIC_SRCU(lazy);

int main(void)
{
    RCU_INIT_POINTER(current, make(1));
    rcu_read_lock();
    CHECK(rcu_read_lock_held());
    CHECK(rcu_dereference(current)->value == 1);
    CHECK(rcu_dereference_check(current, rcu_read_lock_held()) == rcu_access_pointer(current));
    rcu_read_unlock();
    CHECK(!rcu_read_lock_held());

    struct node *old = rcu_replace_pointer(current, make(2), true);
    CHECK(old->value == 1 && rcu_dereference_protected(current, true)->value == 2);
    synchronize_rcu();
    synchronize_rcu_expedited();
    free(old);
    old = rcu_dereference_protected(current, true);
    rcu_assign_pointer(current, NULL);
    CHECK(kvfree_rcu(old, rcu) == 0);
    CHECK(kvfree_rcu(malloc(100)) == 0);
    CHECK(kfree_rcu((struct node *)NULL, rcu) == 0);
    CHECK(kvfree_rcu_mightsleep(malloc(100)) == 0);
    kvfree_rcu_barrier();
    struct stillpoint_statistics statistics;
    CHECK(stillpoint_domain_statistics(NULL, &statistics, sizeof statistics) == 0);
    CHECK(statistics.objects_pending == 0 && statistics.objects_freed == 3);
    CHECK(statistics.grace_periods > 0);
    CHECK(stillpoint_histogram_count(&statistics.wait_times) == statistics.waits);
    CHECK(stillpoint_histogram_count(NULL) == 0 && stillpoint_histogram_quantile(NULL, 0.5) == 0);

    /* What is given up is really freed. (A sanitizer's malloc() says nothing of that.) */
    size_t before = mallinfo2().uordblks;
    for (int n = 0; n < 20000; n++) {
        CHECK(kvfree_rcu(malloc(1000)) == 0);
        CHECK(kvfree_rcu(make(n), rcu) == 0);
    }
    kvfree_rcu_barrier();
    CHECK(mallinfo2().uordblks < before + 1000000);

    struct rcu_head on_stack;
    init_rcu_head_on_stack(&on_stack);
    call_rcu(&on_stack, count);
    rcu_barrier();
    CHECK(called == 1);
    call_rcu(&on_stack, again);
    for (int n = 0; n < 10; n++) {
        rcu_barrier();
    }
    /* A pass counts when it has ended, which may be after rcu_barrier(): the first has, at least. */
    CHECK(stillpoint_domain_statistics(NULL, &statistics, sizeof statistics) == 0);
    const struct stillpoint_histogram *times = &statistics.callback_times;
    CHECK(stillpoint_histogram_count(times) > 0 && times->sum > 0);
    CHECK(stillpoint_histogram_quantile(times, 1.0) > times->sum / stillpoint_histogram_count(times));
    CHECK(called == 10);
    destroy_rcu_head_on_stack(&on_stack);

    rcu_read_lock();
    stillpoint_cookie cookie = get_state_synchronize_rcu();
    CHECK(!poll_state_synchronize_rcu(cookie));
    rcu_read_unlock();
    cond_synchronize_rcu(cookie);
    CHECK(poll_state_synchronize_rcu(cookie));
    rcu_read_lock();
    cookie = start_poll_synchronize_rcu();
    CHECK(!poll_state_synchronize_rcu(cookie)); /* this very section holds it up */
    rcu_read_unlock();
    cond_synchronize_rcu_expedited(cookie);
    CHECK(poll_state_synchronize_rcu(cookie));

    /* Readers that sleep are waited for by their own flavour alone. */
    int started = 0;
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, sleeper, &started) == 0);
    while (!__atomic_load_n(&started, __ATOMIC_ACQUIRE)) {
        usleep(100);
    }
    synchronize_rcu();
    synchronize_rcu_tasks_trace();
    CHECK(__atomic_load_n(&left, __ATOMIC_ACQUIRE));
    pthread_join(thread, NULL);
    called = 0;
    call_rcu_tasks_trace(&on_stack, count);
    rcu_barrier_tasks_trace();
    CHECK(called == 1);

    /* An owned section, ended on the same thread here; named for reports. */
    struct stillpoint_guard *guard = stillpoint_trace_guard();
    CHECK(stillpoint_guard_name(guard, "request 17") == 0);
    cookie = stillpoint_domain_start_poll(stillpoint_trace_global());
    CHECK(!stillpoint_domain_poll(stillpoint_trace_global(), cookie));
    CHECK(stillpoint_guard_end(guard) == 0);
    synchronize_rcu_tasks_trace();
    CHECK(stillpoint_domain_poll(stillpoint_trace_global(), cookie));

    struct srcu_struct srcu;
    CHECK(init_srcu_struct(&srcu) == 0);
    for (int n = 0; n < 2; n++) {
        struct srcu_struct *domain = n == 0 ? &srcu : &lazy;
        int index = srcu_read_lock(domain);
        CHECK(srcu_read_lock_held(domain) && !rcu_read_lock_held());
        synchronize_rcu();
        cookie = start_poll_synchronize_srcu(domain);
        CHECK(!poll_state_synchronize_srcu(domain, cookie));
        srcu_read_unlock(domain, index);
        synchronize_srcu(domain);
        synchronize_srcu_expedited(domain);
        CHECK(poll_state_synchronize_srcu(domain, cookie));
        called = 0;
        call_srcu(domain, &on_stack, count);
        srcu_barrier(domain);
        CHECK(called == 1);
        cleanup_srcu_struct(domain);
        CHECK(domain->domain == NULL);
    }
    return 0;
}
