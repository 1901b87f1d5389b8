/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_branch_prediction.h>
#include <rte_errno.h>
#include <rte_memory.h>
#include <rte_mempool.h>
#include <rte_prefetch.h>
#include <rte_ring.h>

#include "app_heap.h"
#include "arena.h"

/* Name of the objects in the memzone; it is never looked up. */
#define NAME "pmdscope"
/* Of one lcore of the app, so that it takes from the pool once for many packets. */
#define CACHE_SIZE 64
/* As rte_mempool.c has it; what a cache may hold is part of its contract with ops. */
#define CACHE_FLUSHTHRESH(size) ((size)*3 / 2)
#define MBUFS_MIN 511U
/* In memory that the app has to get for them. */
#define MBUFS_GROWN 2047U
/* Segments that are put back at once. */
#define PUT_MAX 512
/* Packets that the CPU is told of before they are looked at. */
#define PUT_AHEAD 16

/* Where things are in the memzone, by offset. */
struct layout {
	size_t pool_bytes;
	size_t free;
	size_t objects;
	size_t object_bytes;
	struct rte_mempool_objsz object;
	size_t rings;
	size_t ring_bytes;
	size_t end;
};

/* Every ring holds the whole pool, so that the app never fails to enqueue half a burst. */
static unsigned int
ring_slots(unsigned int nb_mbufs)
{
	return rte_align32pow2(nb_mbufs + 1);
}

static size_t
ring_bytes(unsigned int nb_mbufs)
{
	return RTE_ALIGN_CEIL(
			(size_t)rte_ring_get_memsize(ring_slots(nb_mbufs)), RTE_CACHE_LINE_SIZE);
}

static void
lay_out(struct layout *l, unsigned int nb_mbufs, unsigned int nb_rings)
{
	struct rte_mempool *none = NULL;

	/* The header ends with the private data of a pool of mbufs. */
	l->pool_bytes = RTE_ALIGN_CEIL(
			(size_t)RTE_MEMPOOL_HEADER_SIZE(none, CACHE_SIZE) +
					RTE_ALIGN_CEIL(sizeof(struct rte_pktmbuf_pool_private),
							RTE_MEMPOOL_ALIGN),
			RTE_CACHE_LINE_SIZE);
	l->free = l->pool_bytes;
	l->objects = l->free + ring_bytes(nb_mbufs);
	l->object_bytes = rte_mempool_calc_obj_size(
			sizeof(struct rte_mbuf) + RTE_MBUF_DEFAULT_BUF_SIZE, 0, &l->object);
	l->rings = RTE_ALIGN_CEIL(l->objects + nb_mbufs * l->object_bytes, RTE_CACHE_LINE_SIZE);
	l->ring_bytes = ring_bytes(nb_mbufs);
	l->end = l->rings + nb_rings * l->ring_bytes;
}

/*
 * In this mode a thread only waits where another one is too far behind, which is not limited here:
 * one that was killed within an enqueue keeps what it and those after it put back, and nobody waits.
 */
static void
init_free(struct rte_ring *ring, unsigned int nb_mbufs)
{
	rte_ring_init(ring, NAME, ring_slots(nb_mbufs), RING_F_MP_RTS_ENQ | RING_F_MC_RTS_DEQ);
	rte_ring_set_prod_htd_max(ring, UINT32_MAX);
	rte_ring_set_cons_htd_max(ring, UINT32_MAX);
}

static void
init_pool(struct arena *arena, const struct layout *l, int ops_index, unsigned int nb_mbufs)
{
	const struct rte_pktmbuf_pool_private private = {
		.mbuf_data_room_size = RTE_MBUF_DEFAULT_BUF_SIZE,
	};
	struct rte_mempool *mp = arena->zone->addr;
	unsigned int lcore;

	memset(mp, 0, l->pool_bytes);
	snprintf(mp->name, sizeof(mp->name), NAME);
	mp->mz = arena->zone;
	mp->flags = RTE_MEMPOOL_F_NON_IO;
	mp->socket_id = arena->zone->socket_id;
	mp->size = nb_mbufs;
	mp->cache_size = CACHE_SIZE;
	mp->elt_size = l->object.elt_size;
	mp->header_size = l->object.header_size;
	mp->trailer_size = l->object.trailer_size;
	mp->private_data_size = RTE_ALIGN_CEIL(sizeof(private), RTE_MEMPOOL_ALIGN);
	mp->ops_index = ops_index;
	mp->pool_data = RTE_PTR_ADD(mp, l->free);
	mp->local_cache = RTE_PTR_ADD(mp, RTE_MEMPOOL_HEADER_SIZE(mp, 0));
	STAILQ_INIT(&mp->elt_list);
	STAILQ_INIT(&mp->mem_list);
	for (lcore = 0; lcore < RTE_MAX_LCORE; lcore++) {
		mp->local_cache[lcore].size = CACHE_SIZE;
		mp->local_cache[lcore].flushthresh = CACHE_FLUSHTHRESH(CACHE_SIZE);
	}
	memcpy(rte_mempool_get_priv(mp), &private, sizeof(private));
	arena->pool = mp;
}

/*
 * A thread of the app that is interrupted while it takes mbufs keeps their slots, and those of all
 * that are taken after them, until it goes on. Till then there may be no room.
 */
