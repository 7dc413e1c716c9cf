/* The extensions of <stillpoint/rcu.hpp>, which includes this file; programs do not: readers of the other flavours. SPDX: MIT OR Apache-2.0 */
#ifndef STILLPOINT_RCU_FLAVOURS_HPP
#define STILLPOINT_RCU_FLAVOURS_HPP

namespace stillpoint {

/* ---- Extensions: readers that sleep. ---- */

/*
 * The domain of readers that sleep, block or run for minutes without holding up the default domain: the kernel's RCU Tasks Trace. Its only
 * object is rcu_trace_default_domain(). Lockable; a section belongs to its thread.
 */
class __attribute__((visibility("default"))) rcu_trace_domain {
public:
    rcu_trace_domain(const rcu_trace_domain &) = delete;
    rcu_trace_domain &operator=(const rcu_trace_domain &) = delete;

    /* Opens a section or a level of it, at the cost of rcu_domain::lock(). */
    void lock() noexcept
    {
        ::stillpoint_trace_read_lock();
    }

    /* Calls lock() and returns true. */
    bool try_lock() noexcept
    {
        lock();
        return true;
    }

    /* Closes the level that this thread opened last. Terminates if no section is open. */
    void unlock() noexcept
    {
        detail::leave(*this);
        if (::stillpoint_trace_read_unlock() != 0) {
            detail::refuse("rcu_trace_domain::unlock() by a thread that has no section open");
        }
    }

private:
    friend struct detail::the<rcu_trace_domain>;
    constexpr rcu_trace_domain() noexcept = default;
};

/* The domain, the same object every time. */
[[nodiscard]] inline rcu_trace_domain &rcu_trace_default_domain() noexcept
{
    return detail::the<rcu_trace_domain>::domain;
}

/* ---- Extensions: readers by quiescent states. ---- */

/*
 * The domain of threads that always read, except when they say otherwise. Its only object is rcu_qsbr_default_domain(). Its lock() and
 * unlock() cost nothing and protect only in threads that are registered (by rcu_qsbr_thread) and online.
 */
class __attribute__((visibility("default"))) rcu_qsbr_domain {
public:
    rcu_qsbr_domain(const rcu_qsbr_domain &) = delete;
    rcu_qsbr_domain &operator=(const rcu_qsbr_domain &) = delete;

    /* Only a compiler barrier. */
    void lock() noexcept
    {
        ::stillpoint_qsbr_read_lock();
    }

    /* Calls lock() and returns true. */
    bool try_lock() noexcept
    {
        lock();
        return true;
    }

    /* Only a compiler barrier. */
    void unlock() noexcept
    {
        ::stillpoint_qsbr_read_unlock();
    }

private:
    friend struct detail::the<rcu_qsbr_domain>;
    constexpr rcu_qsbr_domain() noexcept = default;
};

/* The domain, the same object every time. */
[[nodiscard]] inline rcu_qsbr_domain &rcu_qsbr_default_domain() noexcept
{
    return detail::the<rcu_qsbr_domain>::domain;
}

/*
 * Declares that this thread uses nothing that it has found. Costs two loads and a comparison if no grace period began since the last call.
 * Does nothing in a thread that is offline or not registered.
 */
inline void rcu_qsbr_quiescent_state() noexcept
{
    detail::leave(rcu_qsbr_default_domain());
    ::stillpoint_qsbr_quiescent_state();
}

/*
 * Registers its thread as an online reader by quiescent states for as long as the object lives. The same thread must destroy it. A second
 * one in a thread does nothing while the first lives.
 */
class rcu_qsbr_thread {
public:
    /* Allocates; throws std::bad_alloc (without exceptions, terminates). Terminates at a thread's very end, when it can no longer register. */
    [[nodiscard]] rcu_qsbr_thread() : mine_(registers()) {}

    /* Pointers found before must not be used afterwards. */
    ~rcu_qsbr_thread()
    {
        if (mine_) {
            detail::leave(rcu_qsbr_default_domain());
            ::stillpoint_qsbr_unregister();
        }
    }

    rcu_qsbr_thread(const rcu_qsbr_thread &) = delete;
    rcu_qsbr_thread &operator=(const rcu_qsbr_thread &) = delete;

private:
    static bool registers()
    {
        const int result = ::stillpoint_qsbr_register();
        if (result == -ENOMEM) {
#if defined(__cpp_exceptions)
            throw std::bad_alloc();
#else
            detail::refuse("rcu_qsbr_thread without memory");
#endif
        }
        if (result != 0 && result != -EEXIST) {
            detail::refuse("rcu_qsbr_thread in a thread that is ending");
        }
        return result == 0;
    }

    bool mine_;
};

/*
 * Takes its thread offline for as long as the object lives, around anything that may block: pointers found before must not be used
 * afterwards. Does nothing in a thread that is offline or not registered.
 */
class rcu_qsbr_offline {
public:
    [[nodiscard]] rcu_qsbr_offline() noexcept : was_online_(::stillpoint_qsbr_is_online())
    {
        if (was_online_) {
            detail::leave(rcu_qsbr_default_domain());
            ::stillpoint_qsbr_pause_();
        }
    }

    ~rcu_qsbr_offline()
    {
        if (was_online_) {
            ::stillpoint_qsbr_online();
        }
    }

    rcu_qsbr_offline(const rcu_qsbr_offline &) = delete;
    rcu_qsbr_offline &operator=(const rcu_qsbr_offline &) = delete;

private:
    bool was_online_;
};

/* ---- Extensions: common to both. ---- */

/* A section that lasts as long as the object: std::scoped_lock of the flavour's domain, without an argument. */
template <class Domain>
class rcu_flavour_guard {
public:
    [[nodiscard]] rcu_flavour_guard() noexcept
    {
        detail::the<Domain>::domain.lock();
    }

    ~rcu_flavour_guard()
    {
        detail::the<Domain>::domain.unlock();
    }

    rcu_flavour_guard(const rcu_flavour_guard &) = delete;
    rcu_flavour_guard &operator=(const rcu_flavour_guard &) = delete;
};

using rcu_trace_guard = rcu_flavour_guard<rcu_trace_domain>;
using rcu_qsbr_guard = rcu_flavour_guard<rcu_qsbr_domain>;

/* Waits for readers that sleep; otherwise as for rcu_domain. */
inline void rcu_synchronize(rcu_trace_domain &domain) noexcept
{
    detail::synchronize(domain);
}

/* Waits for deleters in the trace domain; otherwise as for rcu_domain. */
inline void rcu_barrier(rcu_trace_domain &domain) noexcept
{
    detail::barrier(domain);
}

/* Waits for readers by quiescent states, with the calling thread offline: pointers found before must not be used afterwards. */
inline void rcu_synchronize(rcu_qsbr_domain &domain) noexcept
{
    const rcu_qsbr_offline meanwhile;
    detail::synchronize(domain);
}

/* Waits for deleters in the QSBR domain, with the calling thread offline. */
inline void rcu_barrier(rcu_qsbr_domain &domain) noexcept
{
    const rcu_qsbr_offline meanwhile;
    detail::barrier(domain);
}

/* Retires after the readers of another flavour. */
template <class T, class D, class Domain, std::enable_if_t<detail::is_extension<Domain>, int> = 0>
void rcu_retire(T *p, D d, Domain &domain)
{
    detail::retire(p, d, domain);
}

} // namespace stillpoint

#endif
