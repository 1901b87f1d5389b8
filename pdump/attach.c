/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <sys/syscall.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_pdump.h>

#include "arena.h"
#include "attach.h"
#include "callbacks.h"
#include "control_files.h"
#include "capture_memory.h"

#define APP_ENDED "the app has ended"
#define LCORES_MAX 1024
/* Attaching takes less than 0.1 s, and 5 s if the app waits for another process. */
#define ATTACH_S 15U

/* Of the app, of which each process has one. -1 if the kernel has no pidfds. */
static int app_pidfd = -1;

/*
 * The EAL prepares every process for service cores, and takes that memory from the app's heap:
 * a killed secondary process would leave it there for good. We have no use for services.
 */
int32_t __wrap_rte_service_init(void);
void __wrap_rte_service_finalize(void);
int32_t __wrap_rte_service_start_with_defaults(void);

int32_t
__wrap_rte_service_init(void)
{
	return 0;
}

void
__wrap_rte_service_finalize(void)
{
}

int32_t
__wrap_rte_service_start_with_defaults(void)
{
	return -ENOTSUP;
}

/* The EAL requires the same version; app_open() has already checked it. */
int __wrap_eal_mcfg_check_version(void);

int
__wrap_eal_mcfg_check_version(void)
{
	return 0;
}

bool
app_ended(const struct state *state, unsigned int ms)
{
	struct pollfd pfd = { .fd = app_pidfd, .events = POLLIN };

	if (app_pidfd >= 0)
		return poll(&pfd, 1, (int)ms) > 0;
	return app_process_stat(state->app_pid, APP_STAT_START) != state->app_start;
}

/* All threads that the EAL starts block all signals: these are for the main thread. */
static int
init_eal(const struct options *options, const char *lcores)
{
	char prefix[NAME_MAX + 32], lcores_copy[LCORES_MAX];
	char program[] = "pmdscope-pdump", secondary[] = "--proc-type=secondary",
	     level[] = "--log-level=error", telemetry[] = "--no-telemetry",
	     iova[] = "--iova-mode=va", lcores_opt[] = "--lcores";
	char *argv[] = { program, secondary, prefix, level, telemetry, iova, lcores_opt,
		lcores_copy, NULL };
	sigset_t all, before;
	int ret;

	snprintf(prefix, sizeof(prefix), "--file-prefix=%s", options->file_prefix);
	snprintf(lcores_copy, sizeof(lcores_copy), "%s", lcores);
	sigfillset(&all);
	sigdelset(&all, SIGALRM);
	pthread_sigmask(SIG_BLOCK, &all, &before);
	/* This process holds nothing that others wait for, so it may be killed. */
	alarm(ATTACH_S);
	ret = rte_eal_init(RTE_DIM(argv) - 1, argv);
	alarm(0);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return ret;
}

static int
attached(const struct state *state, int ret, struct failure *failure)
{
	const char *held = control_files_held();

	if (app_ended(state, ret >= 0 ? 0 : ENDING_MS))
		return failure_set(failure, ESHUTDOWN, APP_ENDED);
	if (held != NULL)
		return failure_set(failure, EBUSY, "%s of the app is held all the time", held);
	if (ret < 0)
		return failure_set(failure, rte_errno != 0 ? rte_errno : EIO,
				"cannot attach to the app's memory as its user (DPDK says why on stderr)");
	if (pdump_action_register(failure) < 0)
		return -1;
	return control_files_end_attach(failure);
}

int
attach(const struct options *options, const struct app *app, struct state *state,
		struct failure *failure)
{
	char lcores[LCORES_MAX];

