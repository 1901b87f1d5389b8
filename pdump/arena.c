/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdio.h>
#include <string.h>

#include <rte_branch_prediction.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include <rte_prefetch.h>
#include <rte_ring.h>

#include "arena.h"

/* Name of the objects; it is never looked up. */
#define NAME "pmdscope"
/* Per lcore of the app, so that it accesses the pool once for many packets. */
#define CACHE_SIZE 32
/* As in rte_mempool.c; the capacity of a cache is part of its contract with ops. */
#define CACHE_FLUSHTHRESH(size) ((size)*3 / 2)
/*
 * Bytes of a cache that any release of the app uses: its capacity, and a bulk of 64 that
 * rte_pktmbuf_free_bulk() returns, with a reserve.
 */
#define CACHE_BYTES (offsetof(struct rte_mempool_cache, objs) + 192 * sizeof(void *))
/* Data in an mbuf: a frame of 1518 bytes, with tags. More mbufs for each packet cost the app more. */
#define DATA_BYTES 1536
#define MBUFS_MIN 192U
/* Slots of a ring: at least two bursts. */
#define SLOTS_MIN 64U
/* Segments that are freed at a time. */
#define PUT_MAX 512
/* Packets to prefetch ahead of their use. */
#define PUT_AHEAD 16

/* Addresses and sizes of all parts. */
struct layout {
	struct rte_mempool *pool;
	unsigned int cache_size;
	struct rte_mempool_objsz object;
	size_t object_bytes;
	uint8_t *free;
	unsigned int free_slots;
	uint8_t *rings;
	unsigned int slots;
	struct counters_span rest[COUNTERS_PIECES]; /* Left for mbufs. */
	unsigned int nb_rest;
};

static size_t
span_bytes(const struct counters_span *span)
{
	return span->end > span->begin ? (size_t)(span->end - span->begin) : 0;
}

static uint8_t *
take(struct counters_span *span, size_t bytes)
{
	uint8_t *begin = span->begin;

	span->begin += RTE_ALIGN_CEIL(bytes, RTE_CACHE_LINE_SIZE);
	return begin;
}

static size_t
ring_bytes(unsigned int slots)
{
	return RTE_ALIGN_CEIL((size_t)rte_ring_get_memsize(slots), RTE_CACHE_LINE_SIZE);
}

/* The first piece with so much room; NULL if there is none. */
static struct counters_span *
find_room(struct layout *l, size_t bytes)
{
	unsigned int i;

	for (i = 0; i < l->nb_rest; i++)
		if (span_bytes(&l->rest[i]) >= bytes)
			return &l->rest[i];
	return NULL;
}

static struct counters_span *
find_largest(struct layout *l)
{
	struct counters_span *largest = &l->rest[0];
	unsigned int i;

	for (i = 1; i < l->nb_rest; i++)
		if (span_bytes(&l->rest[i]) > span_bytes(largest))
			largest = &l->rest[i];
	return largest;
}

static size_t
private_bytes(void)
{
	return RTE_ALIGN_CEIL(sizeof(struct rte_pktmbuf_pool_private), RTE_MEMPOOL_ALIGN);
}

/* A pool of mbufs, its caches if there is room for them, followed by its private data. */
static bool
place_pool(struct layout *l)
{
	const size_t with = RTE_MEMPOOL_HEADER_SIZE(l->pool, CACHE_SIZE) + private_bytes();
	const size_t without = RTE_MEMPOOL_HEADER_SIZE(l->pool, 0) + private_bytes();
	struct counters_span *piece = find_room(l, with);

	l->cache_size = piece != NULL ? CACHE_SIZE : 0;
	if (piece == NULL)
		piece = find_room(l, without);
	if (piece == NULL)
		return false;
	l->pool = (struct rte_mempool *)take(piece, l->cache_size > 0 ? with : without);
	return true;
}

/*
 * The ring of the pool has room for all mbufs that fit into the arena. So do the rings of taps, if
 * they take at most a quarter of the remaining memory of their piece; otherwise they are shorter,
 * and the app counts what it cannot enqueue.
 */
