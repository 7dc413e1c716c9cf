/* dlclose() after threads that have read, and with callbacks pending: the library stays, and they run. Nothing of it is linked here. */
#include "check.h"

#include <dlfcn.h>
#include <string.h>

static int called;

static void count(struct stillpoint_head *head)
{
    (void)head;
    __atomic_fetch_add(&called, 1, __ATOMIC_RELAXED);
}

/* ISO C has no conversion from an object's address to a function's. */
#define FIND(library, function)                                  \
    do {                                                         \
        void *found = dlsym(library, "stillpoint_" #function);                \
        CHECK(found != NULL);                                    \
        memcpy(&function, &found, sizeof found);                 \
    } while (0)

static int (*domain_call)(struct stillpoint_domain *, struct stillpoint_head *, stillpoint_function);
static int (*domain_barrier)(struct stillpoint_domain *);
static void (*domain_read_lock)(struct stillpoint_domain *);
static int (*domain_read_unlock)(struct stillpoint_domain *);

static void *reads(void *unused)
{
    (void)unused;
    domain_read_lock(NULL);
    CHECK(domain_read_unlock(NULL) == 0);
    return NULL;
}

int main(void)
{
    const char *path = getenv("STILLPOINT_LIBRARY");
    if (path == NULL) {
        fprintf(stderr, "unload: $STILLPOINT_LIBRARY is to name libstillpoint.so\n");
        return 2;
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    FIND(library, domain_call);
    FIND(library, domain_barrier);
    FIND(library, domain_read_lock);
    FIND(library, domain_read_unlock);

    /* The destructors of a live thread hold a library by themselves, those of its service thread, too: so first a thread that is gone. */
    run_thread(reads, NULL);
    CHECK(dlclose(library) == 0);
    library = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
    CHECK(library != NULL);

    static struct stillpoint_head heads[100];
    domain_read_lock(NULL);
    for (int n = 0; n < 100; n++) {
        CHECK(domain_call(NULL, &heads[n], count) == 0);
    }
    CHECK(dlclose(library) == 0);
    CHECK(domain_read_unlock(NULL) == 0);
    CHECK(domain_barrier(NULL) == 0);
    CHECK(__atomic_load_n(&called, __ATOMIC_RELAXED) == 100);
    return 0;
}
