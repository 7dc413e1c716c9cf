/* The thread-local state of the inlined functions, which has no destructor (src/thread.rs clears it), and the library's constructor. */
#include <stillpoint/stillpoint.h>

#define HIDDEN __attribute__((visibility("hidden")))

/* The record of unregistered threads: its nesting is the maximum, so the fast paths of lock and unlock refuse it. Never written. */
HIDDEN extern const struct stillpoint_record stillpoint_unregistered_;
const struct stillpoint_record stillpoint_unregistered_ = {.word = STILLPOINT_NESTING_};

#define UNREGISTERED {(struct stillpoint_record *)&stillpoint_unregistered_, &stillpoint_unregistered_.word}

/* Repeats the declaration's TLS model, which a plain definition would reset. */
__thread struct stillpoint_thread stillpoint_thread
    __attribute__((tls_model("initial-exec"))) = {.reader = {UNREGISTERED, UNREGISTERED, UNREGISTERED}};

HIDDEN void stillpoint_thread_cache_buffer_(struct stillpoint_thread_buffer *buffer)
{
    stillpoint_thread.buffer = buffer;
}

/* Stores `started` before the record, so that a signal handler between the two stores finds a pair that works. */
HIDDEN void stillpoint_thread_cache_record_(int which, struct stillpoint_record *record, const uint64_t *started)
{
    stillpoint_thread.reader[which].started = started;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    stillpoint_thread.reader[which].record = record;
}

HIDDEN struct stillpoint_record *stillpoint_thread_record_(int which)
{
    return stillpoint_thread.reader[which].record;
}

HIDDEN void stillpoint_thread_clear_record_(int which)
{
    stillpoint_thread.reader[which].record = (struct stillpoint_record *)&stillpoint_unregistered_;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Reads it once, before the program can have threads that change the environment. */
__attribute__((constructor)) static void read_environment(void)
{
    (void)stillpoint_reports_misuse();
}
