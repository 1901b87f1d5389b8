/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <rte_lcore.h>

#include "burst.h"
#include "lcore.h"
#include "progress.h"
#include "queue.h"

/* A poller that has not polled for longer has ended its loop. */
#define ENDED_MS 30000

struct poller {
	uint64_t polls;
	uint64_t moved_ms; /* 0: has never polled. */
};

static struct poller lcores[RTE_MAX_LCORE];
static struct poller queues;

void
pmdscope_progress_start(void)
{
	memset(lcores, 0, sizeof(lcores));
	queues = (struct poller){ 0 };
}

/* False if it has stopped polling but has not ended. */
static bool
moves(struct poller *poller, uint64_t polls, uint64_t now_ms)
{
	const bool moved = polls != poller->polls;

	poller->polls = polls;
	if (moved)
		poller->moved_ms = now_ms;
	return moved || poller->moved_ms == 0 || now_ms - poller->moved_ms >= ENDED_MS;
}

/* Without pmdscope_poll(), polls of any receive queue count as progress of all pollers. */
static uint64_t
count_queue_polls(void)
{
	const struct pmdscope_queue *q;
	uint64_t polls = 0;
	unsigned int i;

	for (i = 0; (q = pmdscope_queue_row(i)) != NULL; i++)
		polls += pmdscope_queue_sums(q).polls;
	return polls;
}

bool
pmdscope_progress_made(uint64_t now_ms)
{
	bool registered = false, all = true;
	unsigned int i;

	for (i = 0; i < RTE_MAX_LCORE; i++) {
		const struct pmdscope_lcore *lc = &pmdscope_lcores[i];

		if (__atomic_load_n(&lc->tid, __ATOMIC_RELAXED) == 0)
			continue;
		registered = true;
		all &= moves(&lcores[i], __atomic_load_n(&lc->polls, __ATOMIC_RELAXED), now_ms) ||
		       pmdscope_lcore_is_idle(i);
	}
	return registered ? all : moves(&queues, count_queue_polls(), now_ms);
}
