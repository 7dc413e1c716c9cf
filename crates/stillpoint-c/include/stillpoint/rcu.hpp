/*
 * The C++26 header <rcu> ([saferecl.rcu], P2545) over Stillpoint, for C++17 and newer. SPDX: MIT OR Apache-2.0
 *
 *     rcu_obj_base<T, D>     base of objects that are retired without allocating
 *     rcu_domain             sections; Lockable, so std::scoped_lock and std::unique_lock work with it
 *     rcu_default_domain()   the one rcu_domain: Stillpoint's global domain, the same that C and Rust code in the process use
 *     rcu_synchronize(), rcu_barrier(), rcu_retire()
 *
 * in namespace stillpoint. With STILLPOINT_STD_RCU defined before the first inclusion the names are in std too, with __cpp_lib_rcu,
 * unless the standard library has them; then its <rcu> is included instead, and its names stay its own.
 *
 * Extensions, never in std: domains for readers that sleep (rcu_trace_*) and for readers by quiescent states (rcu_qsbr_*).
 *
 * Deleters run on a thread of the library (or in rcu_barrier(), if the system gave no thread), one at a time for each domain, in no order
 * that a program may rely on. While the process exits, a pending deleter may run, even while static objects are destroyed, or never:
 * call rcu_barrier() at the end of main() if either matters. A plug-in calls it before dlclose(), for
 * each domain that it has retired in: deleters that are pending lie in the plug-in, which is unloaded (what clang++ has made, and often g++).
 * A deleter that throws, and what would wait for itself for ever (a synchronize in a section, a barrier in a deleter), end in
 * std::terminate() after a message: the functions are noexcept by the standard and have no other way to say so.
 *
 * Under ThreadSanitizer the header tells it what the library orders, which it cannot see by itself. It does see the library's own malloc()
 * and free(): run with the suppressions in share/stillpoint/tsan.supp.
 */
#ifndef STILLPOINT_RCU_HPP
#define STILLPOINT_RCU_HPP

#if __cplusplus < 201703L
#error "stillpoint/rcu.hpp needs C++17 or newer"
#endif

#include <stillpoint/stillpoint.h>

#include <cerrno>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#if defined(__SANITIZE_THREAD__)
#define STILLPOINT_TSAN_ 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define STILLPOINT_TSAN_ 1
#endif
#endif

#if defined(STILLPOINT_TSAN_)
extern "C" void __tsan_acquire(void *address);
extern "C" void __tsan_release(void *address);
#endif

#if defined(__clang__)
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wunknown-warning-option"
/* The layout must be one and the same in C++17 and C++20. */
#pragma clang diagnostic ignored "-Wc++20-extensions"
#pragma clang diagnostic ignored "-Wc++20-attribute-extensions"
#endif

