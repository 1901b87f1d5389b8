/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <rte_log.h>
#include <rte_pdump.h>

#include "arena.h"
#include "attach.h"

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

static int
disable(struct state_tap *tap)
{
	rte_errno = 0;
	if (rte_pdump_disable_by_deviceid(tap->device, tap->queue, pdump_flag(tap)) == 0)
		return 0;
	return rte_errno != 0 ? -rte_errno : -EIO;
}

static int
enable(struct state_tap *tap, struct rte_ring *ring, struct rte_mempool *pool)
{
	rte_errno = 0;
	if (rte_pdump_enable_by_deviceid(
			    tap->device, tap->queue, pdump_flag(tap), ring, pool, NULL) == 0)
		return 0;
	return rte_errno != 0 ? -rte_errno : -EIO;
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

bool
taps_disable(struct state *state)
{
	unsigned int i;
	int ret;

	for (i = 0; i < state->nb_taps; i++) {
		if (!state->taps[i].armed)
			continue;
		ret = disable(&state->taps[i]);
		/* EINVAL: there is no such capture (any more), or no such port. */
		if (ret < 0 && ret != -EINVAL)
			return false;
		state->taps[i].armed = 0;
	}
	return true;
}