static void
put_objects(struct arena *arena, void *const *objects, unsigned int n)
{
	unsigned int i = rte_ring_mp_rts_enqueue_burst(arena->pool->pool_data, objects, n, NULL);
	struct rte_mbuf *seg;

	for (; i < n; i++) {
		seg = objects[i];
		seg->next = arena->held;
		seg->nb_segs = 2; /* So that arena_put() looks at `next`. */
		arena->held = seg;
	}
}

/* No device ever sees these mbufs, so their bus addresses stay unknown. */
static void
populate(struct arena *arena, const struct layout *l, unsigned int nb_mbufs)
{
	struct rte_mempool *mp = arena->pool;
	struct rte_mempool_objhdr *hdr;
	unsigned int i;
	void *object;

	for (i = 0; i < nb_mbufs; i++) {
		object = RTE_PTR_ADD(mp, l->objects + i * l->object_bytes + l->object.header_size);
		hdr = rte_mempool_get_header(object);
		hdr->mp = mp;
		hdr->iova = RTE_BAD_IOVA;
		STAILQ_INSERT_TAIL(&mp->elt_list, hdr, next);
		rte_pktmbuf_init(mp, NULL, object, i);
		put_objects(arena, &object, 1);
	}
	mp->populated_size = nb_mbufs;
}

static const struct rte_memzone *
reserve(const char *name, unsigned int *nb_mbufs, unsigned int least, unsigned int nb_rings)
{
	const struct rte_memzone *zone = NULL;
	struct layout l;

	for (; *nb_mbufs >= least; *nb_mbufs /= 2) {
		lay_out(&l, *nb_mbufs, nb_rings);
		zone = rte_memzone_reserve(name, l.end, SOCKET_ID_ANY, 0);
		if (zone != NULL || rte_errno != ENOMEM)
			break;
	}
	return zone;
}

/*
 * The app is to keep these hugepages as free memory of its heap, as it keeps those of -m: to give
 * them back takes as long as to get them, with a lock of the app held by us, and the next capture
 * would have to get them again. Not pages of which most would never be used. We use all that is
 * pinned, so nobody else changes these segments meanwhile.
 */
static bool
keep_pages(const struct rte_memzone *zone)
{
	/* The allocator's header stands in front. */
	const uintptr_t begin = zone->addr_64 - 2 * RTE_CACHE_LINE_SIZE;
	const uintptr_t end = zone->addr_64 + zone->len;
	struct rte_memseg *ms;
	uintptr_t at;

	if (zone->hugepage_sz > zone->len)
		return false;
	for (at = RTE_ALIGN_FLOOR(begin, zone->hugepage_sz); at < end; at += zone->hugepage_sz) {
		ms = rte_mem_virt2memseg((const void *)at, NULL);
		if (ms == NULL || ms->addr_64 != at)
			return false;
		ms->flags |= RTE_MEMSEG_FLAG_DO_NOT_FREE;
	}
	return true;
}

/*
 * Memory that the app has, even if it is less; or that it can get, and then not much, as we hold
 * locks of the app until it has it. With --legacy-mem it gets none.
 */
bool
arena_reserve(struct arena *arena, const char *name, unsigned int nb_mbufs, unsigned int nb_rings)
{
	*arena = (struct arena){ .nb_rings = nb_rings };
	app_heap_may_grow(false);
	arena->nb_mbufs = nb_mbufs;
	arena->zone = reserve(name, &arena->nb_mbufs, MBUFS_GROWN, nb_rings);
	if (arena->zone == NULL && rte_errno == ENOMEM) {
		app_heap_may_grow(true);
		arena->nb_mbufs = RTE_MIN(nb_mbufs, MBUFS_GROWN);
		arena->zone = reserve(name, &arena->nb_mbufs, MBUFS_MIN, nb_rings);
		arena->has_grown = arena->zone != NULL;
		arena->is_kept = arena->has_grown && keep_pages(arena->zone);
	}
	return arena->zone != NULL;
}

void
arena_build(struct arena *arena, int ops_index)
{
	const unsigned int nb_mbufs = arena->nb_mbufs;
	struct layout l;
	unsigned int i;

	lay_out(&l, nb_mbufs, arena->nb_rings);
	init_pool(arena, &l, ops_index, nb_mbufs);
	init_free(arena->pool->pool_data, nb_mbufs);
	populate(arena, &l, nb_mbufs);
	arena->rings = RTE_PTR_ADD(arena->pool, l.rings);
	arena->ring_bytes = l.ring_bytes;
	for (i = 0; i < arena->nb_rings; i++)
		rte_ring_init(arena_ring(arena, i), NAME, ring_slots(nb_mbufs), 0);
}

bool
arena_find(struct arena *arena, const char *name, unsigned int nb_rings)
{
	const struct rte_memzone *zone = rte_memzone_lookup(name);

	if (zone == NULL)
		return false;
	*arena = (struct arena){ .zone = zone, .pool = zone->addr, .nb_rings = nb_rings };
	/* The rings come last, whatever is behind the pool. */
	arena->ring_bytes = ring_bytes(arena->pool->size);
	arena->rings = RTE_PTR_ADD(zone->addr, zone->len - nb_rings * arena->ring_bytes);
	return true;
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
			/* The line of `next` stays with the app's core where one segment is all. */
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

void
arena_clear(const struct arena *arena)
{
	app_heap_clear_early(arena->zone->addr, arena->zone->len);
}

bool
arena_free(const struct arena *arena)
{
	return rte_memzone_free(arena->zone) == 0;
}
