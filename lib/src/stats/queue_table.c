/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * The counts of the callbacks: /pmdscope/queues with all of them, and /pmdscope/queue_counters with
 * those that a reader needs each time, so that a page has several times as many rows.
 */

#include <rte_bitops.h>

#include "burst.h"
#include "pool.h"
#include "queue.h"
#include "window.h"

enum {
	COL_PORT,
	COL_QUEUE,
	COL_DIR,
	COL_POLLS,
	COL_EMPTY,
	COL_PACKETS,
	COL_BYTES,
	COL_DEPTH_SUPPORTED,
	COL_DEPTH,
	COL_DEPTH_WINDOW_MAX,
	COL_DEPTH_MAX,
	COL_DESCRIPTORS,
	COL_POOL_ROW,
	/* The following are in /pmdscope/queues only. */
	NB_COUNTER_COLUMNS,
	COL_DEVICE = NB_COUNTER_COLUMNS,
	COL_BURSTS,
	COL_DEPTHS,
};

static const struct pmdscope_column columns[] = {
	[COL_PORT] = { "port", PMDSCOPE_COLUMN_U64, 1 },
	[COL_QUEUE] = { "queue", PMDSCOPE_COLUMN_U64, 1 },
	[COL_DIR] = { "dir", PMDSCOPE_COLUMN_STR, 1 },
	[COL_POLLS] = { "polls", PMDSCOPE_COLUMN_U64, 1 },
	[COL_EMPTY] = { "empty", PMDSCOPE_COLUMN_U64, 1 },
	[COL_PACKETS] = { "packets", PMDSCOPE_COLUMN_U64, 1 },
	[COL_BYTES] = { "bytes", PMDSCOPE_COLUMN_U64, 1 },
	[COL_DEPTH_SUPPORTED] = { "depth_supported", PMDSCOPE_COLUMN_U64, 1 },
	[COL_DEPTH] = { "depth", PMDSCOPE_COLUMN_U64, 1 },
	[COL_DEPTH_WINDOW_MAX] = { "depth_window_max", PMDSCOPE_COLUMN_U64, 1 },
	[COL_DEPTH_MAX] = { "depth_max", PMDSCOPE_COLUMN_U64, 1 },
	[COL_DESCRIPTORS] = { "descriptors", PMDSCOPE_COLUMN_U64, 1 },
	[COL_POOL_ROW] = { "pool_row", PMDSCOPE_COLUMN_U64, 1 },
	[COL_DEVICE] = { "device", PMDSCOPE_COLUMN_STR, 1 },
	[COL_BURSTS] = { "bursts", PMDSCOPE_COLUMN_U64, PMDSCOPE_BURST_BUCKETS },
	[COL_DEPTHS] = { "depths", PMDSCOPE_COLUMN_U64, PMDSCOPE_DEPTH_BUCKETS },
};

static uint64_t
load(const uint64_t *counter)
{
	return __atomic_load_n(counter, __ATOMIC_RELAXED);
}

static bool
knows_depth(const struct pmdscope_counters *n)
{
	return __atomic_load_n(&n->depth_state, __ATOMIC_RELAXED) == PMDSCOPE_DEPTH_SUPPORTED;
}

/* As the driver reports it, or else that of a received packet. */
static const struct rte_mempool *
feeding_pool(const struct pmdscope_counters *n)
{
	const struct rte_mempool *pool = __atomic_load_n(&n->pool, __ATOMIC_RELAXED);

	return pool != NULL ? pool : __atomic_load_n(&n->seen_pool, __ATOMIC_RELAXED);
}

static void
fill_depth(const struct pmdscope_counters *n, struct pmdscope_row *row)
{
	if (!knows_depth(n))
		return;
	pmdscope_row_u64(row, COL_DEPTH_SUPPORTED, 0, 1);
	pmdscope_row_u64(row, COL_DEPTH, 0, __atomic_load_n(&n->depth, __ATOMIC_RELAXED));
	pmdscope_row_u64(row, COL_DEPTH_WINDOW_MAX, 0, pmdscope_window_last(&n->depth_window));
	pmdscope_row_u64(row, COL_DEPTH_MAX, 0, load(&n->depth_max));
}

static void
fill_counters(struct pmdscope_queue *q, const struct pmdscope_burst_sums *sums,
		struct pmdscope_row *row)
{
	const struct pmdscope_counters *n = &q->n;

	pmdscope_row_u64(row, COL_PORT, 0, q->port);
	pmdscope_row_u64(row, COL_QUEUE, 0, q->queue);
	pmdscope_row_str(row, COL_DIR, q->dir == PMDSCOPE_RX ? "rx" : "tx");
	pmdscope_row_u64(row, COL_POLLS, 0, sums->polls);
	pmdscope_row_u64(row, COL_EMPTY, 0, sums->empty);
	pmdscope_row_u64(row, COL_PACKETS, 0, sums->packets);
	pmdscope_row_u64(row, COL_BYTES, 0, pmdscope_queue_bytes(q, sums->packets));
	pmdscope_row_u64(row, COL_DESCRIPTORS, 0,
			__atomic_load_n(&n->descriptors, __ATOMIC_RELAXED));
	pmdscope_row_u64(row, COL_POOL_ROW, 0, pmdscope_pool_row(feeding_pool(n)));
	fill_depth(n, row);
}

static void
counters_fill(unsigned int row_index, struct pmdscope_row *row)
{
	struct pmdscope_queue *q = pmdscope_queue_row(row_index);
	const struct pmdscope_burst_sums sums = pmdscope_queue_sums(q);

	fill_counters(q, &sums, row);
}

static void
queue_fill(unsigned int row_index, struct pmdscope_row *row)
{
	struct pmdscope_queue *q = pmdscope_queue_row(row_index);
	const struct pmdscope_burst_sums sums = pmdscope_queue_sums(q);
	const struct pmdscope_counters *n = &q->n;
	unsigned int i;

	fill_counters(q, &sums, row);
	pmdscope_row_str(row, COL_DEVICE, pmdscope_queue_device(q));
	for (i = 0; i < PMDSCOPE_BURST_BUCKETS; i++)
		pmdscope_row_u64(row, COL_BURSTS, i, sums.bursts[i]);
	if (!knows_depth(n))
		return;
	pmdscope_row_u64(row, COL_DEPTHS, 0, sums.empty);
	for (i = 1; i < PMDSCOPE_DEPTH_BUCKETS; i++)
		pmdscope_row_u64(row, COL_DEPTHS, i, load(&n->depths[i]));
}

const struct pmdscope_table pmdscope_queue_table = {
	.name = "queues",
	.help = "Queues: polls, packets, depth. Parameters: int offset",
	.columns = columns,
	.nb_columns = RTE_DIM(columns),
	.count = pmdscope_queue_rows,
	.fill = queue_fill,
};

const struct pmdscope_table pmdscope_queue_counters_table = {
	.name = "queue_counters",
	.help = "Queues without histograms. Parameters: int offset",
	.columns = columns,
	.nb_columns = NB_COUNTER_COLUMNS,
	.optional = RTE_BIT32(COL_EMPTY) | RTE_BIT32(COL_DEPTH_SUPPORTED) | RTE_BIT32(COL_DEPTH) |
		    RTE_BIT32(COL_DEPTH_WINDOW_MAX) | RTE_BIT32(COL_DEPTH_MAX) |
		    RTE_BIT32(COL_DESCRIPTORS) | RTE_BIT32(COL_POOL_ROW),
	.count = pmdscope_queue_rows,
	.fill = counters_fill,
};
