/* Readers of private domains by inlined functions: grace periods wait for them, they nest with the other functions, leave when asked to, and wake waiters. */
#include "check.h"

enum { THREADS = 4, ROUNDS = 2000 };

struct value {
    long one, other;
};

static struct stillpoint_domain *domain;
static struct value *shared;
static int stop;
static pthread_barrier_t steps;

static void *read_all(void *unused)
{
    (void)unused;
    struct stillpoint_domain_reader reader;
    CHECK(stillpoint_domain_reader_init(domain, &reader) == 0);
    pthread_barrier_wait(&steps);
    long found = 0;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED) || found < 100) {
        stillpoint_domain_reader_lock(&reader);
        struct value *value = __atomic_load_n(&shared, __ATOMIC_CONSUME);
        CHECK(value->one == value->other && value->one >= 0);
        if (++found % 64 == 0) {
            /* Nested, in each other's hands. */
            stillpoint_domain_read_lock(domain);
            stillpoint_domain_reader_lock(&reader);
            CHECK(stillpoint_domain_read_unlock(domain) == 0);
            CHECK(stillpoint_domain_reader_unlock(&reader) == 0);
            CHECK(stillpoint_domain_read_lock_held(domain) && value->one == value->other);
        }
        CHECK(stillpoint_domain_reader_unlock(&reader) == 0);
    }
    CHECK(!stillpoint_domain_read_lock_held(domain));
    return NULL;
}

static struct value *value(long number)
{
    struct value *made = malloc(sizeof *made);
    CHECK(made != NULL);
    *made = (struct value){number, number};
    return made;
}

static void replace_all(void)
{
    pthread_t threads[THREADS];
    shared = value(0);
    stop = 0;
    start_all(threads, THREADS, read_all, NULL);
    pthread_barrier_wait(&steps);
    for (long n = 1; n <= ROUNDS; n++) {
        struct value *old = __atomic_exchange_n(&shared, value(n), __ATOMIC_ACQ_REL);
        if (n % 8 == 0) {
            CHECK(stillpoint_domain_synchronize(domain) == 0);
            old->one = -1;
            free(old);
        } else {
            CHECK(stillpoint_domain_kvfree(domain, old) == 0);
        }
    }
    __atomic_store_n(&stop, 1, __ATOMIC_RELAXED);
    join_all(threads, THREADS);
    free(shared);
}

static int waiting;

static void *wait_for_readers(void *cookie)
{
    __atomic_store_n(&waiting, 1, __ATOMIC_RELEASE);
    CHECK(stillpoint_domain_cond_synchronize(domain, *(stillpoint_cookie *)cookie) == 0);
    return NULL;
}

/* A grace period does not end before a section that it found; who waits for it is woken by its end. */
static void hold(void)
{
    struct stillpoint_domain_reader reader, again;
    CHECK(stillpoint_domain_reader_init(domain, &reader) == 0 && stillpoint_domain_reader_init(domain, &again) == 0);
    CHECK(stillpoint_domain_is_registered(domain));
    stillpoint_domain_reader_lock(&reader);
    stillpoint_cookie cookie = stillpoint_domain_start_poll(domain);
    pthread_t thread;
    waiting = 0;
    CHECK(pthread_create(&thread, NULL, wait_for_readers, &cookie) == 0);
    while (!__atomic_load_n(&waiting, __ATOMIC_ACQUIRE)) {
    }
    for (int n = 0; n < 1000; n++) {
        CHECK(!stillpoint_domain_poll(domain, cookie));
    }
    CHECK(stillpoint_domain_reader_unlock(&again) == 0); /* as good as the first */
    pthread_join(thread, NULL);
    CHECK(stillpoint_domain_poll(domain, cookie));
}

int main(void)
{
    CHECK(pthread_barrier_init(&steps, NULL, THREADS + 1) == 0);
    struct stillpoint_domain *(*makers[])(void) = {stillpoint_domain_new, stillpoint_domain_new_fencing};
    for (int n = 0; n < 2; n++) {
        domain = makers[n]();
        CHECK(domain != NULL);
        replace_all();
        hold();
        CHECK(stillpoint_domain_destroy(domain) == 0);
    }
    domain = NULL;
    replace_all();
    hold();
    return 0;
}
