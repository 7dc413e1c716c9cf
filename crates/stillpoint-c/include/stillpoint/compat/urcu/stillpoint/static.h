/*
 * Headers that liburcu's inlined functions (urcu/static, _LGPL_SOURCE) include, and that programs use without including them. Those of
 * liburcu are independent of readers, and come with liburcu if it is installed. SPDX: MIT OR Apache-2.0
 */
#ifndef STILLPOINT_URCU_STATIC_H
#define STILLPOINT_URCU_STATIC_H

#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#if defined(__has_include)
#if __has_include(<urcu/list.h>)
#include <urcu/config.h>
#include <urcu/compiler.h>
#include <urcu/arch.h>
#include <urcu/system.h>
#include <urcu/uatomic.h>
#include <urcu/list.h>
#include <urcu/futex.h>
#include <urcu/tls-compat.h>
#include <urcu/debug.h>
#endif
#endif

#endif
