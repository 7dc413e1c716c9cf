/* The read side, grace periods, callbacks, cookies, deferred frees and QSBR, with readers in four threads. */
#include "check.h"

#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>

struct node {
    long value;
    struct stillpoint_head head;
};

static struct node *shared;
static int stop;
static long called;

static void *reader(void *unused)
{
    long seen = 0;
    (void)unused;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        stillpoint_read_lock();
        struct node *node = __atomic_load_n(&shared, __ATOMIC_ACQUIRE);
        CHECK(node->value == 42);
        stillpoint_read_lock();
        CHECK(stillpoint_read_unlock() == 0);
        CHECK(node->value == 42);
        CHECK(stillpoint_read_unlock() == 0);
        seen++;
    }
    return (void *)seen;
}

static void *qsbr(void *unused)
{
    (void)unused;
    CHECK(stillpoint_qsbr_register() == 0);
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        stillpoint_qsbr_read_lock();
        CHECK(__atomic_load_n(&shared, __ATOMIC_ACQUIRE) != NULL);
        stillpoint_qsbr_read_unlock();
        stillpoint_qsbr_quiescent_state();
    }
    CHECK(stillpoint_qsbr_unregister() == 0);
    return NULL;
}

static void reclaim(struct stillpoint_head *head)
{
    struct node *node = (struct node *)((char *)head - offsetof(struct node, head));
    node->value = 0;
    __atomic_fetch_add(&called, 1, __ATOMIC_RELAXED);
    free(node);
}

static struct node *make(void)
{
    struct node *node = malloc(sizeof *node);
    CHECK(node != NULL);
    node->value = 42;
    return node;
}

static char thread_name[17];

static void note_name(struct stillpoint_head *head)
{
    (void)head;
    prctl(PR_GET_NAME, thread_name);
}

static void use_named_domain(void)
{
    struct stillpoint_head head = {0};
    struct stillpoint_domain *domain = stillpoint_domain_new_named("routes");
    CHECK(stillpoint_domain_call(domain, &head, note_name) == 0);
    CHECK(stillpoint_domain_barrier(domain) == 0);
    CHECK(strcmp(thread_name, "rcu/routes") == 0);
    CHECK(stillpoint_domain_destroy(domain) == 0);
    domain = stillpoint_domain_new_named(NULL);
    CHECK(stillpoint_domain_synchronize(domain) == 0);
    CHECK(stillpoint_domain_destroy(domain) == 0);
}

int main(void)
{
    use_named_domain();
    pthread_t threads[5];
    shared = make();
    for (int n = 0; n < 5; n++) {
        CHECK(pthread_create(&threads[n], NULL, n == 4 ? qsbr : reader, NULL) == 0);
    }
    long calls = 0;
    for (int n = 0; n < 400; n++) {
        struct node *old = __atomic_exchange_n(&shared, make(), __ATOMIC_ACQ_REL);
        switch (n % 5) {
        case 0:
            CHECK((n % 2 ? stillpoint_synchronize() : stillpoint_synchronize_expedited()) == 0);
            old->value = 0;
            free(old);
            break;
        case 1:
            CHECK(stillpoint_call(&old->head, reclaim) == 0);
            calls++;
            break;
        case 2: {
            stillpoint_cookie cookie = n % 2 ? stillpoint_get_state() : stillpoint_start_poll();
            CHECK(stillpoint_cond_synchronize(cookie) == 0);
            CHECK(stillpoint_poll(cookie));
            old->value = 0;
            free(old);
            break;
        }
        case 3:
            CHECK(stillpoint_domain_kvfree(NULL, old) == 0);
            break;
        default:
            CHECK(stillpoint_domain_kvfree_head(NULL, old, &old->head) == 0);
        }
        if (n % 50 == 0) {
            CHECK(stillpoint_qsbr_synchronize() == 0);
        }
    }
    CHECK(stillpoint_barrier() == 0);
    CHECK(__atomic_load_n(&called, __ATOMIC_RELAXED) == calls);
    CHECK(stillpoint_kvfree_barrier() == 0);
    CHECK(stillpoint_kvfree(malloc(16)) == 0 && stillpoint_kvfree_barrier_nested() == 0);
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    join_all(threads, 5);

    struct stillpoint_domain *domain = stillpoint_domain_new();
    CHECK(domain != NULL && domain != stillpoint_global());
    stillpoint_domain_read_lock(domain);
    CHECK(stillpoint_synchronize() == 0);
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    CHECK(stillpoint_domain_synchronize(domain) == 0);

    CHECK(stillpoint_domain_budget(domain) == 8 << 20);
    stillpoint_domain_set_budget(domain, 1 << 20);
    CHECK(stillpoint_domain_budget(domain) == 1 << 20);

    /* Callbacks are kept, but not from a barrier. */
    CHECK(stillpoint_domain_callback_delay(domain) == 0);
    stillpoint_domain_set_callback_delay(domain, 3600 * 1000);
    CHECK(stillpoint_domain_callback_delay(domain) == 3600 * 1000);
    struct node *kept = make();
    CHECK(stillpoint_domain_call(domain, &kept->head, reclaim) == 0);
    CHECK(stillpoint_domain_synchronize(domain) == 0);
    nanosleep(&(struct timespec){.tv_nsec = 30 * 1000 * 1000}, NULL);
    CHECK(__atomic_load_n(&called, __ATOMIC_RELAXED) == calls);
    CHECK(stillpoint_domain_barrier(domain) == 0);
    CHECK(__atomic_load_n(&called, __ATOMIC_RELAXED) == calls + 1);

    CHECK(stillpoint_domain_destroy(domain) == 0);

    stillpoint_trace_read_lock();
    CHECK(stillpoint_synchronize() == 0);
    CHECK(stillpoint_domain_synchronize(stillpoint_trace_global()) == -EDEADLK);
    CHECK(stillpoint_trace_read_unlock() == 0);
    free(shared);
    return 0;
}
