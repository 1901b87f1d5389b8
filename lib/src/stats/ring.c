/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <rte_mempool.h>
#include <rte_memzone.h>
#include <rte_ring.h>

#include "ring.h"
#include "track.h"
#include "window.h"

struct ring {
	struct pmdscope_track track; /* of used */
	uint32_t capacity;
	uint32_t used;
	enum rte_ring_sync_type producers;
	enum rte_ring_sync_type consumers;
};

static struct pmdscope_tracks rings = { .item_size = sizeof(struct ring) };

static bool
has_prefix(const char *s, const char *prefix)
{
	return strncmp(s, prefix, strlen(prefix)) == 0;
}

static void
sample(const struct rte_memzone *mz, void *arg __rte_unused)
{
	const struct rte_ring *r = mz->addr;
	struct ring *ring;

	/* A ring gets its memzone last. Rings of mempools are part of /pmdscope/pools. */
	if (!has_prefix(mz->name, RTE_RING_MZ_PREFIX) || r->memzone != mz ||
			has_prefix(r->name, RTE_MEMPOOL_MZ_PREFIX))
		return;
	ring = pmdscope_track_meet(&rings, r, r->name);
	if (ring == NULL)
		return;
	ring->capacity = rte_ring_get_capacity(r);
	ring->used = rte_ring_count(r);
	ring->producers = rte_ring_get_prod_sync_type(r);
	ring->consumers = rte_ring_get_cons_sync_type(r);
	pmdscope_track_note(&ring->track, ring->used);
}

/*
 * By memzone and not by the list of rings: before 23.07 rte_ring_free() gives the memory
 * back first and leaves the list afterwards. A memzone cannot be freed during the walk.
 */
void
pmdscope_ring_sample(void)
{
	rte_memzone_walk(sample, NULL);
	pmdscope_track_sweep(&rings);
}

void
pmdscope_ring_stop(void)
{
	pmdscope_track_clear(&rings);
}

enum {
	COL_NAME,
	COL_CAPACITY,
	COL_USED,
	COL_USED_WINDOW_MAX,
	COL_USED_MAX,
	COL_PRODUCERS,
	COL_CONSUMERS,
};

static const struct pmdscope_column columns[] = {
	[COL_NAME] = { "name", PMDSCOPE_COLUMN_STR, 1 },
	[COL_CAPACITY] = { "capacity", PMDSCOPE_COLUMN_U64, 1 },
	[COL_USED] = { "used", PMDSCOPE_COLUMN_U64, 1 },
	[COL_USED_WINDOW_MAX] = { "used_window_max", PMDSCOPE_COLUMN_U64, 1 },
	[COL_USED_MAX] = { "used_max", PMDSCOPE_COLUMN_U64, 1 },
	[COL_PRODUCERS] = { "producers", PMDSCOPE_COLUMN_STR, 1 },
	[COL_CONSUMERS] = { "consumers", PMDSCOPE_COLUMN_STR, 1 },
};

static unsigned int
ring_count(void)
{
	return rings.nb;
}

static const char *
sync_name(enum rte_ring_sync_type sync, const char *multi, const char *single)
{
	switch (sync) {
	case RTE_RING_SYNC_MT:
		return multi;
	case RTE_RING_SYNC_ST:
		return single;
	case RTE_RING_SYNC_MT_RTS:
		return "rts";
	case RTE_RING_SYNC_MT_HTS:
		return "hts";
	}
	return "";
}

static void
ring_fill(unsigned int i, struct pmdscope_row *row)
{
	const struct ring *ring = pmdscope_track_item(&rings, i);

	pmdscope_row_str(row, COL_NAME, ring->track.name);
	pmdscope_row_u64(row, COL_CAPACITY, 0, ring->capacity);
	pmdscope_row_u64(row, COL_USED, 0, ring->used);
	pmdscope_row_u64(row, COL_USED_WINDOW_MAX, 0, pmdscope_window_last(&ring->track.window));
	pmdscope_row_u64(row, COL_USED_MAX, 0, ring->track.max);
	pmdscope_row_str(row, COL_PRODUCERS, sync_name(ring->producers, "mp", "sp"));
	pmdscope_row_str(row, COL_CONSUMERS, sync_name(ring->consumers, "mc", "sc"));
}

const struct pmdscope_table pmdscope_ring_table = {
	.name = "rings",
	.help = "Software rings: fill and high-water. Parameters: int offset",
	.columns = columns,
	.nb_columns = RTE_DIM(columns),
	.count = ring_count,
	.fill = ring_fill,
};
