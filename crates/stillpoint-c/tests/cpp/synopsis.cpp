// What [saferecl.rcu] says about declarations, at compile time.
#include "clause.hpp"

#include <mutex>
#include <string>
#include <type_traits>

#define CLAUSE(clause, ...) static_assert((__VA_ARGS__), "[" clause "]")

using domain = rcu::rcu_domain;

struct plain : rcu::rcu_obj_base<plain> {
    int value = 0;
};

struct stateful {
    int state = 0;
    template <class T>
    void operator()(T *p) const { delete p; }
};

struct remembering : rcu::rcu_obj_base<remembering, stateful> {};

struct not_trivial {
    std::string name;
    template <class T>
    void operator()(T *p) const { delete p; }
};

struct by_name : rcu::rcu_obj_base<by_name, not_trivial> {};

// Default-constructible and move-assignable, and nothing else: all that [saferecl.rcu.base] asks for.
struct least {
    least() = default;
    least(const least &) = delete;
    least &operator=(least &&) { return *this; }
    template <class T>
    void operator()(T *) {}
};

struct with_least : rcu::rcu_obj_base<with_least, least> {};

// ---- [saferecl.rcu.syn]
#ifdef STILLPOINT_STD_RCU
CLAUSE("version.syn", __cpp_lib_rcu == 202306L);
CLAUSE("version.syn", std::is_same_v<std::rcu_domain, stillpoint::rcu_domain>);
#elif defined(__cpp_lib_rcu)
#error "[version.syn] the macro is defined although nothing was put into std"
#endif
CLAUSE("saferecl.rcu.syn", std::is_same_v<rcu::rcu_obj_base<plain>, rcu::rcu_obj_base<plain, std::default_delete<plain>>>);
CLAUSE("saferecl.rcu.syn", std::is_same_v<decltype(rcu::rcu_default_domain()), domain &>);
CLAUSE("saferecl.rcu.syn", noexcept(rcu::rcu_default_domain()));
CLAUSE("saferecl.rcu.syn", std::is_same_v<decltype(rcu::rcu_synchronize()), void> && noexcept(rcu::rcu_synchronize()));
CLAUSE("saferecl.rcu.syn", noexcept(rcu::rcu_synchronize(std::declval<domain &>())));
CLAUSE("saferecl.rcu.syn", std::is_same_v<decltype(rcu::rcu_barrier()), void> && noexcept(rcu::rcu_barrier()));
CLAUSE("saferecl.rcu.syn", noexcept(rcu::rcu_barrier(std::declval<domain &>())));
CLAUSE("saferecl.rcu.syn", std::is_same_v<decltype(rcu::rcu_retire(std::declval<int *>())), void>);
CLAUSE("saferecl.rcu.syn", std::is_same_v<decltype(rcu::rcu_retire(std::declval<int *>(), stateful{}, std::declval<domain &>())), void>);
CLAUSE("saferecl.rcu.syn", !noexcept(rcu::rcu_retire(std::declval<int *>())));
CLAUSE("saferecl.rcu.syn", std::is_same_v<decltype(rcu::rcu_retire<int, stateful>(std::declval<int *>())), void>);

// ---- [saferecl.rcu.base]
CLAUSE("saferecl.rcu.base", std::is_same_v<decltype(std::declval<plain &>().retire()), void>);
CLAUSE("saferecl.rcu.base", noexcept(std::declval<plain &>().retire()));
CLAUSE("saferecl.rcu.base", noexcept(std::declval<remembering &>().retire(stateful{}, std::declval<domain &>())));

