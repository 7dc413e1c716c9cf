// A routing table that is read all the time and replaced now and then, with <stillpoint/rcu.hpp>.
//
//     c++ -std=c++17 forwarding.cpp -lstillpoint -lpthread && ./a.out
//
// Readers take no lock and write nothing shared. The old table is deleted after the last reader that may have found it has left;
// that costs the writer no allocation, since the table carries what it is remembered by.
#include <stillpoint/rcu.hpp>

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace rcu = stillpoint; // std, once the standard library has <rcu>

struct table : rcu::rcu_obj_base<table> {
    std::map<std::uint32_t, std::string> routes; // by the last address of each range
};

class router {
public:
    router() = default;
    router(const router &) = delete;
    router &operator=(const router &) = delete;

    ~router()
    {
        delete current_.load(); // no readers are left
    }

    // Any number of threads at any time. The copy is the caller's; a reference would be good only inside the section.
    std::string next_hop(std::uint32_t address) const
    {
        std::scoped_lock section(rcu::rcu_default_domain());
        const table *found = current_.load(std::memory_order_acquire);
        const auto route = found->routes.lower_bound(address);
        return route == found->routes.end() ? "nowhere" : route->second;
    }

    // Writers are one at a time; readers see the old table or the new one, whole.
    void add(std::uint32_t last, std::string hop)
    {
        std::scoped_lock writing(writer_);
        auto *changed = new table(*current_.load(std::memory_order_relaxed));
        changed->routes[last] = std::move(hop);
        current_.exchange(changed, std::memory_order_acq_rel)->retire();
    }

private:
    std::atomic<table *> current_{new table};
    std::mutex writer_;
};

int main()
{
    router routes;
    routes.add(UINT32_MAX, "default");

    std::atomic<bool> done{false};
    std::vector<std::thread> readers;
    for (int i = 0; i < 2; i++) {
        readers.emplace_back([&] {
            while (!done) {
                if (routes.next_hop(7) == "nowhere") {
                    std::abort(); // there is a default at all times
                }
            }
        });
    }
    for (std::uint32_t i = 0; i < 1000; i++) {
        routes.add(i * 10 + 9, "hop " + std::to_string(i));
    }
    done = true;
    for (auto &reader : readers) {
        reader.join();
    }
    rcu::rcu_barrier(); // all old tables have been deleted
    std::printf("%s, %s\n", routes.next_hop(7).c_str(), routes.next_hop(123456).c_str());
    return routes.next_hop(7) == "hop 0" ? 0 : 1;
}
