/*
 * The native interface: a domain with a budget, a cookie, a section that belongs to no
 * thread, statistics.
 * make -C docs/examples c
 */
#include <stdio.h>
#include <stdlib.h>
#include <stillpoint/stillpoint.h>

struct page {
    int number;
    struct stillpoint_head head;
};

static struct page *make(int number)
{
    struct page *page = malloc(sizeof *page);
    if (page == NULL) {
        abort();
    }
    page->number = number;
    return page;
}

int main(void)
{
    struct stillpoint_domain *domain = stillpoint_domain_new();
    stillpoint_domain_set_budget(domain, 1 << 20);
    stillpoint_domain_set_stall_timeout(domain, 1000); /* milliseconds */

    struct page *current = make(0);

    /* A request begins: it may sleep, and end on another thread. */
    struct stillpoint_guard *request = stillpoint_domain_guard(domain);
    stillpoint_guard_name(request, "request 1");
    const struct page *seen = __atomic_load_n(&current, __ATOMIC_ACQUIRE);

    /* Meanwhile, publish 1000 newer ones and retire the old ones. */
    for (int number = 1; number <= 1000; number++) {
        struct page *old = __atomic_exchange_n(&current, make(number), __ATOMIC_ACQ_REL);
        if (stillpoint_domain_kvfree_head(domain, old, &old->head) != 0) {
            abort();
        }
    }
    stillpoint_cookie cookie = stillpoint_domain_start_poll(domain);
    int early = stillpoint_domain_poll(domain, cookie); /* false: the request is still running */
    int number = seen->number;                          /* and the object it found still exists */

    stillpoint_guard_end(request);
    int error = stillpoint_domain_cond_synchronize(domain, cookie);
    error |= stillpoint_domain_kvfree_barrier(domain);

    struct stillpoint_statistics statistics;
    error |= stillpoint_domain_statistics(domain, &statistics, sizeof statistics);
    printf("the request saw page %d, ended early: %d; %lu pages freed, %lu wait\n", number, early,
           (unsigned long)statistics.objects_freed, (unsigned long)statistics.objects_pending);

    /* Errors are negative errnos: a wait inside one's own section is refused. */
    stillpoint_domain_read_lock(domain);
    int refused = stillpoint_domain_synchronize(domain);
    stillpoint_domain_read_unlock(domain);
    printf("a synchronize in a section: %d (-EDEADLK)\n", refused);

    free(current);
    error |= stillpoint_domain_destroy(domain);
    return error == 0 && early == 0 && number == 0 && statistics.objects_freed == 1000 && refused < 0 ? 0 : 1;
}
