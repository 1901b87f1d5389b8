/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_pdump.h>

#include "arena.h"
#include "attach.h"
#include "callbacks.h"

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

int
attach(const struct options *options, struct state *state, struct verdict *verdict)
{
	char prefix[NAME_MAX + 32], lcores[1024];
	char program[] = "pmdscope-pdump", secondary[] = "--proc-type=secondary",
	     level[] = "--log-level=error", telemetry[] = "--no-telemetry",
	     iova[] = "--iova-mode=va", lcores_opt[] = "--lcores";
	char *argv[] = { program, secondary, prefix, level, telemetry, iova, lcores_opt, lcores,
		NULL };
	int ret;

	snprintf(prefix, sizeof(prefix), "--file-prefix=%s", options->file_prefix);
	/* No app that polls has this lcore; none of ours ever uses what is per lcore. */
	if ((size_t)snprintf(lcores, sizeof(lcores), "%d@(%s)", RTE_MAX_LCORE - 1,
			    options->cpu_list) >= sizeof(lcores))
		return verdict_set(verdict, EINVAL, "--cpus: too long");
	/* The EAL takes over the affinity for its own threads. */
	if (sched_setaffinity(0, sizeof(options->cpus), &options->cpus) < 0)
		return verdict_set(verdict, errno, "--cpus %s: %s", options->cpu_list,
				strerror(errno));
	rte_openlog_stream(stderr);
	state->worker = getpid();
	state_enter(state, STATE_CRITICAL);
	ret = rte_eal_init(RTE_DIM(argv) - 1, argv);
	state_enter(state, STATE_INSIDE);
	if (ret >= 0)
		return 0;
	return verdict_set(verdict, rte_errno != 0 ? rte_errno : EIO,
			"cannot attach to the app's memory (DPDK says why on stderr)");
}

void
detach(struct state *state)
{
	state_enter(state, STATE_CRITICAL);
	rte_eal_cleanup();
	state_enter(state, STATE_OUTSIDE);
}

static uint32_t
pdump_flag(const struct state_tap *tap)
{
	return tap->dir == PMDSCOPE_DIR_RX ? RTE_PDUMP_FLAG_RX : RTE_PDUMP_FLAG_TX;
}

/* The app answers with either sign. */
static int
failure(void)
{
	return rte_errno != 0 ? -abs(rte_errno) : -EIO;
}

static int
disable(struct state_tap *tap)
{
	rte_errno = 0;
	if (rte_pdump_disable_by_deviceid(tap->device, tap->queue, pdump_flag(tap)) == 0)
		return 0;
	return failure();
}

static int
enable(struct state_tap *tap, struct rte_ring *ring, struct rte_mempool *pool)
{
	rte_errno = 0;
	if (rte_pdump_enable_by_deviceid(
			    tap->device, tap->queue, pdump_flag(tap), ring, pool, NULL) == 0)
		return 0;
	return failure();
}

/* What a tool that was killed has left enabled is in the way; a live one is not disturbed. */
static int
enable_anew(struct state_tap *tap, struct rte_ring *ring, struct rte_mempool *pool,
		const struct app *app, struct verdict *verdict)
{
	const pid_t other = app_find_secondary(app, getpid());

	if (other != 0)
		return verdict_set(verdict, EBUSY,
				"port %u queue %u: process %d captures there; stop it first",
				tap->port, tap->queue, (int)other);
	if (disable(tap) == 0 && enable(tap, ring, pool) == 0) {
		complain("port %u queue %u: ended the capture of a tool that was killed; "
			 "its memory stays with the app",
				tap->port, tap->queue);
		return 0;
	}
	return verdict_set(verdict, EBUSY,
			"port %u queue %u: a capture is there, and cannot be ended", tap->port,
			tap->queue);
}

static int
enable_tap(struct state_tap *tap, struct rte_ring *ring, struct rte_mempool *pool,
		const struct app *app, struct verdict *verdict)
{
	int error;

	tap->armed = 1;
	error = -enable(tap, ring, pool);
	if (error == 0)
		return 0;
	if (error == EEXIST && enable_anew(tap, ring, pool, app, verdict) == 0)
		return 0;
	/* One that timed out may still be obeyed. */
	tap->armed = error == ETIMEDOUT;
	if (error == ETIMEDOUT)
		return verdict_set(verdict, error,
				"the app does not answer: is it stopped, or is rte_pdump not initialized?");
	if (error != EEXIST)
		return verdict_set(verdict, error, "port %u (%.40s) queue %u: %s", tap->port,
				tap->device, tap->queue, strerror(error));
	return -1;
}

int
taps_enable(struct state *state, const struct arena *arena, const struct app *app,
		struct verdict *verdict)
{
	unsigned int i;

	for (i = 0; i < state->nb_taps; i++)
		if (enable_tap(&state->taps[i], arena_ring(arena, i), arena->pool, app, verdict) <
				0)
			return -1;
	return 0;
}

/* The app knows of a tap here and may not disable it; it says EEXIST to another one. */
static bool
probe(struct state_tap *tap, const struct arena *arena, unsigned int i)
{
	return enable(tap, arena_ring(arena, i), arena->pool) == 0 && disable(tap) == 0;
}

/*
 * The app says EINVAL when there is no such capture, but also when the queue or the device
 * is away for now. The callback is then still in its list, and called once they are back.
 */
static bool
is_gone(const struct state *state, unsigned int i)
{
	struct state_tap tap = state->taps[i];
	struct arena arena;

	if (!arena_find(&arena, state->zone, state->nb_taps))
		return true; /* Nothing that it could have been enabled with. */
	switch (callbacks_look(state, &tap, arena.pool)) {
	case CALLBACK_GONE:
		return true;
	case CALLBACK_UNKNOWN:
		return probe(&tap, &arena, i);
	default:
		return false;
	}
}

bool
taps_disable(struct state *state)
{
	struct state_tap *tap;
	unsigned int i, left = 0;
	int ret;

	for (i = 0; i < state->nb_taps; i++) {
		tap = &state->taps[i];
		if (!tap->armed)
			continue;
		ret = disable(tap);
		if (ret == 0 || (ret == -EINVAL && is_gone(state, i))) {
			tap->armed = 0;
			continue;
		}
		if (ret != -EINVAL) {
			complain("the app does not answer (%s); the next capture will clean up",
					strerror(-ret));
			return false;
		}
		if (left++ == 0)
			complain("port %u (%.64s) queue %u: the app does not have it any more, but keeps its "
				 "callback; the next capture cleans up, once the queue is back",
					tap->port, tap->device, tap->queue);
	}
	return left == 0;
}
