/*
 * malloc() and its kin, which return NULL where fails(), which the test defines, says so. The address sanitizer has its own: with it there
 * is only a main() that says that, and SANITIZED.
 */
#ifndef REFUSING_MALLOC_H
#define REFUSING_MALLOC_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>

#if defined __has_feature
#if __has_feature(address_sanitizer)
#define SANITIZED
#endif
#endif
#ifdef __SANITIZE_ADDRESS__
#define SANITIZED
#endif

#ifdef SANITIZED
int main(void)
{
    puts("not with the sanitizer's malloc()");
    return 0;
}
#else

#ifdef __cplusplus
#define NOTHROW noexcept
extern "C" {
#else
#define NOTHROW
#endif

/* Whether this allocation is refused. */
static bool fails(size_t size);

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *block, size_t size);
void *__libc_memalign(size_t align, size_t size);

static bool refused(size_t size)
{
    bool is_refused = fails(size);
    if (is_refused) {
        errno = ENOMEM;
    }
    return is_refused;
}

void *malloc(size_t size) NOTHROW
{
    return refused(size) ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size) NOTHROW
{
    return refused(count * size) ? NULL : __libc_calloc(count, size);
}

void *realloc(void *block, size_t size) NOTHROW
{
    return refused(size) ? NULL : __libc_realloc(block, size);
}

void *aligned_alloc(size_t align, size_t size) NOTHROW
{
    return refused(size) ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **block, size_t align, size_t size) NOTHROW
{
    *block = refused(size) ? NULL : __libc_memalign(align, size);
    return *block ? 0 : ENOMEM;
}

#ifdef __cplusplus
}
#endif

#endif
#endif
