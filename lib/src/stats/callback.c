/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <rte_ethdev.h>
#include <rte_malloc.h>

#include "callback.h"
#include "reclaim.h"

bool
pmdscope_callback_add(struct pmdscope_queue *q)
{
	if (q->dir == PMDSCOPE_RX)
		q->callback = rte_eth_add_first_rx_callback(
				q->port, q->queue, pmdscope_burst_rx, q);
	else
		q->callback = rte_eth_add_tx_callback(q->port, q->queue, pmdscope_burst_tx, q);
	return q->callback != NULL;
}

bool
pmdscope_callback_remove(struct pmdscope_queue *q)
{
	int ret;

	if (q->callback == NULL)
		return true;
	if (q->dir == PMDSCOPE_RX)
		ret = rte_eth_remove_rx_callback(q->port, q->queue, q->callback);
	else
		ret = rte_eth_remove_tx_callback(q->port, q->queue, q->callback);
	if (ret != 0)
		return false;
	pmdscope_reclaim_later((void *)(uintptr_t)q->callback);
	q->callback = NULL;
	return true;
}

struct pmdscope_queue *
pmdscope_queue_create(uint16_t port, enum pmdscope_dir dir, uint16_t queue)
{
	struct pmdscope_queue *q = rte_zmalloc_socket("pmdscope_queue", sizeof(*q),
			RTE_CACHE_LINE_SIZE, rte_eth_dev_socket_id(port));

	if (q == NULL)
		q = rte_zmalloc("pmdscope_queue", sizeof(*q), RTE_CACHE_LINE_SIZE);
	if (q == NULL)
		return NULL;
	q->port = port;
	q->queue = queue;
	q->dir = dir;
	pmdscope_counters_reset(q);
	return q;
}
