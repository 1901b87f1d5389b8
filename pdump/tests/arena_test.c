/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * The memory of a capture, and the pool that an app takes mbufs from, also after a kill of the process
 * that returns them.
 */

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_mempool.h>
#include <rte_ring.h>

#include "arena.h"
#include "counters.h"
#include "test.h"

/* The first id that the app does not use. */
#define FIRST_PORT 6
#define MBUFS_MAX 8192U
#define BULK 16U
/* Objects that a cache of 32 may hold in any release, plus a bulk of 64 that is returned. */
#define CACHED (32 * 3 / 2 + 64)
/* A thread that waits for another one would not end. */
#define TIMEOUT_S 10

static struct rte_memzone zone;
/* Cache lines of the memzone in use. */
static bool used[sizeof(struct counters) / RTE_CACHE_LINE_SIZE + 1];

static bool
place(struct arena *arena, uint16_t first_port, unsigned int nb_rings)
{
	struct counters_span spans[COUNTERS_SPANS];

	counters_spans(&zone, first_port, spans);
	return arena_place(arena, spans, nb_rings);
}

static struct rte_ring *
build(struct arena *arena)
{
	CHECK(place(arena, FIRST_PORT, 1));
	arena_build(arena, 0);
	return arena->pool->pool_data;
}

static void
use(const void *begin, size_t bytes)
{
	const size_t at = (size_t)((const uint8_t *)begin - (const uint8_t *)zone.addr);
	size_t line;

	for (line = at / RTE_CACHE_LINE_SIZE; line * RTE_CACHE_LINE_SIZE < at + bytes; line++) {
		CHECK(line < RTE_DIM(used) && !used[line]);
		used[line] = true;
	}
}

/* The app uses the counters of its ports, and the pointer at the end. */
static void
use_counters(uint16_t first_port)
{
	const struct counters *counters = zone.addr;

	memset(used, 0, sizeof(used));
	use(counters->rx, first_port * sizeof(counters->rx[0]));
	use(counters->tx, first_port * sizeof(counters->tx[0]));
	use(&counters->zone, sizeof(counters->zone));
}

static void
use_pool(struct rte_mempool *mp)
{
	unsigned int lcore;

	use(mp, RTE_MEMPOOL_HEADER_SIZE(mp, 0));
	use(rte_mempool_get_priv(mp), mp->private_data_size);
	for (lcore = 0; mp->cache_size > 0 && lcore < RTE_MAX_LCORE; lcore++)
		use(&mp->local_cache[lcore],
				offsetof(struct rte_mempool_cache, objs) + CACHED * sizeof(void *));
}

/* No two parts overlap, and none overlaps counters that the app uses. */
static void
check_places(uint16_t first_port, unsigned int nb_rings)
{
	struct rte_mempool_objhdr *hdr;
	struct rte_ring *free_ring;
	struct arena arena;
	unsigned int i, nb = 0;

	CHECK(place(&arena, first_port, nb_rings));
	arena_build(&arena, 0);
	use_counters(first_port);
	use_pool(arena.pool);
	free_ring = arena.pool->pool_data;
	CHECK(free_ring->capacity >= arena.nb_mbufs);
	CHECK(rte_ring_count(free_ring) == arena.nb_mbufs);
	use(free_ring, (size_t)rte_ring_get_memsize(free_ring->size));
	for (i = 0; i < nb_rings; i++)
		use(arena_ring(&arena, i),
				(size_t)rte_ring_get_memsize(arena_ring(&arena, i)->size));
	STAILQ_FOREACH(hdr, &arena.pool->elt_list, next)
	{
		use((uint8_t *)(hdr + 1) - arena.pool->header_size,
				arena.pool->header_size + arena.pool->elt_size);
		nb++;
	}
	CHECK(nb == arena.nb_mbufs && arena.pool->populated_size == nb);
	fprintf(stderr, "ports from %u, %u rings of %u: %u mbufs, caches of %u\n", first_port,
			nb_rings, arena_ring(&arena, 0)->capacity, nb, arena.pool->cache_size);
}

static void
test_places(void)
{
	struct arena arena;

	check_places(FIRST_PORT, 1);
	check_places(FIRST_PORT, 4);
	check_places(FIRST_PORT, 128);
	check_places(FIRST_PORT, 1024);
	/* Without room for caches. */
	check_places(24, 4);
	check_places(29, 4);
	CHECK(!place(&arena, 30, 4));
	CHECK(!place(&arena, 24, 1024));
}

