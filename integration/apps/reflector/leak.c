/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <pmdscope.h>

#include "leak.h"

/*
 * The bug: "++first" instead of "first++". The first packet that TX refuses is never freed. While
 * TX accepts whole bursts there is no error, so tests do not find it.
 */
void
leak_free_unsent(struct rte_mbuf **pkts, uint16_t first, uint16_t nb_pkts)
{
	while (++first < nb_pkts)
		rte_pktmbuf_free(pkts[first]);
}

uint16_t
leak_send(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts)
{
	const uint16_t sent = pmdscope_tx_burst(port, queue, pkts, nb_pkts);

	leak_free_unsent(pkts, sent, nb_pkts);
	return sent;
}
