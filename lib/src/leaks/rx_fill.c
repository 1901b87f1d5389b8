/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <rte_common.h>

#include "rx_fill.h"

/* A queue with traffic turns over within this many walks. */
#define FLOW_WALKS 8
/* A queue that is refilled in batches may be this far from full. */
#define SLACK 512
/* The minimum is taken over two periods of this many walks. */
#define PERIOD_WALKS 32

static void
restart(struct pmdscope_rx_fill *fill, const struct pmdscope_proof *proof)
{
	fill->newest_queue = proof->rx_born;
	fill->capacity = proof->rx_capacity;
	fill->from_walk = proof->walk;
	fill->last_walk = 0;
	fill->least = UINT32_MAX;
	fill->least_before = UINT32_MAX;
}

/* Packets flow through all queues, and the pool has had free mbufs for all of them since then. */
static bool
are_full(const struct pmdscope_rx_fill *fill, const struct pmdscope_proof *proof)
{
	return proof->rx_turned + FLOW_WALKS >= proof->walk &&
	       proof->rx_turned > RTE_MAX(proof->rx_born, fill->empty_walk);
}

/*
 * The minimum of many walks, as mbufs that the app is about to lose are in use as well. Of two
 * walks in a row the larger number counts: during one of them a queue may just have been set up
 * again.
 */
void
pmdscope_rx_fill_note(struct pmdscope_rx_fill *fill, const struct pmdscope_proof *proof,
		const struct pmdscope_pool_counts *counts, bool is_empty)
{
	if (fill->newest_queue != proof->rx_born || fill->capacity != proof->rx_capacity ||
			fill->from_walk == 0)
		restart(fill, proof);
	if (proof->walk - fill->from_walk >= PERIOD_WALKS && fill->least != UINT32_MAX) {
		fill->from_walk = proof->walk;
		fill->least_before = fill->least;
		fill->least = UINT32_MAX;
	}
	if (is_empty)
		fill->empty_walk = proof->walk;
	if (is_empty || !are_full(fill, proof))
		return;
	if (fill->last_walk + 1 == proof->walk)
		fill->least = RTE_MIN(fill->least, RTE_MAX(fill->last_in_use, counts->in_use));
	fill->last_walk = proof->walk;
	fill->last_in_use = counts->in_use;
}

uint32_t
pmdscope_rx_fill_most(const struct pmdscope_rx_fill *fill)
{
	const uint32_t least = RTE_MIN(fill->least, fill->least_before);

	return fill->from_walk == 0 || least > UINT32_MAX - SLACK ? UINT32_MAX : least + SLACK;
}
