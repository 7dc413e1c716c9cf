// A table that is read all the time and sometimes replaced, with C++26's <rcu> for C++17. make -C docs/examples cpp
#include <stillpoint/rcu.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace rcu = stillpoint; // std, once the standard library has <rcu>

std::atomic<int> deleted{0};

struct table : rcu::rcu_obj_base<table> {
    explicit table(int v) : version(v), name("version " + std::to_string(v)) {}
    ~table() { deleted++; }
    int version;
    std::string name;
};

std::atomic<table *> current{new table(0)};

int read()
{
    std::scoped_lock section(rcu::rcu_default_domain());
    const table *found = current.load(std::memory_order_acquire);
    if (found->name != "version " + std::to_string(found->version)) {
        std::abort();
    }
    return found->version;
}

int main()
{
    std::atomic<bool> done{false};
    std::vector<std::thread> readers;
    for (int n = 0; n < 2; n++) {
        readers.emplace_back([&] {
            int last = 0;
            while (!done) {
                const int version = read();
                if (version < last) {
                    std::abort();
                }
                last = version;
            }
        });
    }
    for (int version = 1; version <= 1000; version++) {
        current.exchange(new table(version), std::memory_order_acq_rel)->retire();
    }
    done = true;
    for (auto &reader : readers) {
        reader.join();
    }
    // For an object without such a base, rcu_retire() allocates a link.
    rcu::rcu_retire(new std::string("gone"));
    rcu::rcu_barrier(); // all deleters have run
    std::printf("version %d, %d tables deleted\n", read(), deleted.load());
    delete current.load();
    return deleted == 1001 ? 0 : 1;
}
