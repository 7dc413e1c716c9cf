// A program's names and the header's, by argument-dependent lookup: neither takes the place of the other.
//
// names.inc, which `run` makes, has every name that the headers call, and some more: NAMES is NAME(leave) NAME(schedule) ...
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <type_traits>
#include <utility>

// What a template that takes anything returns: the header has called it instead of its own, or of the library's.
struct stolen {};

[[noreturn]] stolen steal(const char *name)
{
    std::fprintf(stderr, "the header has called a program's %s\n", name);
    std::abort();
}

#define NAME(name)                        \
    template <class... Any>               \
    [[noreturn]] stolen name(Any &&...)   \
    {                                     \
        steal(#name);                     \
    }
#define ANYTHING                                                                  \
    NAMES                                                                         \
    template <class Any>                                                          \
    [[noreturn]] stolen operator&(Any &&)                                         \
    {                                                                             \
        steal("operator&");                                                       \
    }                                                                             \
    template <class Any, class Other>                                             \
    [[noreturn]] stolen operator,(Any &&, Other &&)                               \
    {                                                                             \
        steal("operator,");                                                       \
    }                                                                             \
    template <class Any>                                                          \
    [[noreturn]] stolen operator*(Any &&)                                         \
    {                                                                             \
        steal("operator*");                                                       \
    }                                                                             \
    template <class Any, class Other>                                             \
    [[noreturn]] stolen operator!=(Any &&, Other &&)                              \
    {                                                                             \
        steal("operator!=");                                                      \
    }
#include "names.inc"

// Where C's structs are. The C library's own functions are better matches than these.
ANYTHING

template <class... Any>
[[noreturn]] void *operator new(std::size_t, Any...)
{
    steal("operator new");
}

#include "clause.hpp"

namespace {
std::atomic<int> deleted{0};
}

// Where an object's type is, and where its deleter's is.
namespace of_object {
ANYTHING

struct own : rcu::rcu_obj_base<own> {
    ~own() { deleted++; }
};
struct plain {
    ~plain() { deleted++; }
};
} // namespace of_object

namespace of_deleter {
ANYTHING

struct ends {
    ends() = default;
    ends(const ends &) = default;
    ends(ends &&) = default;
    ends &operator=(const ends &) = default;
    ends &operator=(ends &&) = default;
    template <class Any>
    [[noreturn]] explicit ends(Any &&)
    {
        steal("ends(Any &&)");
    }
    stolen operator&() = delete;
    template <class... Any>
    static void *operator new(std::size_t, Any...) = delete;
    static void operator delete(void *) = delete;

    template <class T>
    void operator()(T *object)
    {
        delete object;
    }
};
struct own : rcu::rcu_obj_base<own, ends> {
    ~own() { deleted++; }
};
} // namespace of_deleter
#undef NAME

namespace {

template <class Domain>
void none_of_ours_is_replaced(Domain &domain)
{
    deleted = 0;
    {
        std::scoped_lock section(domain);
        (new of_object::own)->retire({}, domain);
        (new of_deleter::own)->retire({}, domain);
        rcu::rcu_obj_base<of_object::own> &base = *new of_object::own;
        base.retire({}, domain);
        stillpoint::rcu_retire(new of_object::plain, std::default_delete<of_object::plain>(), domain);
        stillpoint::rcu_retire(new of_object::plain, of_deleter::ends(), domain);
        stillpoint::rcu_retire(new of_object::own, of_deleter::ends(), domain);
        CHECK("extension", deleted == 0);
    }
    stillpoint::rcu_synchronize(domain);
    stillpoint::rcu_barrier(domain);
    CHECK("saferecl.rcu.domain.func, rcu_barrier", deleted == 6);
}

} // namespace

// The other way round: functions that take a session by what ours would be a better match for.
namespace app {

struct session : rcu::rcu_obj_base<session> {};
struct closed {
    template <class T>
    void operator()(T *object) const
    {
        delete object;
    }
};
struct connection : rcu::rcu_obj_base<connection, closed> {};

struct mine {};

#define NAME(name)                                      \
    [[maybe_unused]] mine name(const session &) { return {}; }    \
    [[maybe_unused]] mine name(const session *) { return {}; }    \
    [[maybe_unused]] mine name(const connection &) { return {}; }
NAMES
#undef NAME

#define NAME(name)                                                                                                     \
    static_assert(std::is_same_v<decltype(name(std::declval<session &>())), mine>, #name " of a session is the header's");       \
    static_assert(std::is_same_v<decltype(name(std::declval<session *>())), mine>, #name " of a pointer is the header's");       \
    static_assert(std::is_same_v<decltype(name(std::declval<connection &>())), mine>, #name " of a connection is the header's");
namespace checked {
NAMES
}
#undef NAME

} // namespace app

int main()
{
    none_of_ours_is_replaced(stillpoint::rcu_default_domain());
    none_of_ours_is_replaced(stillpoint::rcu_trace_default_domain());
    {
        const stillpoint::rcu_qsbr_thread reader;
        none_of_ours_is_replaced(stillpoint::rcu_qsbr_default_domain());
        stillpoint::rcu_qsbr_quiescent_state();
    }
    std::scoped_lock section(stillpoint::rcu_default_domain());
    return 0;
}
