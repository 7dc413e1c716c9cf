/*
 * The C++26 header <rcu> ([saferecl.rcu], P2545) over Stillpoint, for C++17 and newer. SPDX: MIT OR Apache-2.0
 *
 *     rcu_obj_base<T, D>     base of objects that are retired without allocating
 *     rcu_domain             sections; Lockable, so std::scoped_lock and std::unique_lock work with it
 *     rcu_default_domain()   the one rcu_domain: Stillpoint's global domain, shared with the process's C and Rust code
 *     rcu_synchronize(), rcu_barrier(), rcu_retire()
 *
 * in namespace stillpoint. If STILLPOINT_STD_RCU is defined before the first inclusion, the names are in std too, with __cpp_lib_rcu; but
 * if the standard library has its own <rcu>, that is included instead.
 *
 * Extensions, never in std: domains for readers that sleep (rcu_trace_*) and for readers by quiescent states (rcu_qsbr_*).
 *
 * Deleters run on a library thread (or in rcu_barrier(), if the system refused a thread), one at a time per domain, in unspecified order.
 * When the process exits, a pending deleter may run, even while static objects are destroyed, or never: call rcu_barrier() at the end of
 * main() if either matters. A plug-in calls it for each domain that it has retired in before dlclose(), which unloads the code of pending
 * deleters (always if clang++ compiled it, often if g++ did). A deleter that throws, and a call that would wait for itself for ever (a
 * synchronize in a section, a barrier in a deleter), end in std::terminate() after a message: the standard makes the functions noexcept, so
 * they cannot report an error.
 *
 * The header tells ThreadSanitizer about the library's orderings, which it cannot see. It does see the library's own malloc() and free():
 * run with the suppressions in share/stillpoint/tsan.supp.
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
/* The layout must be the same in C++17 and C++20. */
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
 * The library's link of a retired object. It is initialised, so that objects can be constants and copies read no indeterminate values; and
 * it is a base class, so that a static_cast leads back to the object. Programs derive from it, so
 *  - its member names must be unique: a name that two bases have is ambiguous, private or not;
 *  - its namespace has no functions, and it has no friends: argument-dependent lookup would find them for calls with a user's object.
 */
struct stillpoint_link_ {
    struct stillpoint_head stillpoint_head_ {};
};

} // namespace bases

/*
 * Every call in these headers is qualified, and std::addressof() replaces the & operator: argument-dependent lookup would find functions in
 * the namespaces of the user's types, or the global one for C's structs, and a template there that takes anything would match better.
 */
namespace detail {

/* Terminates after misuse, with a message. */
[[noreturn]] inline __attribute__((cold, noinline)) void refuse(const char *message) noexcept
{
    std::fputs("stillpoint: ", stderr);
    std::fputs(message, stderr);
    std::fputs("\n", stderr);
    std::terminate();
}

/* The one object of each domain class, and its C handle. */
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

/* Tells ThreadSanitizer that everything before `leave` in one thread happens before everything after a later `enter` in another. */
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

/* [saferecl.rcu.general] Whether T has exactly one base rcu_obj_base<X, Y>, for any X and Y: with two, deduction fails. */
template <class X, class Y>
void deduce(rcu_obj_base<X, Y> *);

template <class T, class = void>
inline constexpr bool has_one_base = false;

template <class T>
inline constexpr bool has_one_base<T, std::void_t<decltype(detail::deduce(std::declval<T *>()))>> = true;

/* Whether Base is a base of T that is public (otherwise the pointer does not convert) and not virtual (otherwise it does not convert back). */
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

/* The link of an object that has none, and its deleter; allocated by rcu_retire(). */
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
    /* If either throws, nothing has been scheduled. */
    auto *waiting = ::new retired<T, D, Domain>(object, std::move(deleter));
    detail::schedule(domain, *waiting, &retired<T, D, Domain>::run);
}

} // namespace detail

/*
 * [saferecl.rcu.domain] A domain of sections ("regions of RCU protection"). Its only object is rcu_default_domain(); as in the standard, no
 * other can be made, copied or moved. Separate domains: stillpoint_domain_new() in C.
 *
 * Meets Cpp17Lockable: std::scoped_lock in_section(stillpoint::rcu_default_domain()).
 */
