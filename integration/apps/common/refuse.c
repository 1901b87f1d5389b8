/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <rte_errno.h>
#include <rte_ethdev.h>

#include "refuse.h"

__thread bool refuse_next;
__thread bool refuse_all;

static uint16_t
refuse_some(uint16_t port, uint16_t queue, struct rte_mbuf **pkts, uint16_t nb_pkts, void *arg)
{
	(void)port;
	(void)queue;
	(void)pkts;
	(void)arg;
	if (unlikely(refuse_all))
		return 0;
	if (likely(!refuse_next) || nb_pkts == 0)
		return nb_pkts;
	refuse_next = false;
	return nb_pkts - 1;
}

int
refuse_install(const struct lanes *lanes)
{
	unsigned int i;

	for (i = 0; i < lanes->nb_lanes; i++)
		if (rte_eth_add_tx_callback(lanes->lane[i].port, lanes->lane[i].queue, refuse_some,
				    NULL) == NULL)
			return -rte_errno;
	return 0;
}
