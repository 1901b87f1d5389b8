/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include "leak.h"

/*
 * The bug: "++first" where "first++" was meant. The packet that TX refused first is never
 * freed. Nothing is wrong while TX takes whole bursts, which is why tests do not find it.
 */
void
leak_free_unsent(struct rte_mbuf **pkts, uint16_t first, uint16_t nb_pkts)
{
	while (++first < nb_pkts)
		rte_pktmbuf_free(pkts[first]);
}
