/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* The pool that an app takes mbufs from, also after a kill of the process that returns them. */

#include <stdlib.h>
#include <unistd.h>

#include <rte_mempool.h>
#include <rte_ring.h>

#include "arena.h"
#include "test.h"

#define NB_MBUFS 511U
#define ZONE_BYTES (4U << 20)
#define BULK 16U
/* A thread that waits for another one does not end by itself. */
#define TIMEOUT_S 10

static struct rte_memzone zone;

static struct rte_ring *
build(struct arena *arena)
{
	*arena = (struct arena){ .zone = &zone, .nb_mbufs = NB_MBUFS, .nb_rings = 1 };
	arena_build(arena, 0);
	return arena->pool->pool_data;
}

/* The ring of the pool as a producer leaves it that is killed before its mbufs are there. */
static void
kill_within_enqueue(struct rte_ring *ring, unsigned int n)
{
	ring->rts_prod.head.val.pos += n;
	ring->rts_prod.head.val.cnt++;
}

static void
test_chains(void)
{
	struct rte_mbuf *mbufs[NB_MBUFS];
	struct arena arena;
	struct rte_ring *ring = build(&arena);
	unsigned int i;

	CHECK(rte_ring_dequeue_bulk(ring, (void **)mbufs, NB_MBUFS, NULL) == NB_MBUFS);
	CHECK(rte_ring_empty(ring));
	/* Three segments, and packets of one. */
	mbufs[0]->nb_segs = 3;
	mbufs[0]->next = mbufs[1];
	mbufs[1]->next = mbufs[2];
	mbufs[1] = mbufs[3];
	arena_put(&arena, mbufs, 2);
	CHECK(rte_ring_count(ring) == 4);
	CHECK(rte_ring_dequeue_bulk(ring, (void **)mbufs, 4, NULL) == 4);
	for (i = 0; i < 4; i++)
		CHECK(mbufs[i]->nb_segs == 1 && mbufs[i]->next == NULL);
}

/* The app still takes what was there, and puts back what it wants, without waiting. */
static void
test_kill(void)
{
	struct rte_mbuf *mbufs[NB_MBUFS];
	struct arena arena;
	struct rte_ring *ring = build(&arena);
	unsigned int i;

	CHECK(rte_ring_dequeue_bulk(ring, (void **)mbufs, NB_MBUFS - 1, NULL) == NB_MBUFS - 1);
	kill_within_enqueue(ring, BULK);
	for (i = BULK; i + BULK < NB_MBUFS; i += BULK)
		CHECK(rte_ring_enqueue_bulk(ring, (void **)&mbufs[i], BULK, NULL) == BULK);
	CHECK(rte_ring_dequeue_bulk(ring, (void **)mbufs, 1, NULL) == 1);
	CHECK(rte_ring_dequeue_burst(ring, (void **)mbufs, BULK, NULL) == 0);
}

/* The ring of the pool as a thread of the app leaves it that is interrupted while it takes some. */
static void
interrupt_within_dequeue(struct rte_ring *ring, unsigned int n)
{
	ring->rts_cons.head.val.pos += n;
	ring->rts_cons.head.val.cnt++;
}

/* It goes on. */
static void
continue_dequeue(struct rte_ring *ring)
{
	ring->rts_cons.tail.raw = ring->rts_cons.head.raw;
}

/* Others take and return more meanwhile than the ring has room for: nothing is lost. */
static void
test_interrupted_take(void)
{
	struct rte_mbuf *mbufs[NB_MBUFS];
	struct arena arena;
	struct rte_ring *ring = build(&arena);
	unsigned int i, n;

	interrupt_within_dequeue(ring, BULK);
	for (i = 0; i < 3; i++) {
		CHECK(rte_ring_dequeue_bulk(ring, (void **)mbufs, BULK, NULL) == BULK);
		/* In chains of two. */
		for (n = 0; n < BULK; n += 2) {
			mbufs[n]->nb_segs = 2;
			mbufs[n]->next = mbufs[n + 1];
			mbufs[n / 2] = mbufs[n];
		}
		arena_put(&arena, mbufs, BULK / 2);
		arena_put_held(&arena);
	}
	CHECK(rte_ring_dequeue_burst(ring, (void **)mbufs, NB_MBUFS, NULL) == NB_MBUFS - 4 * BULK);
	continue_dequeue(ring);
	arena_put_held(&arena);
	CHECK(rte_ring_dequeue_burst(ring, (void **)mbufs, NB_MBUFS, NULL) == 3 * BULK);
	for (i = 0; i < 3 * BULK; i++)
		CHECK(mbufs[i]->nb_segs == 1 && mbufs[i]->next == NULL);
}

int
main(void)
{
	zone.addr = aligned_alloc(RTE_CACHE_LINE_SIZE, ZONE_BYTES);
	zone.len = ZONE_BYTES;
	CHECK(zone.addr != NULL);
	alarm(TIMEOUT_S);
	test_chains();
	test_kill();
	test_interrupted_take();
	free(zone.addr);
	return 0;
}
