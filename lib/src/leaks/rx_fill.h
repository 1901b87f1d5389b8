/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_RX_FILL_H
#define PMDSCOPE_RX_FILL_H

/*
 * The maximum number of mbufs of a pool that its receive queues hold. Receive queues with traffic
 * are full while the pool has free mbufs; they then hold at most the mbufs in use. Control thread.
 */

#include <stdbool.h>
#include <stdint.h>

#include "pool.h"
#include "turnover.h"

/* Of one pool; zeroed at first. */
struct pmdscope_rx_fill {
	/* Number of the newest queue that these values include. */
	uint32_t newest_queue;
	uint64_t capacity;
	uint32_t empty_walk; /* Last walk that found the pool without free mbufs. */
	/* Mbufs in use at the last walk, if known. */
	uint32_t last_walk;
	uint32_t last_in_use;
	/* Minimum in use since from_walk, and in the period before; UINT32_MAX if not known. */
	uint32_t from_walk;
	uint32_t least;
	uint32_t least_before;
};

/* Once per walk. is_empty: so few mbufs are free that queues may not get enough. */
void pmdscope_rx_fill_note(struct pmdscope_rx_fill *fill, const struct pmdscope_proof *proof,
		const struct pmdscope_pool_counts *counts, bool is_empty);

/* UINT32_MAX when it is not known. */
uint32_t pmdscope_rx_fill_most(const struct pmdscope_rx_fill *fill);

#endif /* PMDSCOPE_RX_FILL_H */
