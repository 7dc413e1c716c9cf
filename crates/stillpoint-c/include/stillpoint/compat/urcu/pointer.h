/*
 * Pointers that readers follow. They belong to no flavour. SPDX: MIT OR Apache-2.0
 *
 * rcu_dereference() loads with acquire: on x86 an ordinary load, and elsewhere what a dependency would not give a C compiler's output.
 */
#ifndef _URCU_POINTER_H
#define _URCU_POINTER_H

#include <stillpoint/types.h>

/* Programs use liburcu's atomics without including them by themselves. They come with liburcu, if it is there. */
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

/* Loads the pointer that is in p, an lvalue. */
#define rcu_dereference(p) __extension__({ __typeof__(p) stillpoint_p_ = __atomic_load_n(&(p), __ATOMIC_ACQUIRE); stillpoint_p_; })

/* Publishes v in *p. A reader that finds the object sees what was written to it before. */
#define rcu_set_pointer(p, v)                                              \
    do {                                                                   \
        __typeof__(*(p)) stillpoint_v_ = (v);                              \
        __atomic_store_n((p), stillpoint_v_, __ATOMIC_RELEASE);            \
    } while (0)

/* As above, for the pointer itself. */
#define rcu_assign_pointer(p, v) rcu_set_pointer(&(p), (v))

/* Puts v into *p, and gives what was there. */
#define rcu_xchg_pointer(p, v)                                                                        \
    __extension__({                                                                                   \
        __typeof__(*(p)) stillpoint_v_ = (v);                                                         \
        __typeof__(*(p)) stillpoint_was_ = __atomic_exchange_n((p), stillpoint_v_, __ATOMIC_SEQ_CST); \
        stillpoint_was_;                                                                              \
    })

/* Puts v into *p if old is there, and gives what was there. */
#define rcu_cmpxchg_pointer(p, old, v)                                                                                          \
    __extension__({                                                                                                             \
        __typeof__(*(p)) stillpoint_old_ = (old);                                                                               \
        __typeof__(*(p)) stillpoint_v_ = (v);                                                                                   \
        (void)__atomic_compare_exchange_n((p), &stillpoint_old_, stillpoint_v_, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);         \
        stillpoint_old_;                                                                                                        \
    })

/* The names that liburcu has for what it inlines. */
#define _rcu_dereference rcu_dereference
#define _rcu_set_pointer rcu_set_pointer
#define _rcu_assign_pointer rcu_assign_pointer
#define _rcu_xchg_pointer rcu_xchg_pointer
#define _rcu_cmpxchg_pointer rcu_cmpxchg_pointer

#ifdef __cplusplus
extern "C++" {
#endif

/*
 * Whether two pointers are equal, which the compiler is not to know afterwards: it could go on with the older one, whose object has been written
 * anew since. liburcu has it since 0.15.
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

/* The operations as functions of the library, for callers that cannot use macros, such as bindings of another language. The setter returns the value. */
void *rcu_dereference_sym(void *p);
void *rcu_set_pointer_sym(void **p, void *v);
void *rcu_xchg_pointer_sym(void **p, void *v);
void *rcu_cmpxchg_pointer_sym(void **p, void *old, void *_new);

#ifdef __cplusplus
}
#endif

#endif