class __attribute__((visibility("default"))) rcu_domain {
public:
    rcu_domain(const rcu_domain &) = delete;
    rcu_domain &operator=(const rcu_domain &) = delete;

    /*
     * Opens a section, or one more level of it: objects found in it are not deleted before it ends. About two loads and a store, inlined;
     * never blocks. A thread's first section registers the thread, which allocates. Nests up to 65,535 levels; one more aborts.
     * [saferecl.rcu.domain.members]
     */
    void lock() noexcept
    {
        ::stillpoint_read_lock();
    }

    /* Calls lock() and returns true: readers are never refused. [saferecl.rcu.domain.members] */
    bool try_lock() noexcept
    {
        lock();
        return true;
    }

    /*
     * Closes the level that this thread opened last. About two loads and a store; the end of the outermost level wakes a waiter. Runs no
     * deleters. Terminates if no section is open. [saferecl.rcu.domain.members]
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
 * Waits until all sections that began before the call have ended; they happen before the return. Blocks for as long as readers take; costs
 * less than a microsecond without readers. Terminates inside a section of the domain. [saferecl.rcu.domain.func]
 */
inline void rcu_synchronize(rcu_domain &domain = rcu_default_domain()) noexcept
{
    detail::synchronize(domain);
}

/*
 * Waits until every deleter whose scheduling happens before the call has returned; their returns happen before this one. Blocks for a grace
 * period and for the deleters; not at all if none is pending (it is no rcu_synchronize()). Does not wait for deleters that these schedule.
 * Allocates two small blocks if any is pending. Terminates inside a deleter of the domain, and inside a section that a pending deleter
 * waits for; it works in a section that began after all were scheduled. [saferecl.rcu.domain.func]
 */
inline void rcu_barrier(rcu_domain &domain = rcu_default_domain()) noexcept
{
    detail::barrier(domain);
}

/*
 * Evaluates d1(p) once all sections that may have found the object have ended, with d1 moved from d; then destroys d1 on the same thread.
 * Allocates by operator new (a link, the pointer, the deleter: some 48 bytes; less than a microsecond in all), so any object can be
 * retired, even twice if the deleter only counts. Throws std::bad_alloc, or what moving the deleter throws; nothing is then scheduled. Does
 * not block, runs no deleter itself, may be called in sections and in deleters. [saferecl.rcu.domain.func]
 *
 * Readers that begin after the call must not find the object. A deleter that throws terminates.
 */
template <class T, class D = std::default_delete<T>>
void rcu_retire(T *p, D d = D(), rcu_domain &domain = rcu_default_domain())
{
    detail::retire(p, d, domain);
}

/*
 * [saferecl.rcu.base] Base class of objects that are retired without allocating: `struct node : rcu_obj_base<node> { ... }`.
 * The base must be public, not virtual, and the only one; otherwise retire() does not compile. Takes four words, plus the deleter unless
 * that is empty; trivially copyable if the deleter is. T may be incomplete where this is named as its base.
 *
 * D is a function object, default-constructible and move-assignable, that takes a T *. A copy of an object is not retired, even if the
 * original is; copying while another thread retires the original is a data race, as in the standard.
 */
template <class T, class D = std::default_delete<T>>
class rcu_obj_base : private bases::stillpoint_link_ {
public:
    /*
     * Evaluates deleter(addressof(x)), where x is the T that has this base, once all sections that may have found x have ended; the
     * deleter, assigned from d, lies in the object. Costs some tens of nanoseconds; allocates nothing; neither blocks nor runs deleters;
     * may be called in sections and in deleters. Only the first use of the domain in a process allocates, and starts the thread that runs
     * deleters; if there is no memory for that, the library uses its reserve.
     *
     * Call it once per object; readers that begin later must not find the object. A second call is undefined; on x86-64, if the library
     * reports misuse (a debug build, or STILLPOINT_DEBUG in the environment), it ends the process with a message while the object is still
     * pending in the same domain. An assignment or a deleter that throws terminates. A deleter that deletes the object must not use its own
     * members afterwards: they were part of it.
     */
    void retire(D d = D(), rcu_domain &domain = rcu_default_domain()) noexcept
    {
        stillpoint_retire_(d, domain);
    }

    /* Extension: retires after the readers of another flavour. */
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
