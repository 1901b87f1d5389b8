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

/* Memory that earlier arenas have kept. */
static struct line_set kept;

static bool
place(struct arena *arena, uint16_t first_port, unsigned int nb_rings)
{
	arena->nb_pieces = counters_pieces(&zone, first_port, &kept, arena->pieces);
	return arena_place(arena, nb_rings);
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
	counters_clear(&zone, FIRST_PORT, &kept);
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

/* Counts lines, each of which must be inside the memory of captures. */
static size_t
nb_lines(const struct line_set *set)
{
	const struct counters *counters = zone.addr;
	size_t line, nb = 0;

	for (line = 0; line < LINE_SET_LINES + 64; line++)
		nb += line_set_has(set, line);
	CHECK(!line_set_touches(set, counters, counters->rx[0], sizeof(counters->rx[0])));
	CHECK(!line_set_touches(set, counters, counters->tx[0], sizeof(counters->tx[0])));
	return nb;
}

/* Mbufs that the app has, in its caches or in the ring of a callback that it may call. */
struct in_app {
	struct rte_mbuf *mbufs[BULK];
	struct rte_ring *free, *tap;
};

/* An arena that is retired while the app has some mbufs. */
static void
retire(struct in_app *in_app, unsigned int mark)
{
	static struct arena arena;
	const size_t before = nb_lines(&kept);
	size_t all;
	unsigned int i;

	CHECK(place(&arena, FIRST_PORT, 2));
	arena_build(&arena, 0);
	in_app->free = arena.pool->pool_data;
	in_app->tap = arena_ring(&arena, 1);
	CHECK(rte_ring_dequeue_bulk(in_app->free, (void **)in_app->mbufs, BULK, NULL) == BULK);
	for (i = 0; i < BULK; i++)
		memset(rte_pktmbuf_mtod(in_app->mbufs[i], void *), (int)(mark + i), 64);
	/* Some wait for us, and come back. */
	CHECK(rte_ring_enqueue_bulk(in_app->tap, (void **)in_app->mbufs, BULK / 2, NULL) ==
			BULK / 2);
	arena_retire(&arena, zone.addr, &kept);
	line_set_add(&kept, zone.addr, in_app->tap, arena.ring_bytes);
	all = arena.nb_mbufs * (arena.pool->elt_size + arena.pool->header_size);
	fprintf(stderr, "kept of %u mbufs, caches of %u: %zu KiB\n", arena.nb_mbufs,
			arena.pool->cache_size,
			(nb_lines(&kept) - before) * RTE_CACHE_LINE_SIZE / 1024);
	CHECK(nb_lines(&kept) - before > BULK / 2);
	CHECK((nb_lines(&kept) - before) * RTE_CACHE_LINE_SIZE < all / 4);
	CHECK(rte_ring_empty(in_app->free) && rte_ring_empty(in_app->tap));
}

/* The callback is called again: it finds what it had, and an empty pool. */
static void
call_again(struct in_app *in_app, unsigned int mark)
{
	struct rte_mbuf *mbufs[BULK / 2];
	const uint8_t *data;
	unsigned int i, n = BULK / 2;

	CHECK(rte_ring_dequeue_burst(in_app->free, (void **)mbufs, n, NULL) == 0);
	for (i = n; i < BULK; i++) {
		data = rte_pktmbuf_mtod(in_app->mbufs[i], const uint8_t *);
		CHECK(data[0] == mark + i && data[63] == mark + i);
	}
	CHECK(rte_ring_enqueue_bulk(in_app->tap, (void **)&in_app->mbufs[n], n, NULL) == n);
	CHECK(rte_ring_dequeue_bulk(in_app->tap, (void **)mbufs, n, NULL) == n);
	CHECK(rte_ring_enqueue_bulk(in_app->free, (void **)mbufs, n, NULL) == n);
	CHECK(rte_ring_dequeue_bulk(in_app->free, (void **)mbufs, n, NULL) == n);
}

/* What an arena has kept is not touched by later ones, whatever these do. */
static void
test_retire(void)
{
	static const unsigned int marks[] = { 1, 50, 100, 150 };
	struct in_app in_app[RTE_DIM(marks)];
	struct arena arena;
	unsigned int i;

	for (i = 0; i < RTE_DIM(marks); i++)
		retire(&in_app[i], marks[i]);
	CHECK(place(&arena, FIRST_PORT, 4));
	arena_build(&arena, 0);
	fprintf(stderr, "beside %zu kept arenas: %u mbufs, caches of %u\n", RTE_DIM(marks),
			arena.nb_mbufs, arena.pool->cache_size);
	for (i = 0; i < RTE_DIM(marks); i++)
		call_again(&in_app[i], marks[i]);
	counters_clear(&zone, FIRST_PORT, &kept);
	for (i = 0; i < RTE_DIM(marks); i++)
		call_again(&in_app[i], marks[i]);
	/* Given back: all of it is as the app expects it. */
	counters_clear_lines(&zone, &kept);
	memset(&kept, 0, sizeof(kept));
	for (i = 0; i < sizeof(struct counters) - sizeof(void *); i++)
		CHECK(((const uint8_t *)zone.addr)[i] == 0);
	check_places(FIRST_PORT, 4);
}

/* What the app writes into the ring of the pool names no other memory. */
static void
test_hostile_mbufs(void)
{
	static struct arena arena;
	struct rte_ring *ring = build(&arena);
	uint8_t *const end = (uint8_t *)zone.addr + sizeof(struct counters);
	void *objects[] = { NULL, zone.addr, arena.pool, end, end + (1 << 20),
		(void *)UINTPTR_MAX };
	struct rte_mbuf *mbufs[RTE_DIM(objects)];

	CHECK(rte_ring_dequeue_bulk(ring, (void **)mbufs, RTE_DIM(objects), NULL) ==
			RTE_DIM(objects));
	CHECK(rte_ring_enqueue_bulk(ring, objects, RTE_DIM(objects), NULL) == RTE_DIM(objects));
	arena_retire(&arena, zone.addr, &kept);
	CHECK(line_set_touches(&kept, zone.addr, arena.pool, sizeof(*arena.pool)));
	CHECK(line_set_touches(&kept, zone.addr, mbufs[0], sizeof(*mbufs[0])));
	memset(&kept, 0, sizeof(kept));
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
	memset(zone.addr, 0, sizeof(struct counters));
	test_retire();
	test_hostile_mbufs();
	free(zone.addr);
	return 0;
}
