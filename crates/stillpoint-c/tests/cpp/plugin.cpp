// A plug-in whose objects wait when it is closed. Compiled twice: with PLUGIN as the plug-in, and as the program that loads it, argv[1].
//
// What clang++ makes is unloaded, and with it the deleters' code; so is what g++ makes, unless a unique symbol (STB_GNU_UNIQUE) of rcu.hpp is left
// in it. With a second argument the plug-in does without rcu_barrier() before dlclose(): then the program crashes.
#include "clause.hpp"

#include <dlfcn.h>

#if defined(PLUGIN)

namespace {
struct node : rcu::rcu_obj_base<node> {};
} // namespace

extern "C" __attribute__((visibility("default"))) void retires()
{
    (new node)->retire();
    rcu::rcu_retire(new int);
}

extern "C" __attribute__((visibility("default"))) void closes()
{
    rcu::rcu_barrier();
}

#else

int main(int count, char **arguments)
{
    CHECK("plugin", count >= 2);
    void *plugin = dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL);
    CHECK("plugin", plugin != nullptr);
    const auto call = [&](const char *name) {
        void *found = dlsym(plugin, name);
        CHECK("plugin", found != nullptr);
        reinterpret_cast<void (*)()>(found)();
    };
    auto &domain = rcu::rcu_default_domain();
    domain.lock(); // so that the deleters wait
    call("retires");
    if (count == 2) {
        domain.unlock();
        call("closes");
        domain.lock();
    }
    CHECK("plugin", dlclose(plugin) == 0);
    std::puts(dlopen(arguments[1], RTLD_NOW | RTLD_NOLOAD) == nullptr ? "unloaded" : "stays");
    std::fflush(stdout);
    domain.unlock();
    rcu::rcu_barrier();
    return 0;
}

#endif