/* The memzone is held once, and given back unchanged. */
static void
test_counters(void)
{
	struct counters *counters = zone.addr;

	counters->zone = &zone;
	memset(counters->rx[0], 1, sizeof(counters->rx[0]));
	CHECK(!counters_held(&zone));
	CHECK(counters_hold(&zone) && counters_held(&zone) && counters->zone == NULL);
	CHECK(!counters_hold(&zone));
	counters->tx[FIRST_PORT][0].accepted = 1;
	counters_clear(&zone, FIRST_PORT);
	CHECK(counters->tx[FIRST_PORT][0].accepted == 0 && counters->rx[0][0].accepted != 0);
	counters_release(&zone);
	CHECK(counters->zone == &zone);
	/* A pointer that the app has stored meanwhile is kept. */
	counters->zone = &zone + 1;
	CHECK(!counters_hold(&zone));
	counters_release(&zone);
	CHECK(counters->zone == &zone + 1);
}

/* The ring of the pool after a producer was killed before it stored its mbufs. */
static void
kill_within_enqueue(struct rte_ring *ring, unsigned int n)
{
	ring->rts_prod.head.val.pos += n;
	ring->rts_prod.head.val.cnt++;
}

static void
test_chains(void)
{
	struct rte_mbuf *mbufs[MBUFS_MAX];
	struct arena arena;
	struct rte_ring *ring = build(&arena);
	const unsigned int nb = arena.nb_mbufs;
	unsigned int i;

	CHECK(rte_ring_dequeue_bulk(ring, (void **)mbufs, nb, NULL) == nb);
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

/* The app can still take the earlier mbufs, and put back others, without waiting. */
static void
test_kill(void)
{
	struct rte_mbuf *mbufs[MBUFS_MAX];
	struct arena arena;
	struct rte_ring *ring = build(&arena);
	const unsigned int nb = arena.nb_mbufs;
	unsigned int i;

	CHECK(rte_ring_dequeue_bulk(ring, (void **)mbufs, nb - 1, NULL) == nb - 1);
	kill_within_enqueue(ring, BULK);
	for (i = BULK; i + BULK < nb; i += BULK)
		CHECK(rte_ring_enqueue_bulk(ring, (void **)&mbufs[i], BULK, NULL) == BULK);
	CHECK(rte_ring_dequeue_bulk(ring, (void **)mbufs, 1, NULL) == 1);
	CHECK(rte_ring_dequeue_burst(ring, (void **)mbufs, BULK, NULL) == 0);
}

/* The ring of the pool while a thread of the app is interrupted during a dequeue. */
static void
interrupt_within_dequeue(struct rte_ring *ring, unsigned int n)
{
	ring->rts_cons.head.val.pos += n;
	ring->rts_cons.head.val.cnt++;
}

/* The thread continues. */
static void
continue_dequeue(struct rte_ring *ring)
{
	ring->rts_cons.tail.raw = ring->rts_cons.head.raw;
}

/* Others take and return more mbufs meanwhile than the ring has room for: none is lost. */
static void
test_interrupted_take(void)
{
	struct rte_mbuf *mbufs[MBUFS_MAX];
	struct arena arena;
	struct rte_ring *ring = build(&arena);
	const unsigned int nb = arena.nb_mbufs, room = ring->capacity - nb;
	const unsigned int rounds = room / BULK + 3, held = rounds * BULK - room;
	unsigned int i, n;

	interrupt_within_dequeue(ring, BULK);
	for (i = 0; i < rounds; i++) {
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
	CHECK(rte_ring_dequeue_burst(ring, (void **)mbufs, nb, NULL) == nb - BULK - held);
	continue_dequeue(ring);
	arena_put_held(&arena);
	CHECK(rte_ring_dequeue_burst(ring, (void **)mbufs, nb, NULL) == held);
	for (i = 0; i < held; i++)
		CHECK(mbufs[i]->nb_segs == 1 && mbufs[i]->next == NULL);
}

int
main(void)
{
	zone.len = RTE_ALIGN_CEIL(sizeof(struct counters), RTE_CACHE_LINE_SIZE);
	zone.addr = aligned_alloc(RTE_CACHE_LINE_SIZE, zone.len);
	CHECK(zone.addr != NULL);
	alarm(TIMEOUT_S);
	test_places();
	test_counters();
	test_chains();
	test_kill();
	test_interrupted_take();
	free(zone.addr);
	return 0;
}
