// A program for C++26, unchanged: `#include <rcu>`, with the directory stillpoint/std on the path where the library has none.
#include <rcu>

#include <atomic>
#include <mutex>

#ifndef __cpp_lib_rcu
#error "[version.syn] no feature-test macro"
#endif
static_assert(__cpp_lib_rcu >= 202306L);

struct setting : std::rcu_obj_base<setting> {
    int value = 0;
};
std::atomic<setting *> current{nullptr};

int read()
{
    std::scoped_lock section(std::rcu_default_domain());
    const setting *found = current.load(std::memory_order_acquire);
    return found ? found->value : 0;
}

int main()
{
    if (setting *old = current.exchange(new setting)) {
        old->retire();
    }
    std::rcu_retire(current.exchange(nullptr));
    std::rcu_synchronize();
    std::rcu_barrier();
    return read();
}
