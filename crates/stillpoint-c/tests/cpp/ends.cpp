// What ends in std::terminate() with a message, and never hangs: each in its own process.
#include "clause.hpp"

#include <csignal>
#include <cstring>
#include <mutex>
#include <string>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace {

auto &domain = rcu::rcu_default_domain();

struct throwing_assignment {
    throwing_assignment() = default;
    throwing_assignment(const throwing_assignment &) = default;
    throwing_assignment &operator=(const throwing_assignment &) { throw 1; }
    template <class T>
    void operator()(T *) const {}
};
struct node : rcu::rcu_obj_base<node, throwing_assignment> {};

struct plain : rcu::rcu_obj_base<plain> {};

struct throwing_deleter {
    template <class T>
    void operator()(T *) const { throw 1; }
};
struct thrown : rcu::rcu_obj_base<thrown, throwing_deleter> {};

struct ending {
    const char *name, *clause, *message;
    void (*run)();
};

const ending endings[] = {
    {"synchronize in a section", "saferecl.rcu.domain.func, rcu_synchronize", "rcu_synchronize() inside a section",
     [] {
         std::scoped_lock section(domain);
         rcu::rcu_synchronize();
     }},
    {"barrier in a deleter", "saferecl.rcu.domain.func, rcu_barrier", "rcu_barrier() inside a deleter",
     [] {
         static int object = 0;
         rcu::rcu_retire(&object, [](int *) { rcu::rcu_barrier(); });
         rcu::rcu_barrier();
     }},
    {"barrier in a section that is waited for", "saferecl.rcu.domain.func, rcu_barrier", "rcu_barrier() inside a deleter, or inside a section",
     [] {
         static int object = 0;
         std::scoped_lock section(domain);
         rcu::rcu_retire(&object, [](int *) {});
         rcu::rcu_barrier();
     }},
    {"unlock without lock", "saferecl.rcu.domain.members, unlock: Preconditions", "no section open", [] { domain.unlock(); }},
    {"unlock once too often", "saferecl.rcu.domain.members, unlock: Preconditions", "no section open",
     [] {
         domain.lock();
         domain.unlock();
         domain.unlock();
     }},
    {"deleter throws, rcu_retire", "saferecl.rcu.domain.func, rcu_retire", "terminated",
     [] {
         static int object = 0;
         rcu::rcu_retire(&object, throwing_deleter{});
         rcu::rcu_barrier();
     }},
    {"deleter throws, retire", "saferecl.rcu.base, retire", "terminated",
     [] {
         (new thrown)->retire();
         rcu::rcu_barrier();
     }},
    {"assignment of the deleter throws", "saferecl.rcu.base, retire: noexcept", "terminated", [] { (new node)->retire(); }},
#ifdef __x86_64__
    {"retired twice", "saferecl.rcu.base, retire: precondition", "head that is queued",
     [] {
         std::scoped_lock section(domain);
         auto *object = new plain;
         object->retire();
         object->retire();
     }},
#endif
    {"trace: synchronize in a section", "extension", "rcu_synchronize() inside a section",
     [] {
         stillpoint::rcu_trace_guard guard;
         stillpoint::rcu_synchronize(stillpoint::rcu_trace_default_domain());
     }},
    {"trace: unlock without lock", "extension", "no section open", [] { stillpoint::rcu_trace_default_domain().unlock(); }},
};

[[noreturn]] void by_terminate()
{
    (void)!write(STDERR_FILENO, "terminated\n", 11);
    std::abort();
}

int check(const char *self, const ending &it, int index)
{
    int ends[2];
    CHECK("pipe", pipe(ends) == 0);
    const pid_t child = fork();
    CHECK("fork", child >= 0);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        close(ends[1]);
        setenv("STILLPOINT_DEBUG", "1", 1); // a library that is not built for debugging tells of nothing without
        execl(self, self, std::to_string(index).c_str(), static_cast<char *>(nullptr));
        _exit(127);
    }
    close(ends[1]);
    std::string text;
    char buffer[512];
    for (ssize_t got; (got = read(ends[0], buffer, sizeof buffer)) > 0;) {
        text.append(buffer, static_cast<std::size_t>(got));
    }
    close(ends[0]);
    int status = 0;
    CHECK("waitpid", waitpid(child, &status, 0) == child);
    const bool aborted = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
    if (!aborted || text.find(it.message) == std::string::npos || text.find("terminated") == std::string::npos) {
        std::fprintf(stderr, "[%s] %s: not std::terminate() after \"%s\": status %#x, and it printed:\n%s\n", it.clause, it.name, it.message,
                     static_cast<unsigned>(status), text.c_str());
        return 1;
    }
    return 0;
}

} // namespace

int main(int argc, char **argv)
{
    if (argc == 2) {
        const rlimit no_core{0, 0};
        setrlimit(RLIMIT_CORE, &no_core);
        std::set_terminate(by_terminate);
        alarm(300); // a hang is a failure: SIGALRM is not SIGABRT
        endings[std::atoi(argv[1])].run();
        return 0;
    }
    int failures = 0, index = 0;
    for (const auto &it : endings) {
        failures += check(argv[0], it, index++);
    }
    return failures != 0;
}