	/* No polling app has this lcore, and this process uses no per-lcore data. */
	if ((size_t)snprintf(lcores, sizeof(lcores), "%d@(%s)", RTE_MAX_LCORE - 1,
			    options->cpu_list) >= sizeof(lcores))
		return failure_set(failure, EINVAL, "--cpus: too long");
	/* The EAL's own threads inherit the affinity. */
	if (sched_setaffinity(0, sizeof(options->cpus), &options->cpus) < 0)
		return failure_set(failure, errno, "--cpus %s: %s", options->cpu_list,
				strerror(errno));
	rte_openlog_stream(stderr);
	state->worker = getpid();
	app_pidfd = (int)syscall(SYS_pidfd_open, state->app_pid, 0);
	if (app_process_stat(state->app_pid, APP_STAT_START) != state->app_start)
		return failure_set(failure, ESHUTDOWN, APP_ENDED);
	control_files_begin_attach(app);
	return attached(state, init_eal(options, lcores), failure);
}

static uint32_t
pdump_flag(const struct state_tap *tap)
{
	return tap->dir == PMDSCOPE_DIR_RX ? RTE_PDUMP_FLAG_RX : RTE_PDUMP_FLAG_TX;
}

/* Beginning of struct pdump_request of rte_pdump.c. */
struct request_head {
	uint16_t version;
	uint16_t operation;
	uint32_t flags;
};

/* Send requests for neither direction. */
static bool no_direction;

int __real_rte_mp_request_sync(
		struct rte_mp_msg *req, struct rte_mp_reply *reply, const struct timespec *ts);
int __wrap_rte_mp_request_sync(
		struct rte_mp_msg *req, struct rte_mp_reply *reply, const struct timespec *ts);

int
__wrap_rte_mp_request_sync(
		struct rte_mp_msg *req, struct rte_mp_reply *reply, const struct timespec *ts)
{
	struct request_head *head = (struct request_head *)req->param;

	if (no_direction)
		head->flags = 0;
	return __real_rte_mp_request_sync(req, reply, ts);
}

/* The app's error may have either sign. */
static int
failure(void)
{
	return rte_errno != 0 ? -abs(rte_errno) : -EIO;
}

static int
disable_device(const struct state *state, const struct state_tap *tap, char *device)
{
	if (app_ended(state, 0))
		return -ESHUTDOWN;
	rte_errno = 0;
	if (rte_pdump_disable_by_deviceid(device, tap->queue, pdump_flag(tap)) == 0)
		return 0;
	return failure();
}

static int
disable(const struct state *state, struct state_tap *tap)
{
	return disable_device(state, tap, tap->device);
}

/*
 * The app finds the callback by the id of the port. That may be of another device now, and another
 * port may have the name of the device.
 */
static int
disable_at(const struct state *state, const struct state_tap *tap, const struct ports *ports)
{
	char device[RTE_DEV_NAME_MAX_LEN];

	if (ports == NULL || !ports_name(ports, tap->port, device))
		snprintf(device, sizeof(device), "%.*s", (int)sizeof(device) - 1, tap->device);
	return device[0] != '\0' ? disable_device(state, tap, device) : -EINVAL;
}

int
app_answers(struct state *state, struct failure *why)
{
	int ret;

	/* Without a direction there is nothing to disable. */
	no_direction = true;
	ret = disable(state, &state->taps[0]);
	no_direction = false;
	/* EINVAL: it does not have this device any more. */
	if (ret == 0 || ret == -EINVAL)
		return 0;
	if (ret == -ESHUTDOWN || app_ended(state, ENDING_MS))
		return failure_set(why, ESHUTDOWN, APP_ENDED);
	return failure_set(why, -ret,
			"the app does not answer (%s): is it stopped, or is rte_pdump not initialized?",
			strerror(-ret));
}

static int
enable(const struct state *state, struct state_tap *tap, struct rte_ring *ring,
		struct rte_mempool *pool)
{
	if (app_ended(state, 0))
		return -ESHUTDOWN;
	rte_errno = 0;
	if (rte_pdump_enable_by_deviceid(
			    tap->device, tap->queue, pdump_flag(tap), ring, pool, NULL) == 0)
		return 0;
	return failure();
}

/* Enabled, or timed out: the app may still obey the request. */
static int
enable_armed(const struct state *state, struct state_tap *tap, struct rte_ring *ring,
		struct rte_mempool *pool)
{
	int ret;

