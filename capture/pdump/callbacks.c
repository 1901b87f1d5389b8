/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <rte_ethdev.h>
#include <rte_malloc.h>

#include "app_memory.h"
#include "callbacks.h"
#include "pmdscope_ring.h"

/* More callbacks than a queue has; a list that is longer is not one. */
#define LIST_MAX 64

/* As struct rte_eth_rxtx_callback in ethdev_driver.h. */
struct callback {
	uintptr_t next;
	uintptr_t fn;
	uintptr_t param;
};

/* What the parameter of a callback of pdump begins with. */
struct pdump_callback {
	uintptr_t ring;
	uintptr_t pool;
	uintptr_t callback;
};

/* In the list of a queue, the callback that knows our ring, our pool and itself. */
static uintptr_t
find(pid_t pid, uintptr_t head, const struct rte_ring *ring, const struct rte_mempool *pool)
{
	struct pdump_callback pdump;
	struct callback callback;
	unsigned int i;

	for (i = 0; head != 0 && i < LIST_MAX; i++, head = callback.next) {
		if (!app_memory_read(pid, head, &callback, sizeof(callback)))
			return 0;
		if (app_memory_read(pid, callback.param, &pdump, sizeof(pdump)) &&
				pdump.ring == (uintptr_t)ring && pdump.pool == (uintptr_t)pool &&
				pdump.callback == head)
			return head;
	}
	return 0;
}

void
callbacks_note(struct state *state, const struct arena *arena)
{
	static struct rte_eth_fp_ops ops[RTE_MAX_ETHPORTS];
	const uintptr_t table = app_memory_symbol(state->app_pid, "rte_eth_fp_ops", sizeof(ops));
	struct state_tap *tap;
	uintptr_t list, head;
	unsigned int i;

	if (table == 0 || !app_memory_read(state->app_pid, table, ops, sizeof(ops)))
		return;
	for (i = 0; i < state->nb_taps; i++) {
		tap = &state->taps[i];
		list = (uintptr_t)(tap->dir == PMDSCOPE_DIR_RX ? ops[tap->port].rxq.clbk
							       : ops[tap->port].txq.clbk);
		if (list != 0 && app_memory_read(state->app_pid, list + tap->queue * sizeof(head),
						 &head, sizeof(head)))
			tap->callback = find(
					state->app_pid, head, arena_ring(arena, i), arena->pool);
	}
}

void
callbacks_free(struct state *state)
{
	struct state_tap *tap;
	unsigned int i;
	void *callback;

	for (i = 0; i < state->nb_taps; i++) {
		tap = &state->taps[i];
		callback = (void *)(uintptr_t)tap->callback;
		tap->callback = 0; /* Rather lost than freed twice. */
		if (!tap->armed)
			rte_free(callback);
	}
}
