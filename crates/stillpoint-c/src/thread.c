/* The thread-local state of the inlined read side, which has no destructor (the library says when it is to be forgotten), and what the library
 * asks of the process when it is loaded. */
#include <stdlib.h>

#include <stillpoint/types.h>

/* The record of nobody: it looks nested as deep as can be, so the usual ways of lock and unlock refuse it. Never written. */
static const struct stillpoint_record nobody = {.word = STILLPOINT_NESTING_};

#define NOBODY                                                                                                                          \
    { (struct stillpoint_record *)&nobody, &nobody.word }

__attribute__((visibility("hidden"))) const struct stillpoint_record *stillpoint_nobody_(void)
{
    return &nobody;
}

/* With the model of the declaration, which the definition would take back. */
__thread struct stillpoint_thread stillpoint_thread __attribute__((tls_model("initial-exec"))) = {.reader = {NOBODY, NOBODY, NOBODY}};

__attribute__((visibility("hidden"))) void stillpoint_thread_share_(struct stillpoint_share *share)
{
    stillpoint_thread.share = share;
}

/* A signal handler between the two stores finds a pair that works: the place first, then who loads from there. */
__attribute__((visibility("hidden"))) void stillpoint_thread_remember_(int which, struct stillpoint_record *record, const uint64_t *started)
{
    stillpoint_thread.reader[which].started = started;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    stillpoint_thread.reader[which].record = record;
}

__attribute__((visibility("hidden"))) void stillpoint_thread_forget_(int which)
{
    stillpoint_thread.reader[which].record = (struct stillpoint_record *)&nobody;
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}

/* Read once, and before the program can have threads that change the environment. */
__attribute__((visibility("hidden"))) bool stillpoint_loud_;

__attribute__((constructor)) static void read_environment(void)
{
    stillpoint_loud_ = getenv("STILLPOINT_DEBUG") != NULL;
}
