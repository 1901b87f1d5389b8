/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <rte_eal_memconfig.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_tailq.h>

#include "pool.h"
#include "track.h"
#include "window.h"

/* The name of rte_mempool's list has been the same since its first release. */
#define POOL_TAILQ "RTE_MEMPOOL"

TAILQ_HEAD(pool_list, rte_tailq_entry);

struct pool {
	struct pmdscope_track track; /* of in_use */
	int socket;
	bool mbufs;
	bool readable;
	uint32_t size;
	uint32_t element_bytes;
	uint32_t cache_size;
	uint32_t common;
	uint32_t cached;
	uint32_t in_use;
	uint32_t caches[RTE_MAX_LCORE];
};

static struct pmdscope_tracks pools = { .item_size = sizeof(struct pool) };

/* The caches are read while their lcores use them: the sum may be wrong by a burst or two. */
static uint32_t
sample_caches(struct pool *pool, const struct rte_mempool *mp)
{
	uint32_t sum = 0;
	unsigned int i;

	if (mp->cache_size == 0)
		return 0;
	for (i = 0; i < RTE_MAX_LCORE; i++) {
		pool->caches[i] = __atomic_load_n(&mp->local_cache[i].len, __ATOMIC_RELAXED);
		sum += pool->caches[i];
	}
	return sum;
}

/* As rte_mempool_ops_get_count(), which DPDK declares but does not export. */
static uint32_t
common_count(const struct rte_mempool *mp)
{
	return rte_mempool_get_ops(mp->ops_index)->get_count(mp);
}

bool
pmdscope_pool_is_readable(const struct rte_mempool *mp)
{
	return strncmp(rte_mempool_get_ops(mp->ops_index)->name, "ring_", strlen("ring_")) == 0 &&
	       mp->pool_data != NULL;
}

/* Mbufs contain the address of their pool. */
static bool
has_mbufs(const struct rte_mempool *mp)
{
	const struct rte_mempool_objhdr *hdr = STAILQ_FIRST(&mp->elt_list);

	return hdr != NULL && mp->elt_size >= sizeof(struct rte_mbuf) &&
	       mp->private_data_size >= sizeof(struct rte_pktmbuf_pool_private) &&
	       ((const struct rte_mbuf *)(hdr + 1))->pool == mp;
}

static void
sample(struct pool *pool, const struct rte_mempool *mp)
{
	pool->socket = mp->socket_id;
	pool->mbufs = has_mbufs(mp);
	pool->readable = pmdscope_pool_is_readable(mp);
	pool->size = mp->populated_size;
	pool->element_bytes = mp->header_size + mp->elt_size + mp->trailer_size;
	pool->cache_size = mp->cache_size;
	pool->cached = RTE_MIN(sample_caches(pool, mp), pool->size);
	pool->common = RTE_MIN(common_count(mp), pool->size - pool->cached);
	pool->in_use = pool->size - pool->common - pool->cached;
	pmdscope_track_note(&pool->track, pool->in_use);
}

/*
 * Not rte_mempool_walk(): that holds a lock which rte_mempool_free() does not take. Under the
 * tailq lock a pool cannot leave the list, and it is freed only after it has left.
 */
void
pmdscope_pool_sample(void)
{
	struct pool_list *list = (struct pool_list *)rte_eal_tailq_lookup(POOL_TAILQ);
	struct rte_tailq_entry *entry;

	if (list == NULL)
		return;
	rte_mcfg_tailq_read_lock();
	TAILQ_FOREACH(entry, list, next) {
		const struct rte_mempool *mp = entry->data;
		struct pool *pool;

		/* The common ring does not exist yet. */
		if ((mp->flags & RTE_MEMPOOL_F_POOL_CREATED) == 0)
			continue;
		pool = pmdscope_track_meet(&pools, mp, mp->name);
		if (pool != NULL)
			sample(pool, mp);
	}
	rte_mcfg_tailq_read_unlock();
	pmdscope_track_sweep(&pools);
}

struct rte_mempool *
pmdscope_pool_find(const void *address, const char *name)
{
	struct pool_list *list = (struct pool_list *)rte_eal_tailq_lookup(POOL_TAILQ);
	struct rte_tailq_entry *entry;

	if (list == NULL)
		return NULL;
	TAILQ_FOREACH(entry, list, next) {
		struct rte_mempool *mp = entry->data;

		if (mp == address && strcmp(mp->name, name) == 0 &&
				(mp->flags & RTE_MEMPOOL_F_POOL_CREATED) != 0)
			return mp;
	}
	return NULL;
}

