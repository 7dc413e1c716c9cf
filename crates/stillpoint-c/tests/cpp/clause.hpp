// What the C++ tests have in common. `rcu` is the namespace under test: stillpoint, or std where the switch puts the names there.
#ifndef STILLPOINT_TESTS_CLAUSE_HPP
#define STILLPOINT_TESTS_CLAUSE_HPP

#include <stillpoint/rcu.hpp>

#include <cstdio>
#include <cstdlib>
#include <sched.h>

#ifdef STILLPOINT_STD_RCU
namespace rcu = std;
#else
namespace rcu = stillpoint;
#endif

#if defined(STILLPOINT_TSAN_)
// ThreadSanitizer sees the library's own malloc() and free(), but not its atomics. What programs do in deleters is not left out by this.
extern "C" __attribute__((visibility("default"))) const char *__tsan_default_suppressions()
{
    return "called_from_lib:libstillpoint.so\n";
}
#endif

// A check at run time, with the clause of the standard that it is about.
#define CHECK(clause, ...)                                                                         \
    do {                                                                                           \
        if (!(__VA_ARGS__)) {                                                                      \
            std::fprintf(stderr, "%s:%d: [%s] not so: %s\n", __FILE__, __LINE__, clause, #__VA_ARGS__); \
            std::abort();                                                                          \
        }                                                                                          \
    } while (0)

template <class Condition>
void wait_until(Condition condition)
{
    while (!condition()) {
        ::sched_yield();
    }
}

#endif
