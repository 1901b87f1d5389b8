/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdbool.h>
#include <string.h>

#include "returned.h"

static bool
may_be_sent(const struct rte_mbuf *m)
{
	return RTE_MBUF_DIRECT(m) && m->nb_segs == 1 && rte_mbuf_refcnt_read(m) == 1;
}

void
returned_keep(struct returned *returned, struct rte_mbuf **pkts, uint16_t n)
{
	uint16_t i;

	for (i = 0; i < n && returned->nb < RETURNED_MAX; i++) {
		if (unlikely(!may_be_sent(pkts[i]))) {
			rte_pktmbuf_free(pkts[i]);
			continue;
		}
		rte_pktmbuf_reset(pkts[i]);
		returned->mbufs[returned->nb++] = pkts[i];
	}
	rte_pktmbuf_free_bulk(&pkts[i], n - i);
}

uint16_t
returned_take(struct returned *returned, struct rte_mbuf **to, uint16_t n)
{
	const uint16_t taken = RTE_MIN(n, returned->nb);

	returned->nb -= taken;
	memcpy(to, &returned->mbufs[returned->nb], taken * sizeof(*to));
	return taken;
}

void
returned_free(struct returned *returned)
{
	rte_pktmbuf_free_bulk(returned->mbufs, returned->nb);
	returned->nb = 0;
}
