// Allocation: retire() of rcu_obj_base does none, rcu_retire() reports that there is none. malloc() and operator new are counted and made to fail.
#include "clause.hpp"

#include <cstdlib>
#include <new>
#include <thread>

#include "../c/refusing_malloc.h"

namespace {
thread_local int allocations = 0;
thread_local bool none_left = false;
} // namespace

static bool fails(std::size_t)
{
    allocations++;
    return none_left;
}

void *operator new(std::size_t size)
{
    if (void *block = malloc(size)) {
        return block;
    }
    throw std::bad_alloc();
}
void *operator new(std::size_t size, std::align_val_t align)
{
    if (void *block = aligned_alloc(static_cast<std::size_t>(align), size)) {
        return block;
    }
    throw std::bad_alloc();
}
void operator delete(void *block) noexcept { std::free(block); }
void operator delete(void *block, std::size_t) noexcept { std::free(block); }
void operator delete(void *block, std::align_val_t) noexcept { std::free(block); }
void operator delete(void *block, std::size_t, std::align_val_t) noexcept { std::free(block); }

namespace {

int deleted = 0; // written by deleters, read after barriers

struct node : rcu::rcu_obj_base<node> {
    ~node() { deleted++; }
};

struct counting {
    int *state = nullptr;
    void operator()(int *p) const { ++*p; }
};

struct alignas(256) wide {
    void operator()(int *p) const { ++*p; }
};

node *many[1000];

// The first of the process makes the domain and starts the thread that runs deleters, which allocates: see the header.
void the_first()
{
    (new node)->retire();
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.base, retire", deleted == 1);
}

void retire_allocates_nothing()
{
    for (auto *&place : many) {
        place = new node;
    }
    rcu::rcu_barrier();
    deleted = 0;
    rcu::rcu_default_domain().lock();
    allocations = 0;
    none_left = true;
    for (auto *it : many) {
        it->retire();
    }
    const int inside = allocations;
    none_left = false;
    rcu::rcu_default_domain().unlock();
    CHECK("saferecl.rcu.base, retire: allocates nothing", inside == 0);
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.base, retire", deleted == 1000);

    // Nor do sections of a thread that has had one, and it works from a thread that has never been seen before.
    allocations = 0;
    none_left = true;
    for (int i = 0; i < 1000; i++) {
        rcu::rcu_default_domain().lock();
        rcu::rcu_default_domain().unlock();
    }
    none_left = false;
    CHECK("saferecl.rcu.domain.members", allocations == 0);
    deleted = 0;
    for (auto *&place : many) {
        place = new node;
    }
    int there = -1;
    std::thread([&] {
        allocations = 0;
        none_left = true;
        for (auto *it : many) {
            it->retire();
        }
        there = allocations;
        none_left = false;
    }).join();
    CHECK("saferecl.rcu.base, retire: allocates nothing", there == 0);
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.base, retire", deleted == 1000);
}

template <class D>
void rcu_retire_throws(D d)
{
    int calls = 0;
    bool thrown = false;
    none_left = true;
    try {
        rcu::rcu_retire(&calls, d);
    } catch (const std::bad_alloc &) {
        thrown = true;
    }
    none_left = false;
    CHECK("saferecl.rcu.domain.func, rcu_retire: Throws", thrown);
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.domain.func, rcu_retire: nothing scheduled", calls == 0);
    allocations = 0;
    rcu::rcu_retire(&calls, d);
    CHECK("saferecl.rcu.domain.func, rcu_retire: one allocation", allocations == 1);
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.domain.func, rcu_retire", calls == 1);
}

// Readers can be waited for without memory; a barrier with something pending allocates, see the header.
void synchronize_without_memory()
{
    int calls = 0;
    rcu::rcu_retire(&calls, counting{});
    none_left = true;
    allocations = 0;
    rcu::rcu_synchronize();
    none_left = false;
    CHECK("saferecl.rcu.domain.func, rcu_synchronize", allocations == 0);
    rcu::rcu_barrier();
    CHECK("saferecl.rcu.domain.func, rcu_barrier", calls == 1);
}

} // namespace

int main()
{
    the_first();
    retire_allocates_nothing();
    rcu_retire_throws(counting{});
    rcu_retire_throws(wide{});
    synchronize_without_memory();
    return 0;
}