static bool
place_rings(struct layout *l, size_t arena_bytes, unsigned int nb_rings)
{
	struct counters_span *piece = find_largest(l);
	size_t room;

	l->free_slots = rte_align32pow2((uint32_t)(arena_bytes / l->object_bytes) + 1);
	l->free = take(piece, ring_bytes(l->free_slots));
	room = span_bytes(piece);
	for (l->slots = l->free_slots; l->slots > SLOTS_MIN; l->slots /= 2)
		if (nb_rings * ring_bytes(l->slots) <= room / 4)
			break;
	l->rings = take(piece, nb_rings * ring_bytes(l->slots));
	return nb_rings * ring_bytes(l->slots) <= room;
}

static bool
lay_out(struct layout *l, const struct arena *arena, unsigned int nb_rings)
{
	size_t bytes = 0;
	unsigned int i;

	l->nb_rest = arena->nb_pieces;
	memcpy(l->rest, arena->pieces, l->nb_rest * sizeof(l->rest[0]));
	for (i = 0; i < l->nb_rest; i++)
		bytes += span_bytes(&l->rest[i]);
	l->object_bytes = rte_mempool_calc_obj_size(
			sizeof(struct rte_mbuf) + RTE_PKTMBUF_HEADROOM + DATA_BYTES,
			RTE_MEMPOOL_F_NO_SPREAD, &l->object);
	return place_pool(l) && place_rings(l, bytes, nb_rings);
}

/* The part of a cache that its lcore never uses, as it is meant for much larger caches. */
static struct counters_span
unused_of_cache(const struct layout *l, unsigned int lcore)
{
	struct rte_mempool_cache *caches =
			RTE_PTR_ADD(l->pool, RTE_MEMPOOL_HEADER_SIZE(l->pool, 0));
	struct counters_span span = {
		.begin = (uint8_t *)&caches[lcore] +
			 RTE_ALIGN_CEIL(CACHE_BYTES, RTE_CACHE_LINE_SIZE),
		.end = (uint8_t *)&caches[lcore + 1],
	};

	return span;
}

/* The i-th piece of memory for mbufs; false after the last one. */
static bool
find_piece(const struct layout *l, unsigned int i, struct counters_span *piece)
{
	const unsigned int nb_caches = l->cache_size > 0 ? RTE_MAX_LCORE : 0;

	if (i < nb_caches)
		*piece = unused_of_cache(l, i);
	else if (i < nb_caches + l->nb_rest)
		*piece = l->rest[i - nb_caches];
	else
		return false;
	return true;
}

static unsigned int
count_mbufs(const struct layout *l)
{
	struct counters_span piece;
	unsigned int i, nb = 0;

	for (i = 0; find_piece(l, i, &piece); i++)
		nb += (unsigned int)(span_bytes(&piece) / l->object_bytes);
	return nb;
}

bool
arena_place(struct arena *arena, unsigned int nb_rings)
{
	struct layout l = { 0 };

	if (arena->nb_pieces == 0 || !lay_out(&l, arena, nb_rings) || count_mbufs(&l) < MBUFS_MIN)
		return false;
	arena->pool = l.pool;
	arena->nb_mbufs = count_mbufs(&l);
	arena->nb_rings = nb_rings;
	arena->ring_bytes = ring_bytes(l.slots);
	arena->rings = l.rings;
	arena->held = NULL;
	return true;
}

/*
 * In this mode a thread waits only if another one is too far behind, and here there is no such
 * limit. If a thread is killed during an enqueue, the mbufs that it and later threads put back are
 * lost, but no thread waits.
 */
static void
init_free(struct rte_ring *ring, unsigned int slots)
{
	rte_ring_init(ring, NAME, slots, RING_F_MP_RTS_ENQ | RING_F_MC_RTS_DEQ);
	rte_ring_set_prod_htd_max(ring, UINT32_MAX);
	rte_ring_set_cons_htd_max(ring, UINT32_MAX);
}

