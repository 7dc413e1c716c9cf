/* A global pointer that is exchanged under readers: the old one is freed after synchronize_rcu(). */
#include <urcu.h>

#include "common.h"

struct config {
    int version, twice;
};

static struct config *config;
static int stop;

static struct config *make(int version)
{
    struct config *made = allocate(sizeof *made);
    made->version = version;
    made->twice = 2 * version;
    return made;
}

static void *reader(void *unused)
{
    int last = 0;
    (void)unused;
    rcu_register_thread();
    while (!uatomic_read(&stop)) {
        rcu_read_lock();
        struct config *seen = rcu_dereference(config);
        CHECK(seen->version >= last && seen->twice == 2 * seen->version);
        rcu_read_lock();
        CHECK(rcu_read_ongoing());
        rcu_read_unlock();
        CHECK(rcu_read_ongoing());
        last = seen->version;
        CHECK(seen->twice == 2 * last);
        rcu_read_unlock();
    }
    CHECK(!rcu_read_ongoing());
    rcu_unregister_thread();
    return NULL;
}

int main(void)
{
    pthread_t readers[4];
    config = make(0);
    for (int n = 0; n < 4; n++) {
        readers[n] = start(reader, NULL);
    }
    long sum = 0;
    for (int version = 1; version <= 100; version++) {
        struct config *old = rcu_xchg_pointer(&config, make(version));
        synchronize_rcu();
        sum += old->version;
        old->version = old->twice = -1;
        free(old);
    }
    uatomic_set(&stop, 1);
    for (int n = 0; n < 4; n++) {
        join(readers[n]);
    }
    struct config *last = config, *other = make(7);
    CHECK(rcu_cmpxchg_pointer(&config, other, other) == last);
    CHECK(rcu_cmpxchg_pointer(&config, last, other) == last && config == other);
    rcu_set_pointer(&config, last);
    rcu_assign_pointer(config, config);
    printf("version %d, sum of the old ones %ld\n", config->version, sum);
    free(other);
    free(last);
    return 0;
}