namespace stillpoint {

class __attribute__((visibility("default"))) rcu_domain;
class __attribute__((visibility("default"))) rcu_trace_domain;
class __attribute__((visibility("default"))) rcu_qsbr_domain;
template <class T, class D>
class rcu_obj_base;

namespace bases {

/*
 * What the library links a retired object by. It is initialised so that objects can be constants, and copies of them are copies of
 * something; and a base class, so that the way back to the object is a static_cast. Programs derive from it, so
 *  - its names must be found nowhere else: a name that is found in two bases is ambiguous, private or not;
 *  - its namespace has no function, and it has no friend: for calls with a user's object argument-dependent lookup finds what is here.
 */
struct stillpoint_link_ {
    struct stillpoint_head stillpoint_head_ {};
};

} // namespace bases

/*
 * In these headers every call is qualified, and std::addressof() stands for the operator &: argument-dependent lookup would find functions beside
 * the user's types, or, for C's structs, in the global namespace, and a template there that takes anything would be the better match.
 */
namespace detail {

/* What ends a program that asks for what cannot be. */
[[noreturn]] inline __attribute__((cold, noinline)) void refuse(const char *message) noexcept
{
    std::fputs("stillpoint: ", stderr);
    std::fputs(message, stderr);
    std::fputs("\n", stderr);
    std::terminate();
}

/* The object of each class of domains, and what names it in C. */
template <class Domain>
struct the {
    __attribute__((visibility("default"))) static inline Domain domain{};
};

inline struct stillpoint_domain *native(const rcu_domain &) noexcept
{
    return nullptr;
}

inline struct stillpoint_domain *native(const rcu_trace_domain &) noexcept
{
    return ::stillpoint_trace_global();
}

inline struct stillpoint_domain *native(const rcu_qsbr_domain &) noexcept
{
    return ::stillpoint_qsbr_global();
}

template <class Domain>
inline constexpr bool is_extension = std::is_same_v<Domain, rcu_trace_domain> || std::is_same_v<Domain, rcu_qsbr_domain>;

/* What ThreadSanitizer is told: all before `leave` in one thread is ordered before all after a later `enter` in another. */
template <class Domain>
inline void leave([[maybe_unused]] Domain &domain) noexcept
{
#if defined(STILLPOINT_TSAN_)
    ::__tsan_release(std::addressof(domain));
#endif
}

template <class Domain>
inline void enter([[maybe_unused]] Domain &domain) noexcept
{
#if defined(STILLPOINT_TSAN_)
    ::__tsan_acquire(std::addressof(domain));
#endif
}

inline bases::stillpoint_link_ *link_of(struct stillpoint_head *head) noexcept
{
    static_assert(std::is_standard_layout_v<bases::stillpoint_link_>, "a pointer to the head is one to the link");
    return reinterpret_cast<bases::stillpoint_link_ *>(head);
}

template <class Domain>
inline void schedule(Domain &domain, bases::stillpoint_link_ &link, stillpoint_function function) noexcept
{
    detail::leave(domain);
    if (::stillpoint_domain_call_copied(detail::native(domain), std::addressof(link.stillpoint_head_), function) != 0) {
        detail::refuse("retire() failed");
    }
}

template <class Domain>
inline void synchronize(Domain &domain) noexcept
{
    detail::leave(domain);
    if (::stillpoint_domain_synchronize(detail::native(domain)) != 0) {
        detail::refuse("rcu_synchronize() inside a section of the same domain would wait for that section for ever: unlock first");
    }
    detail::enter(domain);
}

template <class Domain>
inline void barrier(Domain &domain) noexcept
{
    detail::leave(domain);
    if (::stillpoint_domain_barrier(detail::native(domain)) != 0) {
        detail::refuse("rcu_barrier() inside a deleter, or inside a section that a scheduled deleter waits for, would wait for itself for ever");
    }
    detail::enter(domain);
}

/* [saferecl.rcu.general] Whether T has one base rcu_obj_base<X, Y>, whatever X and Y are: with two there is nothing to be deduced. */
template <class X, class Y>
void deduce(rcu_obj_base<X, Y> *);

template <class T, class = void>
inline constexpr bool has_one_base = false;

template <class T>
inline constexpr bool has_one_base<T, std::void_t<decltype(detail::deduce(std::declval<T *>()))>> = true;

/* Whether Base is a base of T that is public (or the pointer would not convert) and not virtual (or there were no way back). */
template <class T, class Base, class = void>
inline constexpr bool is_protectable = false;

template <class T, class Base>
inline constexpr bool is_protectable<T, Base, std::void_t<decltype(static_cast<T *>(std::declval<Base *>()))>> =
    has_one_base<T> && std::is_convertible_v<T *, Base *>;

/* Whether d(p) is well-formed. Not std::is_invocable, which allows pointers to members. */
template <class D, class P, class = void>
inline constexpr bool is_deleter = false;

template <class D, class P>
inline constexpr bool is_deleter<D, P, std::void_t<decltype(std::declval<D &>()(std::declval<P &>()))>> = true;

/* An object without a link, and its deleter: what rcu_retire() allocates. */
template <class T, class D, class Domain>
struct retired : bases::stillpoint_link_ {
    T *object;
    [[no_unique_address]] D deleter;

    retired(T *p, D &&d) : object(p), deleter(std::move(d)) {}

