// The extensions: readers that sleep, readers by quiescent states.
#include "clause.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>

namespace {

using namespace std::chrono_literals;
constexpr auto a_while = 60ms;

std::atomic<int> deleted{0};

struct node : stillpoint::rcu_obj_base<node> {
    ~node() { deleted++; }
};

static_assert(!std::is_copy_constructible_v<stillpoint::rcu_trace_guard> && !std::is_copy_constructible_v<stillpoint::rcu_qsbr_guard>);
static_assert(!std::is_copy_constructible_v<stillpoint::rcu_qsbr_thread> && !std::is_copy_constructible_v<stillpoint::rcu_qsbr_offline>);
static_assert(noexcept(std::declval<node &>().retire({}, std::declval<stillpoint::rcu_trace_domain &>())));
static_assert(noexcept(stillpoint::rcu_synchronize(std::declval<stillpoint::rcu_qsbr_domain &>())));

template <class Domain>
void retires_after_its_readers(Domain &domain, std::atomic<bool> &inside, std::atomic<bool> &leave, std::thread &reader)
{
    wait_until([&] { return inside.load(); });
    deleted = 0;
    (new node)->retire({}, domain);
    stillpoint::rcu_retire(new int, [](int *p) { deleted++; delete p; }, domain);
    std::atomic<bool> synchronized{false};
    std::thread synchronizer([&] { stillpoint::rcu_synchronize(domain); synchronized = true; });
    std::this_thread::sleep_for(a_while);
    CHECK("extension", deleted == 0 && !synchronized);
    // The readers of one flavour hold up no other.
    stillpoint::rcu_synchronize();
    leave = true;
    stillpoint::rcu_barrier(domain);
    CHECK("extension", deleted == 2);
    synchronizer.join();
    reader.join();
}

void trace()
{
    std::atomic<bool> inside{false}, leave{false};
    std::thread reader([&] {
        stillpoint::rcu_trace_guard guard;
        std::scoped_lock level(stillpoint::rcu_trace_default_domain());
        inside = true;
        while (!leave) {
            std::this_thread::sleep_for(1ms);
        }
        CHECK("extension", deleted == 0);
    });
    retires_after_its_readers(stillpoint::rcu_trace_default_domain(), inside, leave, reader);
}

void qsbr()
{
    auto &domain = stillpoint::rcu_qsbr_default_domain();
    std::atomic<bool> inside{false}, leave{false};
    std::thread reader([&] {
        stillpoint::rcu_qsbr_thread registered;
        stillpoint::rcu_qsbr_thread again; // does nothing, nor does its end
        {
            stillpoint::rcu_qsbr_guard guard;
            std::scoped_lock level(domain);
            inside = true;
        }
        wait_until([&] { return leave.load(); });
        CHECK("extension", deleted == 0);
        stillpoint::rcu_qsbr_quiescent_state();
        {
            const stillpoint::rcu_qsbr_offline meanwhile;
            CHECK("extension", !stillpoint_qsbr_is_online());
            const stillpoint::rcu_qsbr_offline inner;
        }
        CHECK("extension", stillpoint_qsbr_is_online());
        stillpoint::rcu_synchronize(domain); // goes offline meanwhile
        stillpoint::rcu_barrier(domain);
        CHECK("extension", stillpoint_qsbr_is_online());
    });
    retires_after_its_readers(domain, inside, leave, reader);
    CHECK("extension", !stillpoint_qsbr_is_online());
    const stillpoint::rcu_qsbr_offline nothing_to_do;
}

// Readers by quiescent states look for a poisoned object while a writer replaces it.
void qsbr_readers_never_find_a_deleted_object()
{
    struct item : stillpoint::rcu_obj_base<item> {
        int alive = 1;
        ~item() { alive = 0; }
    };
    std::atomic<item *> current{new item};
    std::atomic<bool> done{false};
    std::thread reader([&] {
        stillpoint::rcu_qsbr_thread registered;
        while (!done) {
            {
                stillpoint::rcu_qsbr_guard guard;
                CHECK("extension", current.load(std::memory_order_acquire)->alive == 1);
            }
            stillpoint::rcu_qsbr_quiescent_state();
        }
    });
    for (int i = 0; i < 20000; i++) {
        current.exchange(new item, std::memory_order_acq_rel)->retire({}, stillpoint::rcu_qsbr_default_domain());
    }
    done = true;
    reader.join();
    current.load()->retire({}, stillpoint::rcu_qsbr_default_domain());
    stillpoint::rcu_barrier(stillpoint::rcu_qsbr_default_domain());
}

} // namespace

int main()
{
    trace();
    qsbr();
    qsbr_readers_never_find_a_deleted_object();
    return 0;
}
