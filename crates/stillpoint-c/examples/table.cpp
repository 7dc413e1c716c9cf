// A configuration that threads read and one replaces, from C++: the native interface.
#include <cstdio>
#include <cstdlib>
#include <stillpoint/stillpoint.h>
#include <thread>
#include <vector>

namespace {

struct config {
    int limit;
    int twice;
    stillpoint_head head;
};

config *current = new config{1, 2, STILLPOINT_HEAD_INIT};
bool done = false;

void reclaim(stillpoint_head *head)
{
    delete reinterpret_cast<config *>(reinterpret_cast<char *>(head) - offsetof(config, head));
}

void read()
{
    while (!__atomic_load_n(&done, __ATOMIC_RELAXED)) {
        stillpoint_read_lock();
        const config *seen = __atomic_load_n(&current, __ATOMIC_ACQUIRE);
        if (seen->twice != 2 * seen->limit) {
            std::abort();
        }
        stillpoint_read_unlock();
    }
}

} // namespace

int main()
{
    std::vector<std::thread> readers;
    for (int n = 0; n < 2; n++) {
        readers.emplace_back(read);
    }
    for (int limit = 2; limit < 2000; limit++) {
        config *old = __atomic_exchange_n(&current, new config{limit, 2 * limit, STILLPOINT_HEAD_INIT}, __ATOMIC_ACQ_REL);
        if (stillpoint_call(&old->head, reclaim) != 0) {
            std::abort();
        }
    }
    __atomic_store_n(&done, true, __ATOMIC_RELAXED);
    for (auto &reader : readers) {
        reader.join();
    }
    int error = stillpoint_barrier();
    delete current;
    std::printf("all old ones are gone: %s\n", error == 0 ? "yes" : "no");
    return error == 0 ? 0 : 1;
}
