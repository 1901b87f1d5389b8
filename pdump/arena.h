/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_ARENA_H
#define PDUMP_ARENA_H

/*
 * The memory that the app writes its copies into: one memzone with a pool of mbufs and a ring for
 * every tap. It is in none of the app's lists (pools, rings, stacks), so it needs one lock of the
 * app, once to allocate and once to free.
 *
 * Only the app allocates from the pool, by the mempool ops at this index in its own table. In this
 * process the index may mean other ops, so mbufs are only freed, directly to the ring of the pool.
 */

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>
#include <rte_memzone.h>
#include <rte_ring.h>

/*
 * What holds the free mbufs of the pool, by its name in the app's table of mempool ops: a ring whose
 * threads do not wait for each other, so that no kill of ours can stop the app.
 */
#define ARENA_OPS "ring_mt_rts"

struct arena {
	const struct rte_memzone *zone;
	struct rte_mempool *pool;
	unsigned int nb_mbufs;
	unsigned int nb_rings;
	size_t ring_bytes;
	uint8_t *rings;
	struct rte_mbuf *held; /* A chain that is to be put back as soon as there is room. */
	bool has_grown;	       /* The app got hugepages from the system for it. */
	bool is_kept;	       /* And keeps them when it is freed. */
};

/*
 * Reserve the memzone: for at most nb_mbufs mbufs, fewer when memory is short. False without
 * memory, with rte_errno.
 */
bool
arena_reserve(struct arena *arena, const char *name, unsigned int nb_mbufs, unsigned int nb_rings);

/* Build all that is in it. */
void arena_build(struct arena *arena, int ops_index);

struct rte_ring *arena_ring(const struct arena *arena, unsigned int i);

/* Put back mbufs, with all their segments. Never waits: what has no room is held. */
void arena_put(struct arena *arena, struct rte_mbuf **mbufs, unsigned int n);

/* Put back what is held, as far as there is room by now. */
void arena_put_held(struct arena *arena);

/* One that was made before, maybe by another process; false when there is none. */
bool arena_find(struct arena *arena, const char *name, unsigned int nb_rings);

/* Fill the memzone with zeros, which makes it shorter to free. Nobody may use it any more. */
void arena_clear(const struct arena *arena);

/* Free its memzone. False when the app refuses. */
bool arena_free(const struct arena *arena);

#endif /* PDUMP_ARENA_H */
