/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef LEAK_H
#define LEAK_H

/* A packet leak on demand, of the kind that real applications have. */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

struct leak {
	uint32_t every; /* Leak in one burst of so many; 0: never. */
	uint32_t bursts;
};

/* Count a burst that holds packets. True if this is the one to leak from. */
static inline bool
leak_due(struct leak *leak)
{
	if (leak->every == 0 || ++leak->bursts < leak->every)
		return false;
	leak->bursts = 0;
	return true;
}

/* Free the packets from first up to nb_pkts, all but the first of them. */
void leak_free_unsent(struct rte_mbuf **pkts, uint16_t first, uint16_t nb_pkts);

#endif /* LEAK_H */
