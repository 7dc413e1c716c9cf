/*
 * The workload of `stillpoint scale kfree`, from C: threads allocate small objects and give each to kvfree_rcu() at once.
 *
 *   kfree [one|two] [THREADS LOOPS OBJECTS]      with one argument (the default) or two; objects of 32 bytes
 *
 * Prints seconds from the start to the last free, nanoseconds an object, and MiB: the kernel's footprint and the peak.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <stillpoint/rcupdate.h>
#include <time.h>
#include <unistd.h>

struct object {
    struct rcu_head rcu;
} __attribute__((aligned(16)));

_Static_assert(sizeof(struct object) == 32, "objects of 32 bytes");

static long threads = 16, loops = 40, objects = 8000;
static int two;
static pthread_barrier_t start, finish;
static long base;

struct seen {
    double began, ended, footprint;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static long resident(void)
{
    long pages = 0, size = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (file == NULL || fscanf(file, "%ld %ld", &size, &pages) != 2) {
        abort();
    }
    fclose(file);
    return pages * sysconf(_SC_PAGESIZE);
}

static void *produce(void *argument)
{
    struct seen *seen = argument;
    long quarter = loops / 4 > 0 ? loops / 4 : 1;
    double mean = (double)base;
    /* A thread's first block makes its arena. Rust's threads have one when they begin to work, so these have, too. */
    free(malloc(1));
    pthread_barrier_wait(&start);
    seen->began = now();
    for (long loop = 0; loop < loops; loop++) {
        if (loop > 0 && loop % quarter == 0) {
            mean = (mean + (double)resident()) / 2;
        }
        for (long n = 0; n < objects; n++) {
            struct object *object = malloc(sizeof *object);
            if (object == NULL) {
                abort();
            }
            *(volatile long *)object = n;
            if ((two ? kvfree_rcu(object, rcu) : kvfree_rcu(object)) != 0) {
                abort();
            }
        }
    }
    seen->ended = now();
    seen->footprint = mean - (double)base;
    pthread_barrier_wait(&finish);
    return NULL;
}

int main(int argc, char **argv)
{
    int at = 1;
    if (argc > 1 && (strcmp(argv[1], "one") == 0 || strcmp(argv[1], "two") == 0)) {
        two = strcmp(argv[1], "two") == 0;
        at = 2;
    }
    if (argc == at + 3) {
        threads = atol(argv[at]);
        loops = atol(argv[at + 1]);
        objects = atol(argv[at + 2]);
    }
    if ((argc != at && argc != at + 3) || threads < 1 || threads > 1024 || loops < 1 || objects < 1) {
        fprintf(stderr, "kfree [one|two] [THREADS LOOPS OBJECTS]\n");
        return 2;
    }
    static pthread_t thread[1024];
    static struct seen seen[1024];
    struct rusage before, after;
    base = resident();
    getrusage(RUSAGE_SELF, &before);
    pthread_barrier_init(&start, NULL, (unsigned)threads);
    pthread_barrier_init(&finish, NULL, (unsigned)threads);
    for (long n = 0; n < threads; n++) {
        if (pthread_create(&thread[n], NULL, produce, &seen[n]) != 0) {
            abort();
        }
    }
    struct seen last = {0, 0, 0};
    double began = 0;
    for (long n = 0; n < threads; n++) {
        pthread_join(thread[n], NULL);
        began = n == 0 || seen[n].began < began ? seen[n].began : began;
        last = seen[n].ended > last.ended ? seen[n] : last;
    }
    kvfree_rcu_barrier();
    getrusage(RUSAGE_SELF, &after);
    double total = last.ended - began;
    printf("total_s %.4f  ns_per_object %.2f  footprint_mib %.1f  peak_mib %.1f\n", total,
           total * 1e9 / (double)(threads * loops * objects), last.footprint / (1 << 20),
           (double)(after.ru_maxrss - before.ru_maxrss) / 1024);
    return 0;
}
