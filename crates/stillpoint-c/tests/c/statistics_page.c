/* The statistics page: published, found by its name, read by its magic number, refused without descriptors. */
#include "check.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static const char LINK[] = "/memfd:stillpoint-stats";

/* How many pages the process has open; the last one's descriptor in `number`. */
static int pages(int *number)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    CHECK(folder != NULL);
    for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
        char target[PATH_MAX] = "";
        ssize_t length = readlinkat(dirfd(folder), entry->d_name, target, sizeof target - 1);
        if (length > 0 && strncmp(target, LINK, strlen(LINK)) == 0) {
            *number = atoi(entry->d_name);
            count++;
        }
    }
    CHECK(closedir(folder) == 0);
    return count;
}

/* The process that the page says it is of. */
static long published_by(int page)
{
    uint64_t head[4] = {0};
    CHECK(pread(page, head, sizeof head, 0) == (ssize_t)sizeof head);
    CHECK(memcmp(&head[0], "stillpnt", 8) == 0);
    CHECK(head[1] == 3);
    return (long)head[2];
}

static void without_descriptors(void)
{
    struct rlimit old, none;
    CHECK(getrlimit(RLIMIT_NOFILE, &old) == 0);
    none = old;
    none.rlim_cur = 0;
    CHECK(setrlimit(RLIMIT_NOFILE, &none) == 0);
    CHECK(stillpoint_publish_statistics() == -EMFILE);
    CHECK(setrlimit(RLIMIT_NOFILE, &old) == 0);
}

int main(void)
{
    int page = -1;
    without_descriptors();
    CHECK(pages(&page) == 0);
    CHECK(stillpoint_publish_statistics() == 0);
    CHECK(stillpoint_publish_statistics() == 0);
    CHECK(pages(&page) == 1 && page > 2);
    CHECK(published_by(page) == (long)getpid());
    struct stillpoint_domain *domain = stillpoint_domain_new();
    CHECK(domain != NULL);
    CHECK(stillpoint_domain_synchronize(domain) == 0);
    CHECK(stillpoint_domain_destroy(domain) == 0);
    pid_t child = fork();
    if (child == 0) {
        CHECK(pages(&page) == 1);
        CHECK(published_by(page) == (long)getpid());
        CHECK(stillpoint_publish_statistics() == 0);
        _exit(0);
    }
    CHECK(end_of(child) == 0);
    return 0;
}