static void
init_pool(struct rte_mempool *mp, const struct layout *l, int ops_index, unsigned int nb_mbufs)
{
	const struct rte_pktmbuf_pool_private private = {
		.mbuf_data_room_size = RTE_PKTMBUF_HEADROOM + DATA_BYTES,
	};
	unsigned int lcore;

	snprintf(mp->name, sizeof(mp->name), NAME);
	mp->flags = RTE_MEMPOOL_F_NON_IO;
	mp->socket_id = SOCKET_ID_ANY;
	mp->size = nb_mbufs;
	mp->cache_size = l->cache_size;
	mp->elt_size = l->object.elt_size;
	mp->header_size = l->object.header_size;
	mp->trailer_size = l->object.trailer_size;
	mp->private_data_size = private_bytes();
	mp->ops_index = ops_index;
	mp->pool_data = l->free;
	mp->local_cache = RTE_PTR_ADD(mp, RTE_MEMPOOL_HEADER_SIZE(mp, 0));
	STAILQ_INIT(&mp->elt_list);
	STAILQ_INIT(&mp->mem_list);
	for (lcore = 0; l->cache_size > 0 && lcore < RTE_MAX_LCORE; lcore++) {
		mp->local_cache[lcore].size = l->cache_size;
		mp->local_cache[lcore].flushthresh = CACHE_FLUSHTHRESH(l->cache_size);
	}
	memcpy(rte_mempool_get_priv(mp), &private, sizeof(private));
}

/*
 * A thread of the app that is interrupted while it takes mbufs blocks their slots, and those of
 * all mbufs taken after them, until it continues. Until then there may be no room.
 */
static void
put_objects(struct arena *arena, void *const *objects, unsigned int n)
{
	unsigned int i = rte_ring_mp_rts_enqueue_burst(arena->pool->pool_data, objects, n, NULL);
	struct rte_mbuf *seg;

	for (; i < n; i++) {
		seg = objects[i];
		seg->next = arena->held;
		seg->nb_segs = 2; /* So that arena_put() follows `next`. */
		arena->held = seg;
	}
}

/* No device accesses these mbufs, so they have no bus addresses. */
static void
populate(struct arena *arena, const struct layout *l)
{
	struct rte_mempool *mp = arena->pool;
	struct rte_mempool_objhdr *hdr;
	struct counters_span piece;
	unsigned int i;
	void *object;

	for (i = 0; find_piece(l, i, &piece); i++)
		while (span_bytes(&piece) >= l->object_bytes) {
			object = take(&piece, l->object_bytes) + l->object.header_size;
			hdr = rte_mempool_get_header(object);
			hdr->mp = mp;
			hdr->iova = RTE_BAD_IOVA;
			STAILQ_INSERT_TAIL(&mp->elt_list, hdr, next);
			rte_pktmbuf_init(mp, NULL, object, mp->populated_size++);
			put_objects(arena, &object, 1);
		}
}

void
arena_build(struct arena *arena, int ops_index)
{
	struct layout l = { 0 };
	unsigned int i;

	lay_out(&l, arena, arena->nb_rings);
	for (i = 0; i < arena->nb_pieces; i++)
		memset(arena->pieces[i].begin, 0, span_bytes(&arena->pieces[i]));
	init_pool(arena->pool, &l, ops_index, arena->nb_mbufs);
	init_free((struct rte_ring *)l.free, l.free_slots);
	populate(arena, &l);
	for (i = 0; i < arena->nb_rings; i++)
		rte_ring_init(arena_ring(arena, i), NAME, l.slots, 0);
}

struct rte_ring *
arena_ring(const struct arena *arena, unsigned int i)
{
	return (struct rte_ring *)(arena->rings + i * arena->ring_bytes);
}

