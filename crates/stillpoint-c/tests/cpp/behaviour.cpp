// What [saferecl.rcu] says about running programs.
#include "clause.hpp"

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

using namespace std::chrono_literals;

namespace {

auto &domain = rcu::rcu_default_domain();
std::atomic<int> deleted{0};

// Long enough for a broken library to be seen; a correct one passes whatever it takes.
constexpr auto a_while = 60ms;

void retires_when_all_sections_have_ended()
{
    struct node : rcu::rcu_obj_base<node> {
        ~node() { deleted++; }
    };
    struct outside {
        ~outside() { deleted++; }
    };
    deleted = 0;
    std::atomic<bool> inside{false}, leave{false};
    std::thread reader([&] {
        domain.lock();
        domain.lock(); // a level: the region ends with the outermost
        inside = true;
        wait_until([&] { return leave.load(); });
        domain.unlock();
        std::this_thread::sleep_for(a_while);
        CHECK("saferecl.rcu.general/5", deleted == 0);
        domain.unlock();
    });
    wait_until([&] { return inside.load(); });
    (new node)->retire();
    rcu::rcu_retire(new outside);
    std::atomic<bool> synchronized{false}, passed{false};
    std::thread synchronizer([&] { rcu::rcu_synchronize(); synchronized = true; });
    std::thread barrier([&] { rcu::rcu_barrier(); passed = true; });
    std::this_thread::sleep_for(a_while);
    CHECK("saferecl.rcu.general/5", deleted == 0);
    CHECK("saferecl.rcu.domain.func, rcu_synchronize", !synchronized);
    CHECK("saferecl.rcu.domain.func, rcu_barrier", !passed);
    leave = true;
    reader.join();
    synchronizer.join();
    barrier.join();
    CHECK("saferecl.rcu.domain.func, rcu_barrier", deleted == 2);
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.general/6, once", deleted == 2);
}

void regions_nest_and_are_lockable()
{
    CHECK("saferecl.rcu.domain.func", &rcu::rcu_default_domain() == &domain);
    CHECK("saferecl.rcu.domain.members, try_lock", domain.try_lock());
    CHECK("saferecl.rcu.domain.members, try_lock", domain.try_lock());
    CHECK("saferecl.rcu.domain", stillpoint_read_lock_held());
    domain.unlock();
    CHECK("saferecl.rcu.general/3, the inner pair", stillpoint_read_lock_held());
    domain.unlock();
    CHECK("saferecl.rcu.general/3, the outer pair", !stillpoint_read_lock_held());
    {
        std::scoped_lock section(domain);
        std::unique_lock<rcu::rcu_domain> deferred(domain, std::defer_lock);
        CHECK("saferecl.rcu.domain, Lockable", deferred.try_lock());
        std::lock_guard<rcu::rcu_domain> third(domain);
    }
    CHECK("saferecl.rcu.domain, Lockable", !stillpoint_read_lock_held());
    std::unique_lock<rcu::rcu_domain> moved_into(domain);
    auto moved = std::move(moved_into);
    moved.unlock();
    std::mutex mutex;
    {
        std::scoped_lock both(mutex, domain);
    }
    CHECK("saferecl.rcu.domain, Lockable", !stillpoint_read_lock_held());
    rcu::rcu_synchronize(domain);
    rcu::rcu_barrier(domain);
}

void only_older_sections_count()
{
    // A section that begins after the grace period that is waited for may last.
    std::atomic<int> turn{0};
    std::thread reader([&] {
        wait_until([&] { return turn == 1; });
        std::scoped_lock section(domain);
        turn = 2;
        wait_until([&] { return turn == 3; });
    });
    deleted = 0;
    rcu::rcu_retire(new int(1), [](int *p) { deleted++; delete p; });
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.domain.func, rcu_barrier", deleted == 1);
    turn = 1;
    wait_until([&] { return turn == 2; });
    rcu::rcu_barrier(); // nothing is pending: it is no rcu_synchronize, and the section does not hold it up
    turn = 3;
    reader.join();
}

void barrier_inside_a_section()
{
    deleted = 0;
    rcu::rcu_retire(new int, [](int *p) { deleted++; delete p; });
    std::scoped_lock section(domain);
    rcu::rcu_barrier(); // all was scheduled before the section began, so it does not wait for itself
    CHECK("saferecl.rcu.domain.func, rcu_barrier", deleted == 1);
}

void retire_in_sections_and_in_deleters()
{
    static std::atomic<int> left{0};
    struct chain : rcu::rcu_obj_base<chain> {
        std::unique_ptr<chain> next;
        ~chain()
        {
            left--;
            if (next) {
                next.release()->retire(); // schedules from within a deleter
            }
        }
    };
    left = 100;
    std::unique_ptr<chain> first;
    for (int i = 0; i < 100; i++) {
        auto node = std::make_unique<chain>();
        node->next = std::move(first);
        first = std::move(node);
    }
    {
        std::scoped_lock section(domain);
        first.release()->retire();
        rcu::rcu_retire(new int(7), [](int *p) {
            rcu::rcu_retire(p, [](int *again) { delete again; }); // allocates in a deleter
        });
        CHECK("saferecl.rcu.general/5, in its own section", left == 100);
    }
    for (int i = 0; i < 101; i++) {
        rcu::rcu_barrier(); // each waits for what was scheduled before it: one level
    }
    CHECK("saferecl.rcu.general/6", left == 0);
    rcu::rcu_barrier();
}

struct shape {
    virtual ~shape() { deleted++; }
    long padding = 0;
};
// The base is not at the start of the object, and T is a base of what is deleted.
struct figure : shape, rcu::rcu_obj_base<figure> {
    int sides = 4;
};
struct square final : figure {
    std::vector<int> corners{1, 2, 3, 4};
    ~square() override { deleted += static_cast<int>(corners.size()); }
};

void polymorphic_objects()
{
    deleted = 0;
    figure *seen = new square;
    seen->retire();
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.base, retire", deleted == 5);
}

struct addressed;
struct note_address {
    void **where = nullptr;
    void operator()(addressed *p) const;
};
// Incomplete where its base is named, over-aligned, with an operator& that lies.
struct alignas(256) addressed : rcu::rcu_obj_base<addressed, note_address> {
    addressed *operator&() { return nullptr; }
    int value = 42;
};
void note_address::operator()(addressed *p) const
{
    void **const to = where; // this deleter lies in the object
    *to = p;
    CHECK("saferecl.rcu.base, retire", reinterpret_cast<std::uintptr_t>(p) % 256 == 0 && p->value == 42);
    delete p;
}

void deleters_get_the_address_of_the_object()
{
    void *noted = nullptr;
    auto *object = new addressed;
    object->retire({&noted});
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.base, retire: addressof(x)", noted == object);
}

struct moved_only {
    std::unique_ptr<int> *into = nullptr;
    std::unique_ptr<int> state;
    moved_only() = default;
    moved_only(std::unique_ptr<int> *to, int value) : into(to), state(std::make_unique<int>(value)) {}
    moved_only(moved_only &&) = default;
    moved_only &operator=(moved_only &&) = default;
    template <class T>
    void operator()(T *p)
    {
        *into = std::move(state);
        delete p;
    }
};

void deleters_with_a_state()
{
    struct node : rcu::rcu_obj_base<node, moved_only> {};
    std::unique_ptr<int> first, second;
    (new node)->retire(moved_only(&first, 11));
    rcu::rcu_retire(new long, moved_only(&second, 12));
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.base, retire: deleter = std::move(d)", first && *first == 11);
    CHECK("saferecl.rcu.domain.func, rcu_retire: d1 from std::move(d)", second && *second == 12);

    // d1 is destroyed, and once: the count of its owners says so.
    auto owned = std::make_shared<int>(0);
    rcu::rcu_retire(new int, [owned](int *p) { ++*owned; delete p; });
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.domain.func, rcu_retire: d1 is destroyed", owned.use_count() == 1 && *owned == 1);

    // Functions are deleters; void and incomplete types have pointers; the same pointer may be scheduled again where nothing is deleted.
    static int calls = 0;
    int object = 0;
    rcu::rcu_retire(&object, +[](int *p) { ++*p; });
    rcu::rcu_retire(&object, +[](int *p) { ++*p; });
    rcu::rcu_retire(static_cast<void *>(&object), [](void *) { ++calls; });
    struct never_defined;
    rcu::rcu_retire(reinterpret_cast<never_defined *>(&object), [](never_defined *) { ++calls; });
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.domain.func, rcu_retire", object == 2 && calls == 2);
}

struct alignas(128) wide_deleter {
    char state[128] = {1};
    template <class T>
    void operator()(T *p) const
    {
        CHECK("saferecl.rcu.domain.func, rcu_retire", reinterpret_cast<std::uintptr_t>(this) % 128 == 0 && state[0] == 1);
        delete p;
    }
};

void over_aligned_deleters()
{
    struct node : rcu::rcu_obj_base<node, wide_deleter> {
        char more = 0;
    };
    static_assert(alignof(node) == 128, "the deleter lies in the base");
    rcu::rcu_retire(new int, wide_deleter{});
    (new node)->retire();
    rcu::rcu_barrier();
}

void deleter_that_cannot_be_moved_leaves_nothing_scheduled()
{
    struct failing {
        bool *fails;
        explicit failing(bool *f) : fails(f) {}
        failing(failing &&from) : fails(from.fails)
        {
            if (*fails) {
                throw 7;
            }
        }
        void operator()(int *p) const { deleted++; delete p; }
    };
    deleted = 0;
    auto value = std::make_unique<int>(1);
    bool fails = true;
    bool thrown = false;
    try {
        rcu::rcu_retire(value.get(), failing(&fails));
    } catch (int exception) {
        thrown = exception == 7;
    }
    CHECK("saferecl.rcu.domain.func, rcu_retire: Throws", thrown);
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.domain.func, rcu_retire: nothing scheduled", deleted == 0 && *value == 1);
    fails = false;
    rcu::rcu_retire(value.release(), failing(&fails));
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.domain.func, rcu_retire", deleted == 1);
}

void copies_are_objects_of_their_own()
{
    struct node : rcu::rcu_obj_base<node> {
        int value = 5;
    };
    auto *first = new node;
    auto *second = new node(*first);
    *second = *first;
    first->retire();
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.base", second->value == 5);
    second->retire();
    rcu::rcu_barrier();
}

// Whatever their addresses are: a copy of an object that waits is not taken for one that waits.
void copies_of_what_waits_can_be_retired()
{
    struct counting {
        void operator()(void *) const { deleted++; }
    };
    struct node : rcu::rcu_obj_base<node, counting> {};
    constexpr int copies = 150'000;
    deleted = 0;
    node first;
    std::vector<node> others;
    {
        std::scoped_lock section(domain);
        first.retire();
        others.assign(copies, first);
        for (node &other : others) {
            other.retire();
        }
    }
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.base", deleted == 1 + copies);
}

constexpr int writers = 2, readers = 2, replacements = 20000;

struct page;
struct recycle {
    void operator()(page *p) const;
};
struct page : rcu::rcu_obj_base<page, recycle> {
    int alive = 1;
    int seen[readers] = {};
};

std::atomic<int> gone;
std::atomic<long> sum_of_seen;

void recycle::operator()(page *p) const
{
    CHECK("saferecl.rcu.general/6, once", p->alive == 1);
    p->alive = 0; // not atomic: no reader may be there
    for (int count : p->seen) {
        sum_of_seen += count; // not atomic: all that readers did is there
    }
    gone++;
    delete p;
}

// Readers look for a poisoned object while writers replace it; what readers write into their own slot is there for the deleter.
void readers_never_find_a_deleted_object()
{
    gone = 0;
    sum_of_seen = 0;
    std::atomic<page *> current{new page};
    std::atomic<bool> done{false};
    long sums[readers] = {};
    std::vector<std::thread> reading, writing;
    for (int me = 0; me < readers; me++) {
        reading.emplace_back([&, me] {
            while (!done) {
                std::scoped_lock section(domain);
                page *found = current.load(std::memory_order_acquire);
                for (int i = 0; i < 4; i++) {
                    CHECK("saferecl.rcu.general/5", found->alive == 1);
                }
                found->seen[me]++;
                sums[me]++;
                CHECK("saferecl.rcu.general/5", found->alive == 1);
            }
        });
    }
    for (int writer = 0; writer < writers; writer++) {
        writing.emplace_back([&] {
            for (int i = 0; i < replacements; i++) {
                page *old = current.exchange(new page, std::memory_order_acq_rel);
                if (i % 2 == 0) {
                    old->retire();
                } else {
                    rcu::rcu_retire(old, recycle{});
                }
                if (i % 1000 == 0) {
                    rcu::rcu_synchronize();
                }
            }
        });
    }
    for (auto &thread : writing) {
        thread.join();
    }
    done = true;
    for (auto &thread : reading) {
        thread.join();
    }
    current.load()->retire();
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.domain.func, rcu_barrier", gone == writers * replacements + 1);
    long all = 0;
    for (long sum : sums) {
        all += sum;
    }
    CHECK("saferecl.rcu.general/5, what sections did", sum_of_seen == all);
}

// The two shapes of [saferecl.rcu.domain.func] about rcu_synchronize, with relaxed and plain accesses only.
void synchronize_orders_sections()
{
    constexpr int rounds = 5000;
    std::atomic<int> ready{0}, x{0}, y{0};
    int plain = 0;
    std::atomic<int> saw_no_x{0};
    auto meet = [&](int number) {
        ready.fetch_add(1);
        wait_until([&] { return ready >= 2 * number; });
    };
    std::thread reader([&] {
        for (int i = 1, met = 0; i <= rounds; i++) {
            meet(++met);
            {
                std::scoped_lock section(domain);
                const int second = y.load(std::memory_order_relaxed);
                const int first = x.load(std::memory_order_relaxed);
                // y is written after the wait: a section that sees it began after the wait, and sees all before it.
                CHECK("saferecl.rcu.domain.func, rcu_synchronize", !(second == i && first != i));
            }
            {
                std::scoped_lock section(domain);
                if (x.load(std::memory_order_relaxed) != i) {
                    plain = i; // this section began before the wait did: the waiter finds this
                    saw_no_x.store(i, std::memory_order_relaxed);
                }
            }
            meet(++met);
        }
    });
    for (int i = 1, met = 0; i <= rounds; i++) {
        meet(++met);
        x.store(i, std::memory_order_relaxed);
        rcu::rcu_synchronize();
        const int found = plain;
        y.store(i, std::memory_order_relaxed);
        meet(++met);
        if (saw_no_x.load(std::memory_order_relaxed) == i) {
            CHECK("saferecl.rcu.domain.func, rcu_synchronize: Synchronization", found == i);
        }
    }
    reader.join();
}

// What a deleter wrote is there after the barrier, without atomics.
void barrier_orders_deleters()
{
    for (int i = 1; i <= 2000; i++) {
        int plain = 0;
        rcu::rcu_retire(&plain, [i](int *p) { *p = i; });
        rcu::rcu_barrier();
        CHECK("saferecl.rcu.domain.func, rcu_barrier: Synchronization", plain == i);
    }
}

} // namespace

int main()
{
    regions_nest_and_are_lockable();
    retires_when_all_sections_have_ended();
    only_older_sections_count();
    barrier_inside_a_section();
    retire_in_sections_and_in_deleters();
    polymorphic_objects();
    deleters_get_the_address_of_the_object();
    deleters_with_a_state();
    over_aligned_deleters();
    deleter_that_cannot_be_moved_leaves_nothing_scheduled();
    copies_are_objects_of_their_own();
    copies_of_what_waits_can_be_retired();
    readers_never_find_a_deleted_object();
    synchronize_orders_sections();
    barrier_orders_deleters();
    return 0;
}
