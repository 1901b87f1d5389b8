/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* In C, and with a feature macro that is defined after the header is included. */

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sched.h>
#include <stdbool.h>

#include "trace.h"

#define NAME(name) call_##name
#define CALL(name) static void call_##name(const struct trace_env *env, struct trace_result *r)
#define TRACE_CALL trace_call

#include "trace_calls.h"
