/* A table of sessions as kernel code writes it: hash chains that are read without locks, while one writer opens and closes sessions. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <stillpoint/rculist.h>

enum { BUCKETS = 64, SESSIONS = 1000 };

struct session {
    unsigned number;
    unsigned user;
    struct hlist_node bucket;
    struct rcu_head rcu;
};

static struct hlist_head table[BUCKETS];
static pthread_mutex_t writers = PTHREAD_MUTEX_INITIALIZER;
static int closing;

/* The session's owner; 0 for none. */
static unsigned user_of(unsigned number)
{
    unsigned user = 0;
    struct session *at;
    rcu_read_lock();
    hlist_for_each_entry_rcu(at, &table[number % BUCKETS], bucket) {
        if (at->number == number) {
            user = at->user;
            break;
        }
    }
    rcu_read_unlock();
    return user;
}

static int open_session(unsigned number, unsigned user)
{
    struct session *made = calloc(1, sizeof *made);
    if (!made) {
        return -1;
    }
    made->number = number;
    made->user = user;
    pthread_mutex_lock(&writers);
    hlist_add_head_rcu(&made->bucket, &table[number % BUCKETS]);
    pthread_mutex_unlock(&writers);
    return 0;
}

static void close_session(unsigned number)
{
    struct session *at;
    pthread_mutex_lock(&writers);
    hlist_for_each_entry_rcu(at, &table[number % BUCKETS], bucket) {
        if (at->number == number) {
            hlist_del_rcu(&at->bucket);
            kvfree_rcu(at, rcu); /* readers may be on it */
            break;
        }
    }
    pthread_mutex_unlock(&writers);
}

static void *look_up(void *wrong)
{
    do {
        for (unsigned number = 0; number < SESSIONS; number++) {
            unsigned user = user_of(number);
            if (user != 0 && user != number + 1) {
                ++*(long *)wrong;
            }
        }
    } while (!__atomic_load_n(&closing, __ATOMIC_RELAXED));
    return NULL;
}

int main(void)
{
    pthread_t readers[2];
    long wrong[2] = {0, 0};
    for (int n = 0; n < 2; n++) {
        if (pthread_create(&readers[n], NULL, look_up, &wrong[n]) != 0) {
            return 1;
        }
    }
    for (unsigned round = 0; round < 20; round++) {
        for (unsigned number = 0; number < SESSIONS; number++) {
            if (open_session(number, number + 1) != 0) {
                return 1;
            }
        }
        for (unsigned number = 0; number < SESSIONS; number++) {
            close_session(number);
        }
    }
    __atomic_store_n(&closing, 1, __ATOMIC_RELAXED);
    for (int n = 0; n < 2; n++) {
        pthread_join(readers[n], NULL);
    }
    kvfree_rcu_barrier();
    printf("%d sessions opened and closed, %ld wrong answers\n", 20 * SESSIONS, wrong[0] + wrong[1]);
    return wrong[0] + wrong[1] != 0;
}