    static void run(struct stillpoint_head *head) noexcept
    {
        detail::enter(the<Domain>::domain);
        {
            std::unique_ptr<retired> self(static_cast<retired *>(detail::link_of(head)));
            self->deleter(self->object);
        }
        detail::leave(the<Domain>::domain);
    }
};

template <class T, class D, class Domain>
void retire(T *object, D &deleter, Domain &domain)
{
    static_assert(std::is_move_constructible_v<D>, "[saferecl.rcu.domain.func]: the deleter of rcu_retire() must be move-constructible");
    static_assert(is_deleter<D, T *>, "[saferecl.rcu.domain.func]: rcu_retire() needs that deleter(pointer) is well-formed");
    /* Where either throws, nothing has been scheduled. */
    auto *waiting = ::new retired<T, D, Domain>(object, std::move(deleter));
    detail::schedule(domain, *waiting, &retired<T, D, Domain>::run);
}

} // namespace detail

/*
 * [saferecl.rcu.domain] A domain of sections ("regions of RCU protection"). There is one object of it, rcu_default_domain(); as in the
 * standard there is no way to make, copy or move another. Separate domains: stillpoint_domain_new() in C.
 *
 * Meets Cpp17Lockable: std::scoped_lock in_section(stillpoint::rcu_default_domain()).
 */
class __attribute__((visibility("default"))) rcu_domain {
public:
    rcu_domain(const rcu_domain &) = delete;
    rcu_domain &operator=(const rcu_domain &) = delete;

    /*
     * Opens a section, or one more level of it: what is found in it is not deleted before its end. Some two loads and a store, inlined;
     * never blocks. A thread's first registers it, which allocates. 65,535 levels; one more aborts. [saferecl.rcu.domain.members]
     */
    void lock() noexcept
    {
        ::stillpoint_read_lock();
    }

    /* lock(), and returns true: readers are never refused. [saferecl.rcu.domain.members] */
    bool try_lock() noexcept
    {
        lock();
        return true;
    }

    /*
     * Closes what this thread opened last. Some two loads and a store; at the end of the outermost level it wakes a waiter,
     * and runs no deleters. Terminates if nothing is open. [saferecl.rcu.domain.members]
     */
    void unlock() noexcept
    {
        detail::leave(*this);
        if (::stillpoint_read_unlock() != 0) {
            detail::refuse("rcu_domain::unlock() by a thread that has no section open");
        }
    }

private:
    friend struct detail::the<rcu_domain>;
    constexpr rcu_domain() noexcept = default;
};

/* The domain, the same object every time; usable before main() and to the end of the process. [saferecl.rcu.domain.func] */
[[nodiscard]] inline rcu_domain &rcu_default_domain() noexcept
{
    return detail::the<rcu_domain>::domain;
}

/*
 * Waits until all sections that had begun before have ended; they happen before the return. Blocks for as long as readers take; some
 * hundred nanoseconds without any. Terminates inside a section of the domain. [saferecl.rcu.domain.func]
 */
inline void rcu_synchronize(rcu_domain &domain = rcu_default_domain()) noexcept
{
    detail::synchronize(domain);
}

/*
 * Waits until every deleter whose scheduling happens before the call has returned; they happen before the return. Blocks for a grace period
 * and for as long as they take; not at all if none is pending (it is no rcu_synchronize()). It does not wait for what they schedule in
 * their turn. Allocates two small blocks if any is pending. Terminates inside a deleter of the domain, and inside a section that a pending
 * one waits for; in a section that began after all were scheduled it works. [saferecl.rcu.domain.func]
 */
inline void rcu_barrier(rcu_domain &domain = rcu_default_domain()) noexcept
{
    detail::barrier(domain);
}

/*
 * Evaluates d1(p) after the sections that may have found the object, with d1 moved from d; d1 is then destroyed, on the same thread.
 * Allocates by operator new (a link, the pointer, the deleter: some 48 bytes; some hundred nanoseconds in all), so that anything can be
 * retired, also the same pointer twice with a deleter that only counts; throws std::bad_alloc, or what moving the deleter throws, and has
 * then scheduled nothing. Does not block, runs no deleter itself, may be called in sections and in deleters. [saferecl.rcu.domain.func]
 *
 * Readers that begin from now on must not find the object. The deleter must not throw: that terminates.
 */
template <class T, class D = std::default_delete<T>>
void rcu_retire(T *p, D d = D(), rcu_domain &domain = rcu_default_domain())
{
    detail::retire(p, d, domain);
}

/*
 * [saferecl.rcu.base] Base class of objects that are retired without allocating: `struct node : rcu_obj_base<node> { ... }`.
 * Public, not virtual, once: retire() does not compile otherwise. Four words, and the deleter unless it is empty; trivially copyable if
 * the deleter is. T may be incomplete where this is named as its base.
 *
 * D is a function object, default-constructible and move-assignable, that takes a T *. A copy of an object is not retired, even if the
 * original is; copying while another thread retires the original is a data race, as it is with the standard's.
 */
template <class T, class D = std::default_delete<T>>
class rcu_obj_base : private bases::stillpoint_link_ {
public:
    /*
     * Has deleter(addressof(x)) evaluated, where x is the T that this is the base of, after all sections that may have found it; the
     * deleter, assigned from d, lies in the object. Some tens of nanoseconds, for a grace period's cookie and a place in the queue;
     * allocates nothing; neither blocks nor runs deleters; may be called in sections and in deleters. Only the first use of the domain in a
     * process allocates, and starts the thread that runs deleters; if there is no memory for that, the library uses its reserve.
     *
     * Once for each object, after which readers that begin must not find it. Twice is undefined; where the library tells of misuse (built for
     * debugging, or with STILLPOINT_DEBUG in the environment) and on x86-64 it ends the process with a message, if the object still waits
     * in the same domain. That the assignment or the deleter throws terminates. A deleter that deletes the object must not use its own members
     * after that, for they were in it.
     */
    void retire(D d = D(), rcu_domain &domain = rcu_default_domain()) noexcept
    {
        stillpoint_retire_(d, domain);
    }