void
arena_put(struct arena *arena, struct rte_mbuf **mbufs, unsigned int n)
{
	void *objects[PUT_MAX];
	struct rte_mbuf *seg, *next;
	unsigned int i, nb = 0;

	for (i = 0; i < n; i++) {
		if (i + PUT_AHEAD < n)
			rte_prefetch0(mbufs[i + PUT_AHEAD]);
		for (seg = mbufs[i]; seg != NULL; seg = next) {
			next = NULL;
			/*
			 * For a single segment the cache line of `next` is not read, so it stays
			 * with the app's core.
			 */
			if (seg != mbufs[i] || seg->nb_segs != 1) {
				next = seg->next;
				seg->next = NULL;
				seg->nb_segs = 1;
			}
			objects[nb++] = seg;
			if (nb == PUT_MAX) {
				put_objects(arena, objects, nb);
				nb = 0;
			}
		}
	}
	if (nb > 0)
		put_objects(arena, objects, nb);
}

void
arena_put_held(struct arena *arena)
{
	struct rte_mbuf *held = arena->held;

	if (likely(held == NULL) || rte_ring_full(arena->pool->pool_data))
		return;
	arena->held = NULL;
	arena_put(arena, &held, 1);
}

/* What lcores use of the pool: its head, their caches, its private data and its ring. */
static void
keep_pool(const struct layout *l, const void *base, struct line_set *kept)
{
	const uint8_t *const head = (const uint8_t *)l->pool;
	const size_t bare = RTE_MEMPOOL_HEADER_SIZE(l->pool, 0);
	unsigned int lcore;

	line_set_add(kept, base, head, bare);
	for (lcore = 0; l->cache_size > 0 && lcore < RTE_MAX_LCORE; lcore++)
		line_set_add(kept, base, head + bare + lcore * sizeof(struct rte_mempool_cache),
				CACHE_BYTES);
	line_set_add(kept, base, head + RTE_MEMPOOL_HEADER_SIZE(l->pool, l->cache_size),
			private_bytes());
	line_set_add(kept, base, l->free, ring_bytes(l->free_slots));
}

static void
add_mbufs(const struct layout *l, const void *base, struct line_set *mbufs)
{
	struct counters_span piece;
	unsigned int i;

	for (i = 0; find_piece(l, i, &piece); i++)
		while (span_bytes(&piece) >= l->object_bytes)
			line_set_add(mbufs, base, take(&piece, l->object_bytes), l->object_bytes);
}

/* Take what is in the ring of the pool. As often as it has slots: the app may put back more. */
static void
take_free(const struct layout *l, const void *base, struct line_set *mbufs)
{
	void *objects[PUT_MAX];
	unsigned int i, n, slots;

	for (slots = 0; slots < l->free_slots; slots += n) {
		n = rte_ring_mc_rts_dequeue_burst(
				(struct rte_ring *)l->free, objects, PUT_MAX, NULL);
		if (n == 0)
			break;
		for (i = 0; i < n; i++)
			line_set_remove(mbufs, base, (uint8_t *)objects[i] - l->object.header_size,
					l->object_bytes);
	}
}

/* Free what waits in the rings of taps, as often as they have slots. */
static void
empty_rings(struct arena *arena)
{
	struct rte_mbuf *mbufs[PUT_MAX];
	unsigned int i, n, taken;

	for (i = 0; i < arena->nb_rings; i++)
		for (taken = 0; taken <= arena->nb_mbufs; taken += n) {
			n = rte_ring_sc_dequeue_burst(
					arena_ring(arena, i), (void **)mbufs, PUT_MAX, NULL);
			if (n == 0)
				break;
			arena_put(arena, mbufs, n);
		}
}

void
arena_retire(struct arena *arena, const void *base, struct line_set *kept)
{
	static struct line_set mbufs;
	struct layout l = { 0 };

	memset(&mbufs, 0, sizeof(mbufs));
	lay_out(&l, arena, arena->nb_rings);
	empty_rings(arena);
	arena_put_held(arena);
	add_mbufs(&l, base, &mbufs);
	take_free(&l, base, &mbufs);
	/* Separate sets, so that no pointer of the app can name a part of the pool as an mbuf. */
	keep_pool(&l, base, kept);
	line_set_join(kept, &mbufs);
}
