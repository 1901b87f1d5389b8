/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_ARENA_H
#define PDUMP_ARENA_H

/*
 * The memory that the app writes its copies to: a pool of mbufs, and a ring for every tap, in the
 * memory of counters that the app does not use. It is in none of the app's lists (pools, rings,
 * memzones).
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
 * Name of the mempool ops of the pool in the app's table: a ring whose threads do not wait for each
 * other, so that the app continues if a process of ours is killed.
 */
#define ARENA_OPS "ring_mt_rts"

struct arena {
	struct counters_span pieces[COUNTERS_PIECES];
	unsigned int nb_pieces;
	struct rte_mempool *pool;
	unsigned int nb_mbufs;
	unsigned int nb_rings;
	size_t ring_bytes;
	uint8_t *rings;
	struct rte_mbuf *held; /* A chain that waits for room in the ring. */
};

/*
 * Find a place for each part in arena->pieces, without writing. False if there is not enough room.
 */
bool arena_place(struct arena *arena, unsigned int nb_rings);

/* Build all parts. */
void arena_build(struct arena *arena, int ops_index);

struct rte_ring *arena_ring(const struct arena *arena, unsigned int i);

/* Free mbufs, with all their segments. Never waits: mbufs that find no room are held. */
void arena_put(struct arena *arena, struct rte_mbuf **mbufs, unsigned int n);

/* Free held mbufs, as far as there is room now. */
void arena_put_held(struct arena *arena);

/*
 * Take all mbufs out of the arena that no thread of the app has, and add the memory of all others,
 * and of the pool, to `kept`, for counters at `base`. A callback that the app still has, or will
 * call, works on: it finds the pool empty, as soon as its caches are. Rings of taps that such
 * callbacks have must be kept as well. Threads of the app may use the pool meanwhile.
 */
void arena_retire(struct arena *arena, const void *base, struct line_set *kept);

#endif /* PDUMP_ARENA_H */