    /* Extension: as retire(), after the readers of another flavour. */
    template <class Domain, std::enable_if_t<detail::is_extension<Domain>, int> = 0>
    void retire(D d, Domain &domain) noexcept
    {
        stillpoint_retire_(d, domain);
    }

protected:
    rcu_obj_base() = default;
    rcu_obj_base(const rcu_obj_base &) = default;
    rcu_obj_base(rcu_obj_base &&) = default;
    rcu_obj_base &operator=(const rcu_obj_base &) = default;
    rcu_obj_base &operator=(rcu_obj_base &&) = default;
    ~rcu_obj_base() = default;

private:
    template <class Domain>
    void stillpoint_retire_(D &d, Domain &domain) noexcept
    {
        static_assert(detail::is_protectable<T, rcu_obj_base>,
                      "[saferecl.rcu.general]: T must have exactly one base rcu_obj_base<T, D>, public and not virtual");
        static_assert(std::is_default_constructible_v<D> && std::is_move_assignable_v<D>,
                      "[saferecl.rcu.base]: the deleter must be default-constructible and move-assignable");
        static_assert(detail::is_deleter<D, T *>, "[saferecl.rcu.base]: deleter(pointer) must be valid");
        stillpoint_deleter_ = std::move(d);
        detail::schedule(domain, *this, &stillpoint_run_<Domain>);
    }

    template <class Domain>
    static void stillpoint_run_(struct stillpoint_head *head) noexcept
    {
        detail::enter(detail::the<Domain>::domain);
        auto *self = static_cast<rcu_obj_base *>(detail::link_of(head));
        self->stillpoint_deleter_(static_cast<T *>(self));
        detail::leave(detail::the<Domain>::domain);
    }

    [[no_unique_address]] D stillpoint_deleter_{};
};

} // namespace stillpoint

#include <stillpoint/rcu_flavours.hpp>

#if defined(__clang__)
#pragma clang diagnostic pop
#endif

#endif

#if defined(STILLPOINT_STD_RCU) && !defined(STILLPOINT_STD_RCU_DONE_)
#define STILLPOINT_STD_RCU_DONE_
#if __has_include(<version>)
#include <version>
#endif
#if defined(__cpp_lib_rcu)
#include <rcu>
#else
#define __cpp_lib_rcu 202306L
namespace std {
using stillpoint::rcu_barrier;
using stillpoint::rcu_default_domain;
using stillpoint::rcu_domain;
using stillpoint::rcu_obj_base;
using stillpoint::rcu_retire;
using stillpoint::rcu_synchronize;
} // namespace std
#endif
#endif
