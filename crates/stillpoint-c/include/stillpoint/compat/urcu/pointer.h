/*
 * Pointers that readers follow. They belong to no flavour. SPDX: MIT OR Apache-2.0
 *
 * rcu_dereference() is an acquire load: an ordinary load on x86; elsewhere it is needed because a C compiler may break dependencies.
 */
#ifndef _URCU_POINTER_H
#define _URCU_POINTER_H

#include <stillpoint/types.h>

/* Programs use liburcu's atomics without including their header. They come with liburcu if it is installed. */
#if defined(__has_include)
#if __has_include(<urcu/uatomic.h>)
#include <urcu/compiler.h>

#include <urcu/arch.h>
#include <urcu/uatomic.h>
#if defined(_LGPL_SOURCE) || defined(URCU_INLINE_SMALL_FUNCTIONS)
#include <urcu/system.h>
#endif
#endif
#endif

/* Loads the pointer in p, an lvalue. */
#define rcu_dereference(p) __extension__({ __typeof__(p) stillpoint_p_ = __atomic_load_n(&(p), __ATOMIC_ACQUIRE); stillpoint_p_; })

/* Publishes v in *p. A reader that finds the object sees everything written to it before. */
#define rcu_set_pointer(p, v)                                              \
    do {                                                                   \
        __typeof__(*(p)) stillpoint_v_ = (v);                              \
        __atomic_store_n((p), stillpoint_v_, __ATOMIC_RELEASE);            \
    } while (0)

/* The same for p itself, an lvalue. */
#define rcu_assign_pointer(p, v) rcu_set_pointer(&(p), (v))

/* Stores v in *p, and returns the old value. */
#define rcu_xchg_pointer(p, v)                                                                        \
    __extension__({                                                                                   \
        __typeof__(*(p)) stillpoint_v_ = (v);                                                         \
        __typeof__(*(p)) stillpoint_was_ = __atomic_exchange_n((p), stillpoint_v_, __ATOMIC_SEQ_CST); \
        stillpoint_was_;                                                                              \
    })

/* Stores v in *p if *p equals old, and returns the old value. */
#define rcu_cmpxchg_pointer(p, old, v)                                                                                          \
    __extension__({                                                                                                             \
        __typeof__(*(p)) stillpoint_old_ = (old);                                                                               \
        __typeof__(*(p)) stillpoint_v_ = (v);                                                                                   \
        (void)__atomic_compare_exchange_n((p), &stillpoint_old_, stillpoint_v_, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);         \
        stillpoint_old_;                                                                                                        \
    })

/* liburcu's names of its inlined functions. */
#define _rcu_dereference rcu_dereference
#define _rcu_set_pointer rcu_set_pointer
#define _rcu_assign_pointer rcu_assign_pointer
#define _rcu_xchg_pointer rcu_xchg_pointer
#define _rcu_cmpxchg_pointer rcu_cmpxchg_pointer

#ifdef __cplusplus
extern "C++" {
#endif

/*
 * Compares two pointers and hides the result from the compiler: it could otherwise go on with the older one, whose object has been rewritten
 * since. In liburcu since 0.15.
 */
STILLPOINT_INLINE_ int cmm_ptr_eq(const void *a, const void *b)
{
    __asm__("" : "+r"(a));
    __asm__("" : "+r"(b));
    return a == b;
}

#ifdef __cplusplus
}

extern "C" {
#endif

/* The operations as library functions, for callers that cannot use macros, such as language bindings. The setter returns the value. */
void *rcu_dereference_sym(void *p);
void *rcu_set_pointer_sym(void **p, void *v);
void *rcu_xchg_pointer_sym(void **p, void *v);
void *rcu_cmpxchg_pointer_sym(void **p, void *old, void *_new);

#ifdef __cplusplus
}
#endif

#endif
