/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <rte_ethdev.h>

#include "app_memory.h"
#include "callbacks.h"
#include "pmdscope_ring.h"

/* Maximum length of a list of callbacks; a longer one is not valid. */
#define LIST_MAX 64

/* Layout of struct rte_eth_rxtx_callback in ethdev_driver.h. */
struct callback {
	uintptr_t next;
	uintptr_t fn;
	uintptr_t param;
};

/* Beginning of the parameter of a pdump callback. */
struct pdump_callback {
	uintptr_t ring;
	uintptr_t pool;
	uintptr_t callback;
};

const struct app_symbol callbacks_symbol = { "rte_eth_fp_ops",
	RTE_MAX_ETHPORTS * sizeof(struct rte_eth_fp_ops) };

/* Search the list of a queue for the callback with our pool. */
static enum callback_fate
find(uintptr_t list, const struct rte_mempool *pool)
{
	struct pdump_callback pdump;
	struct callback callback;
	uintptr_t head;
	unsigned int i;

	if (list == 0 || !app_memory_read(list, &head, sizeof(head)))
		return CALLBACK_UNKNOWN;
	for (i = 0; head != 0 && i < LIST_MAX; i++, head = callback.next) {
		if (!app_memory_read(head, &callback, sizeof(callback)))
			return CALLBACK_UNKNOWN;
		if (app_memory_read(callback.param, &pdump, sizeof(pdump)) &&
				pdump.pool == (uintptr_t)pool && pdump.callback == head)
			return CALLBACK_LINKED;
	}
	return head == 0 ? CALLBACK_GONE : CALLBACK_UNKNOWN;
}

/* The table that the app's data path reads. */
static const struct rte_eth_fp_ops *
read_ops(void)
{
	static struct rte_eth_fp_ops ops[RTE_MAX_ETHPORTS];
	const uintptr_t table = app_memory_symbol(callbacks_symbol.name, sizeof(ops));

	return table != 0 && app_memory_read(table, ops, sizeof(ops)) ? ops : NULL;
}

/* A stopped port has one empty list for both directions, which is not its own. */
static uintptr_t
list_of(const struct rte_eth_fp_ops *ops, const struct state_tap *tap)
{
	struct state_tap own = *tap; /* It may change. */
	uintptr_t rx, tx, lists;

	if (!state_tap_valid(&own))
		return 0;
	rx = (uintptr_t)ops[own.port].rxq.clbk;
	tx = (uintptr_t)ops[own.port].txq.clbk;
	lists = own.dir == PMDSCOPE_DIR_RX ? rx : tx;
	return lists == 0 || rx == tx ? 0 : lists + own.queue * sizeof(uintptr_t);
}

void
callbacks_note(struct state *state)
{
	const struct rte_eth_fp_ops *ops = read_ops();
	unsigned int i;

	for (i = 0; ops != NULL && i < state_nb_taps(state); i++)
		if (state->taps[i].list == 0)
			state->taps[i].list = list_of(ops, &state->taps[i]);
}

enum callback_fate
callbacks_look(const struct state_tap *tap, const struct rte_mempool *pool)
{
	const struct rte_eth_fp_ops *ops;
	uintptr_t list = tap->list;

	if (list == 0) {
		ops = read_ops();
		list = ops != NULL ? list_of(ops, tap) : 0;
	}
	return find(list, pool);
}
