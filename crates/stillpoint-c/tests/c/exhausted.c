/* No memory for the pages that hold retired blocks: a caller with a head never waits for one; a caller without a head gets an error or waits. */
#include "check.h"

#include <sched.h>

static int refusing;
static int refused;

/* What the library takes its pages with; nothing else here asks for such. */
int posix_memalign(void **block, size_t align, size_t size)
{
    if (align == 64 && size == 4096 && __atomic_load_n(&refusing, __ATOMIC_SEQ_CST)) {
        __atomic_fetch_add(&refused, 1, __ATOMIC_SEQ_CST);
        return ENOMEM;
    }
    *block = aligned_alloc(align, (size + align - 1) / align * align);
    return *block == NULL ? ENOMEM : 0;
}

struct node {
    long value;
    struct stillpoint_head head;
};

enum { SOME = 100 };

static pthread_barrier_t steps;

static void *reads(void *domain)
{
    stillpoint_domain_read_lock(domain);
    pthread_barrier_wait(&steps);
    pthread_barrier_wait(&steps);
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    return NULL;
}

static struct node *make(void)
{
    struct node *node = malloc(sizeof *node);
    CHECK(node != NULL);
    node->value = 42;
    return node;
}

static struct stillpoint_statistics statistics(struct stillpoint_domain *domain)
{
    struct stillpoint_statistics now;
    CHECK(stillpoint_domain_statistics(domain, &now, sizeof now) == 0);
    return now;
}

static void test_domain(struct stillpoint_domain *domain)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, reads, domain) == 0);
    pthread_barrier_wait(&steps);
    __atomic_store_n(&refusing, 1, __ATOMIC_SEQ_CST);
    int before = refused;
    /* The other thread is inside a section, and nothing would end a wait for it. */
    for (int n = 0; n < SOME; n++) {
        struct node *node = make();
        CHECK((domain == NULL && n % 2 ? stillpoint_kvfree(node, head) : stillpoint_domain_kvfree_head(domain, node, &node->head)) == 0);
    }
    CHECK(refused >= before + SOME);
    CHECK(statistics(domain).callbacks_pending == SOME && statistics(domain).inline_waits == 0);
    stillpoint_domain_read_lock(domain);
    struct node *node = make();
    CHECK((domain == NULL ? stillpoint_kvfree(node) : stillpoint_domain_kvfree(domain, node)) == -ENOMEM);
    CHECK(node->value == 42); /* still ours */
    CHECK(stillpoint_domain_read_unlock(domain) == 0);
    pthread_barrier_wait(&steps);
    pthread_join(thread, NULL);
    CHECK(stillpoint_domain_kvfree(domain, node) == 0 && statistics(domain).inline_waits == 1);
    CHECK(stillpoint_domain_kvfree_barrier(domain) == 0);
    while (statistics(domain).callbacks_pending != 0) { /* The barrier's own is counted until it has returned. */
        sched_yield();
    }
    __atomic_store_n(&refusing, 0, __ATOMIC_SEQ_CST);
    CHECK(stillpoint_domain_kvfree(domain, make()) == 0);
    CHECK(stillpoint_domain_kvfree_barrier(domain) == 0 && statistics(domain).objects_pending == 0);
}

int main(void)
{
    CHECK(pthread_barrier_init(&steps, NULL, 2) == 0);
    struct stillpoint_domain *domain = stillpoint_domain_new();
    test_domain(domain);
    CHECK(stillpoint_domain_destroy(domain) == 0);
    test_domain(NULL);
    return 0;
}
