/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_ARENA_H
#define PDUMP_ARENA_H

/*
 * What the app writes its copies into: a pool of mbufs, and a ring for every tap, in the memory of
 * counters that the app does not use. It is in none of the app's lists (pools, rings, memzones).
 *
 * Only the app allocates from the pool, by the mempool ops at this index in its own table. In this
 * process the index may mean other ops, so mbufs are only freed, directly to the ring of the pool.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>
#include <rte_ring.h>

#include "counters.h"

/*
 * What holds the free mbufs of the pool, by its name in the app's table of mempool ops: a ring whose
 * threads do not wait for each other, so that no kill of ours can stop the app.
 */
#define ARENA_OPS "ring_mt_rts"

struct arena {
	struct counters_span spans[COUNTERS_SPANS];
	struct rte_mempool *pool;
	unsigned int nb_mbufs;
	unsigned int nb_rings;
	size_t ring_bytes;
	uint8_t *rings;
	struct rte_mbuf *held; /* A chain that is to be put back as soon as there is room. */
};

/* Find a place for everything, and write nothing. False if there is not enough room. */
bool arena_place(struct arena *arena, const struct counters_span spans[COUNTERS_SPANS],
		unsigned int nb_rings);

/* Build all of it. */
void arena_build(struct arena *arena, int ops_index);

struct rte_ring *arena_ring(const struct arena *arena, unsigned int i);

/* Put back mbufs, with all their segments. Never waits: what has no room is held. */
void arena_put(struct arena *arena, struct rte_mbuf **mbufs, unsigned int n);

/* Put back what is held, as far as there is room by now. */
void arena_put_held(struct arena *arena);

#endif /* PDUMP_ARENA_H */