// The constructors, the assignments and the destructor are protected: of no use outside, defaulted for what derives.
using base = rcu::rcu_obj_base<plain>;
CLAUSE("saferecl.rcu.base", !std::is_default_constructible_v<base>);
CLAUSE("saferecl.rcu.base", !std::is_copy_constructible_v<base> && !std::is_move_constructible_v<base>);
CLAUSE("saferecl.rcu.base", !std::is_copy_assignable_v<base> && !std::is_move_assignable_v<base>);
CLAUSE("saferecl.rcu.base", !std::is_destructible_v<base>);
CLAUSE("saferecl.rcu.base", std::is_nothrow_default_constructible_v<plain> && std::is_nothrow_copy_constructible_v<plain>);
CLAUSE("saferecl.rcu.base", std::is_nothrow_move_constructible_v<plain> && std::is_nothrow_destructible_v<plain>);
CLAUSE("saferecl.rcu.base", std::is_nothrow_copy_assignable_v<plain> && std::is_nothrow_move_assignable_v<plain>);
CLAUSE("saferecl.rcu.base", std::is_copy_constructible_v<by_name> && std::is_move_assignable_v<by_name>);
CLAUSE("saferecl.rcu.base", std::is_default_constructible_v<with_least> && !std::is_copy_constructible_v<with_least>);
CLAUSE("saferecl.rcu.base", noexcept(std::declval<with_least &>().retire(least{})));

// Trivially copyable if the deleter is.
CLAUSE("saferecl.rcu.base", std::is_trivially_copyable_v<base> && std::is_trivially_copyable_v<plain>);
CLAUSE("saferecl.rcu.base", std::is_trivially_copyable_v<rcu::rcu_obj_base<remembering, stateful>>);
CLAUSE("saferecl.rcu.base", std::is_trivially_copyable_v<rcu::rcu_obj_base<plain, void (*)(plain *)>>);
CLAUSE("saferecl.rcu.base", !std::is_trivially_copyable_v<rcu::rcu_obj_base<by_name, not_trivial>>);

// T may be incomplete where the specialization is named, derived from, even instantiated.
struct incomplete;
CLAUSE("saferecl.rcu.base", sizeof(rcu::rcu_obj_base<incomplete>) > 0);
CLAUSE("saferecl.rcu.base", std::is_trivially_copyable_v<rcu::rcu_obj_base<incomplete>>);

// ---- [saferecl.rcu.domain]
CLAUSE("saferecl.rcu.domain", !std::is_copy_constructible_v<domain> && !std::is_move_constructible_v<domain>);
CLAUSE("saferecl.rcu.domain", !std::is_copy_assignable_v<domain> && !std::is_move_assignable_v<domain>);
CLAUSE("saferecl.rcu.domain", !std::is_default_constructible_v<domain>);
CLAUSE("saferecl.rcu.domain", std::is_same_v<decltype(std::declval<domain &>().lock()), void>);
CLAUSE("saferecl.rcu.domain", std::is_same_v<decltype(std::declval<domain &>().try_lock()), bool>);
CLAUSE("saferecl.rcu.domain", std::is_same_v<decltype(std::declval<domain &>().unlock()), void>);
CLAUSE("saferecl.rcu.domain", noexcept(std::declval<domain &>().lock()) && noexcept(std::declval<domain &>().try_lock()));
CLAUSE("saferecl.rcu.domain", noexcept(std::declval<domain &>().unlock()));
CLAUSE("saferecl.rcu.domain", std::is_constructible_v<std::scoped_lock<domain>, domain &>);
CLAUSE("saferecl.rcu.domain", std::is_constructible_v<std::unique_lock<domain>, domain &>);

// ---- beyond the standard: what the documentation promises
CLAUSE("documentation", sizeof(base) == 4 * sizeof(void *));
CLAUSE("documentation", sizeof(rcu::rcu_obj_base<remembering, stateful>) == 5 * sizeof(void *));
CLAUSE("documentation", std::is_same_v<domain, stillpoint::rcu_domain>);

struct constant : rcu::rcu_obj_base<constant> {
    int value;
    constexpr explicit constant(int v) : value(v) {}
};
constexpr constant at_compile_time(3);
CLAUSE("documentation", at_compile_time.value == 3);

// The base's names must not clash with the user's: these would be ambiguous.
struct crowd {
    int head = 1, link = 2, deleter = 3, deleter_ = 4, domain = 5;
    int run() const { return head; }
    int of() const { return link; }
};
struct in_a_crowd : crowd, rcu::rcu_obj_base<in_a_crowd> {
    in_a_crowd() {}
};
inline int all(const in_a_crowd &it)
{
    return it.head + it.link + it.deleter + it.deleter_ + it.domain + it.run() + it.of();
}

int main()
{
    const in_a_crowd it;
    return all(it) == 18 ? 0 : 1;
}
