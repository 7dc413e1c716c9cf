/* dlclose() with callbacks pending: the library stays, and they run. Nothing of it is linked here. */
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
        void *found = dlsym(library, #function);                 \
        CHECK(found != NULL);                                    \
        memcpy(&function, &found, sizeof found);                 \
    } while (0)

int main(void)
{
    int (*stillpoint_domain_call)(struct stillpoint_domain *, struct stillpoint_head *, stillpoint_function);
    int (*stillpoint_domain_barrier)(struct stillpoint_domain *);
    void (*stillpoint_domain_read_lock)(struct stillpoint_domain *);
    int (*stillpoint_domain_read_unlock)(struct stillpoint_domain *);
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
    FIND(library, stillpoint_domain_call);
    FIND(library, stillpoint_domain_barrier);
    FIND(library, stillpoint_domain_read_lock);
    FIND(library, stillpoint_domain_read_unlock);
    static struct stillpoint_head heads[100];
    stillpoint_domain_read_lock(NULL);
    for (int n = 0; n < 100; n++) {
        CHECK(stillpoint_domain_call(NULL, &heads[n], count) == 0);
    }
    CHECK(dlclose(library) == 0);
    CHECK(stillpoint_domain_read_unlock(NULL) == 0);
    CHECK(stillpoint_domain_barrier(NULL) == 0);
    CHECK(__atomic_load_n(&called, __ATOMIC_RELAXED) == 100);
    return 0;
}
