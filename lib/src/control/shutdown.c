/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_debug.h>
#include <rte_eal.h>
#include <rte_errno.h>

#include "log.h"
#include "quiesce.h"
#include "shutdown.h"
#include "state.h"

/* Timeout for the control thread and for the telemetry threads, each. */
#define STOP_MS 2000
#define MESSAGE_MAX 4096

/* Any function; converts the result of dlsym(). */
typedef void (*function_t)(void);

/*
 * Three ways to be linked. As a shared library, and as an archive with DPDK's shared libraries, our
 * definitions of rte_eal_cleanup() and rte_exit() come before DPDK's in the order of symbol lookup.
 * As an archive with DPDK's archives they give way to DPDK's, being weak, and the linker's option
 * --wrap still leads here.
 */
int __real_rte_eal_cleanup(void) __attribute__((weak));
void __real_rte_exit(int exit_code, const char *format, ...) __attribute__((weak));
int __wrap_rte_eal_cleanup(void);
void
__wrap_rte_exit(int exit_code, const char *format, ...) __rte_noreturn __rte_format_printf(2, 3);

/* --- Stopping -------------------------------------------------------------------------- */

bool
pmdscope_shutdown_telemetry(void)
{
	/* Its listener logs the end of its socket as an error. */
	rte_log_set_level_pattern("lib.telemetry", RTE_LOG_CRIT);
	if (pmdscope_quiesce_telemetry(rte_eal_get_runtime_dir(), STOP_MS))
		return true;
	PMDSCOPE_LOG(WARNING, "a telemetry request has not ended within %u ms", STOP_MS);
	return false;
}

/* True if no thread of ours or of telemetry uses the EAL any more; the wait is bounded. */
static bool
stop_threads(void)
{
	static bool stopped;
	bool telemetry;

	if (__atomic_load_n(&stopped, __ATOMIC_ACQUIRE))
		return true;
	__atomic_store_n(&pmdscope_state.ending, true, __ATOMIC_RELEASE);
	/* Both are stopped in any case: the second stop may succeed even if the first did not. */
	telemetry = pmdscope_shutdown_telemetry();
	if (!pmdscope_control_stop(STOP_MS)) {
		PMDSCOPE_LOG(WARNING, "the control thread has not stopped within %u ms", STOP_MS);
		return false;
	}
	if (!telemetry)
		return false;
	__atomic_store_n(&stopped, true, __ATOMIC_RELEASE);
	return true;
}

static void
on_exit_of_process(void)
{
	if (pmdscope_control_is_here())
		stop_threads();
}

void
pmdscope_shutdown_prepare(void)
{
	static bool prepared;

	if (!prepared && atexit(on_exit_of_process) == 0)
		prepared = true;
}

/* --- In front of DPDK ------------------------------------------------------------------ */

/* --wrap has put another function behind our name. Without it there is none, or our own. */
static bool
is_wrapped(function_t own, function_t wrapped)
{
	/* The compiler takes two names for two functions; the linker may have made them one. */
	__asm__("" : "+r"(wrapped));
	return wrapped != NULL && wrapped != own;
}

/* DPDK's own definition, or that of a library in between. */
static function_t
next_of(const char *name, function_t own, function_t wrapped)
{
	function_t next = wrapped;
	void *found;

	if (is_wrapped(own, wrapped))
		return wrapped;
	found = dlsym(RTLD_NEXT, name);
	memcpy(&next, &found, sizeof(next));
	return next;
}

static int
cleanup(void)
{
	int (*next)(void) = (int (*)(void))next_of(
			"rte_eal_cleanup", (function_t)cleanup, (function_t)__real_rte_eal_cleanup);

	if (next == NULL) {
		rte_errno = ENOSYS;
		return -1;
	}
	if (!stop_threads()) {
		/* A thread may still read the memory; the kernel frees it at exit. */
		PMDSCOPE_LOG(WARNING, "rte_eal_cleanup() is not done, which would crash the app");
		rte_errno = EBUSY;
		return -1;
	}
	return next();
}

/* Also used where rte_exit() reaches rte_eal_cleanup() by a call that cannot be intercepted. */
static void __rte_noreturn __rte_format_printf(2, 3) leave(int exit_code, const char *format, ...)
{
	void (*next)(int, const char *, ...) = (void (*)(int, const char *, ...))next_of(
			"rte_exit", (function_t)leave, (function_t)__real_rte_exit);
	char message[MESSAGE_MAX];
	va_list ap;

	va_start(ap, format);
	vsnprintf(message, sizeof(message), format, ap);
	va_end(ap);
	if (stop_threads()) {
		if (next != NULL)
			next(exit_code, "%s", message);
		cleanup();
	}
	rte_log(RTE_LOG_CRIT, RTE_LOGTYPE_EAL, "exit with code %d: %s", exit_code, message);
	exit(exit_code);
}

#define IN_FRONT_OF_DPDK(function) __attribute__((alias(#function), weak, visibility("default")))

int rte_eal_cleanup(void) IN_FRONT_OF_DPDK(cleanup);
void rte_exit(int exit_code, const char *format, ...) IN_FRONT_OF_DPDK(leave);
int __wrap_rte_eal_cleanup(void) __attribute__((alias("cleanup")));
void __wrap_rte_exit(int exit_code, const char *format, ...) __attribute__((alias("leave")));

static bool
comes_first(const char *name, function_t own, function_t wrapped)
{
	void *const found = dlsym(RTLD_DEFAULT, name);

	return is_wrapped(own, wrapped) || memcmp(&found, &own, sizeof(own)) == 0;
}

bool
pmdscope_shutdown_intercepts(void)
{
	return comes_first("rte_eal_cleanup", (function_t)cleanup,
			       (function_t)__real_rte_eal_cleanup) &&
	       comes_first("rte_exit", (function_t)leave, (function_t)__real_rte_exit);
}