bool
pmdscope_pool_get(unsigned int i, struct pmdscope_pool_counts *counts)
{
	const struct pool *pool;

	if (i >= pools.nb)
		return false;
	pool = pmdscope_track_item(&pools, i);
	*counts = (struct pmdscope_pool_counts){
		.address = pool->track.address,
		.name = pool->track.name,
		.mbufs = pool->mbufs,
		.readable = pool->readable,
		.size = pool->size,
		.common = pool->common,
		.cached = pool->cached,
		.in_use = pool->in_use,
	};
	return true;
}

unsigned int
pmdscope_pool_row(const void *address)
{
	unsigned int i;

	for (i = 0; address != NULL && i < pools.nb; i++) {
		const struct pool *pool = pmdscope_track_item(&pools, i);

		if (pool->track.address == address)
			return i + 1;
	}
	return 0;
}

void
pmdscope_pool_stop(void)
{
	pmdscope_track_clear(&pools);
}

enum {
	COL_NAME,
	COL_SOCKET,
	COL_SIZE,
	COL_ELEMENT_BYTES,
	COL_CACHE_SIZE,
	COL_COMMON,
	COL_CACHED,
	COL_IN_USE,
	COL_IN_USE_WINDOW_MAX,
	COL_IN_USE_MAX,
	COL_CACHES_ROW,
	COL_CACHES_LCORE,
	COL_CACHES_OBJECTS,
};

static const struct pmdscope_column columns[] = {
	[COL_NAME] = { "name", PMDSCOPE_COLUMN_STR, 1 },
	[COL_SOCKET] = { "socket", PMDSCOPE_COLUMN_INT, 1 },
	[COL_SIZE] = { "size", PMDSCOPE_COLUMN_U64, 1 },
	[COL_ELEMENT_BYTES] = { "element_bytes", PMDSCOPE_COLUMN_U64, 1 },
	[COL_CACHE_SIZE] = { "cache_size", PMDSCOPE_COLUMN_U64, 1 },
	[COL_COMMON] = { "common", PMDSCOPE_COLUMN_U64, 1 },
	[COL_CACHED] = { "cached", PMDSCOPE_COLUMN_U64, 1 },
	[COL_IN_USE] = { "in_use", PMDSCOPE_COLUMN_U64, 1 },
	[COL_IN_USE_WINDOW_MAX] = { "in_use_window_max", PMDSCOPE_COLUMN_U64, 1 },
	[COL_IN_USE_MAX] = { "in_use_max", PMDSCOPE_COLUMN_U64, 1 },
	[COL_CACHES_ROW] = { "caches_row", PMDSCOPE_COLUMN_LIST, 1 },
	[COL_CACHES_LCORE] = { "caches_lcore", PMDSCOPE_COLUMN_LIST, 1 },
	[COL_CACHES_OBJECTS] = { "caches_objects", PMDSCOPE_COLUMN_LIST, 1 },
};

static unsigned int
pool_count(void)
{
	return pools.nb;
}

static void
fill_caches(const struct pool *pool, struct pmdscope_row *row)
{
	unsigned int i;

	for (i = 0; i < RTE_MAX_LCORE; i++) {
		if (pool->caches[i] == 0)
			continue;
		pmdscope_row_list(row, COL_CACHES_ROW, pmdscope_row_index(row));
		pmdscope_row_list(row, COL_CACHES_LCORE, i);
		pmdscope_row_list(row, COL_CACHES_OBJECTS, pool->caches[i]);
	}
}

static void
pool_fill(unsigned int i, struct pmdscope_row *row)
{
	const struct pool *pool = pmdscope_track_item(&pools, i);

	pmdscope_row_str(row, COL_NAME, pool->track.name);
	pmdscope_row_int(row, COL_SOCKET, pool->socket);
	pmdscope_row_u64(row, COL_SIZE, 0, pool->size);
	pmdscope_row_u64(row, COL_ELEMENT_BYTES, 0, pool->element_bytes);
	pmdscope_row_u64(row, COL_CACHE_SIZE, 0, pool->cache_size);
	pmdscope_row_u64(row, COL_COMMON, 0, pool->common);
	pmdscope_row_u64(row, COL_CACHED, 0, pool->cached);
	pmdscope_row_u64(row, COL_IN_USE, 0, pool->in_use);
	pmdscope_row_u64(row, COL_IN_USE_WINDOW_MAX, 0, pmdscope_window_last(&pool->track.window));
	pmdscope_row_u64(row, COL_IN_USE_MAX, 0, pool->track.max);
	fill_caches(pool, row);
}

const struct pmdscope_table pmdscope_pool_table = {
	.name = "pools",
	.help = "Mempools: where the objects are. Parameters: int offset",
	.columns = columns,
	.nb_columns = RTE_DIM(columns),
	.count = pool_count,
	.fill = pool_fill,
};