	tap->armed = 1;
	ret = enable(state, tap, ring, pool);
	tap->armed = ret == 0 || ret == -ETIMEDOUT;
	return ret;
}

/* A capture left by a killed tool blocks this one and is ended; a live one is not disturbed. */
static int
enable_anew(const struct state *state, struct state_tap *tap, struct rte_ring *ring,
		struct rte_mempool *pool, const struct app *app, struct failure *failure)
{
	const pid_t other = app_find_secondary(app, getpid());

	if (other != 0)
		return failure_set(failure, EBUSY,
				"port %u queue %u: process %d captures there; stop it first",
				tap->port, tap->queue, (int)other);
	if (disable(state, tap) == 0 && enable_armed(state, tap, ring, pool) == 0) {
		complain("port %u queue %u: ended the capture of a tool that was killed; "
			 "its memory stays with the app",
				tap->port, tap->queue);
		return 0;
	}
	return failure_set(failure, EBUSY,
			"port %u queue %u: a capture is there, and cannot be ended", tap->port,
			tap->queue);
}

static int
enable_tap(const struct state *state, struct state_tap *tap, struct rte_ring *ring,
		struct rte_mempool *pool, const struct app *app, struct failure *failure)
{
	const int error = -enable_armed(state, tap, ring, pool);

	switch (error) {
	case 0:
		return 0;
	case EEXIST:
		return enable_anew(state, tap, ring, pool, app, failure);
	case EAGAIN: /* The app has not read an earlier request. */
	case ETIMEDOUT:
		return failure_set(failure, error,
				"the app does not answer: is it stopped, or is rte_pdump not initialized?");
	default:
		return failure_set(failure, error, "port %u (%.40s) queue %u: %s", tap->port,
				tap->device, tap->queue, strerror(error));
	}
}

int
taps_enable(struct state *state, const struct arena *arena, const struct app *app,
		struct failure *failure)
{
	unsigned int i;

	for (i = 0; i < state_nb_taps(state); i++) {
		if (enable_tap(state, &state->taps[i], arena_ring(arena, i), arena->pool, app,
				    failure) == 0)
			continue;
		/* This explains any error. */
		if (app_ended(state, ENDING_MS))
			failure_set(failure, ESHUTDOWN, APP_ENDED);
		return -1;
	}
	return 0;
}

/*
 * If the app has a tap here, this cannot disable it: the app then answers EEXIST to a second one.
 */
static bool
probe(const struct state *state, struct state_tap *tap, const struct arena *arena, unsigned int i)
{
	return enable(state, tap, arena_ring(arena, i), arena->pool) == 0 &&
	       disable(state, tap) == 0;
}

/*
 * The app answers EINVAL if there is no such capture, but also if the queue or the device
 * is currently missing. The callback is then still in its list, and is called once they
 * are back.
 */
static bool
is_gone(struct state *state, unsigned int i)
{
	struct state_tap *tap = &state->taps[i];
	static struct arena arena;

	if (!capture_memory_find(state, &arena))
		return true; /* It could not have been enabled without an arena. */
	switch (callbacks_look(tap, arena.pool)) {
	case CALLBACK_GONE:
		return true;
	case CALLBACK_UNKNOWN:
		return probe(state, tap, &arena, i);
	default:
		return false;
	}
}

enum taps_result
taps_disable(struct state *state, const struct ports *ports)
{
	enum taps_result result = TAPS_DISABLED;
	struct state_tap *tap;
	unsigned int i;
	int ret;

	for (i = 0; i < state_nb_taps(state); i++) {
		tap = &state->taps[i];
		if (!tap->armed)
			continue;
		ret = disable_at(state, tap, ports);
		if (ret == 0 || (ret == -EINVAL && is_gone(state, i))) {
			tap->armed = 0;
			continue;
		}
		if (ret != -EINVAL) {
			if (!app_ended(state, ENDING_MS))
				complain("the app does not answer (%s); the next capture will "
					 "clean up",
						strerror(-ret));
			return TAPS_UNANSWERED;
		}
		result = TAPS_LEFT;
	}
	return result;
}
