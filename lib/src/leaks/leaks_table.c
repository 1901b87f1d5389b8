/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* /pmdscope/leaks: the ledger as a table. */

#include <rte_common.h>

#include "arming.h"
#include "ledger.h"

enum {
	NAME,
	SIZE,
	COMMON,
	CACHED,
	RX_POSTED,
	TX_PENDING,
	RINGS,
	HELD,
	LEAKED,
	UNPLACED,
	LOST_AT_LEAST,
	PREARM,
	ARMED,
	MODE,
	READABLE,
	SLOPE_MILLI,
	EXHAUSTED_IN_MS,
	FIRST_LEAK,
	WALKS,
	WALK_US,
	DOUBLE_FREES,
	USE_AFTER_FREES,
};

static const struct pmdscope_column columns[] = {
	[NAME] = { "name", PMDSCOPE_COLUMN_STR, 1 },
	[SIZE] = { "size", PMDSCOPE_COLUMN_U64, 1 },
	[COMMON] = { "common", PMDSCOPE_COLUMN_U64, 1 },
	[CACHED] = { "cached", PMDSCOPE_COLUMN_U64, 1 },
	[RX_POSTED] = { "rx_posted", PMDSCOPE_COLUMN_U64, 1 },
	[TX_PENDING] = { "tx_pending", PMDSCOPE_COLUMN_U64, 1 },
	[RINGS] = { "rings", PMDSCOPE_COLUMN_U64, 1 },
	[HELD] = { "held", PMDSCOPE_COLUMN_U64, 1 },
	[LEAKED] = { "leaked", PMDSCOPE_COLUMN_U64, 1 },
	[UNPLACED] = { "unplaced", PMDSCOPE_COLUMN_U64, 1 },
	[LOST_AT_LEAST] = { "lost_at_least", PMDSCOPE_COLUMN_U64, 1 },
	[PREARM] = { "prearm", PMDSCOPE_COLUMN_U64, 1 },
	[ARMED] = { "armed", PMDSCOPE_COLUMN_U64, 1 },
	[MODE] = { "mode", PMDSCOPE_COLUMN_STR, 1 },
	[READABLE] = { "readable", PMDSCOPE_COLUMN_U64, 1 },
	[SLOPE_MILLI] = { "slope_milli", PMDSCOPE_COLUMN_INT, 1 },
	[EXHAUSTED_IN_MS] = { "exhausted_in_ms", PMDSCOPE_COLUMN_U64, 1 },
	[FIRST_LEAK] = { "first_leak_realtime_ns", PMDSCOPE_COLUMN_U64, 1 },
	[WALKS] = { "walks", PMDSCOPE_COLUMN_U64, 1 },
	[WALK_US] = { "walk_us", PMDSCOPE_COLUMN_U64, 1 },
	[DOUBLE_FREES] = { "double_frees", PMDSCOPE_COLUMN_U64, 1 },
	[USE_AFTER_FREES] = { "use_after_frees", PMDSCOPE_COLUMN_U64, 1 },
};

static unsigned int
ledger_count(void)
{
	unsigned int n = 0;

	while (pmdscope_ledger_get(n) != NULL)
		n++;
	return n;
}

/* From the last walk; or, without one, from the counts. */
static void
fill_parts(const struct pmdscope_ledger *ledger, struct pmdscope_row *row)
{
	const struct pmdscope_pool_counts *counts = &ledger->counts;
	const struct pmdscope_parts *parts = &ledger->parts;
	uint32_t leaked, rings;

	if (!ledger->placed || !pmdscope_arming_on()) {
		leaked = RTE_MIN(parts->leaked, counts->in_use);
		rings = RTE_MIN(parts->rings, counts->in_use - leaked);
		pmdscope_row_u64(row, SIZE, 0, counts->size);
		pmdscope_row_u64(row, COMMON, 0, counts->common);
		pmdscope_row_u64(row, CACHED, 0, counts->cached);
		pmdscope_row_u64(row, LEAKED, 0, leaked);
		pmdscope_row_u64(row, RINGS, 0, rings);
		pmdscope_row_u64(row, UNPLACED, 0, counts->in_use - leaked - rings);
		pmdscope_row_u64(row, PREARM, 0, RTE_MIN(parts->prearm, leaked));
		return;
	}
	pmdscope_row_u64(row, SIZE, 0, ledger->index.nb_objects);
	pmdscope_row_u64(row, COMMON, 0, parts->common);
	pmdscope_row_u64(row, CACHED, 0, parts->cached);
	pmdscope_row_u64(row, RX_POSTED, 0, parts->rx_posted);
	pmdscope_row_u64(row, TX_PENDING, 0, parts->tx_pending);
	pmdscope_row_u64(row, RINGS, 0, parts->rings);
	pmdscope_row_u64(row, HELD, 0, parts->held);
	pmdscope_row_u64(row, LEAKED, 0, parts->leaked);
	pmdscope_row_u64(row, PREARM, 0, parts->prearm);
	pmdscope_row_u64(row, LOST_AT_LEAST, 0, parts->lost_at_least);
}

static void
fill_trend(const struct pmdscope_ledger *ledger, struct pmdscope_row *row)
{
	const int64_t slope = pmdscope_trend_slope_milli(&ledger->trend);
	const uint64_t left = ledger->counts.common + ledger->counts.cached;

	pmdscope_row_int(row, SLOPE_MILLI, (int)RTE_MAX(RTE_MIN(slope, INT32_MAX), INT32_MIN));
	if (slope > 0 && pmdscope_trend_grows(&ledger->trend))
		pmdscope_row_u64(row, EXHAUSTED_IN_MS, 0, left * 1000000 / (uint64_t)slope);
}

static void
ledger_fill(unsigned int i, struct pmdscope_row *row)
{
	const struct pmdscope_ledger *ledger = pmdscope_ledger_get(i);

	pmdscope_row_str(row, NAME, ledger->name);
	fill_parts(ledger, row);
	fill_trend(ledger, row);
	pmdscope_row_u64(row, ARMED, 0, pmdscope_arming_on());
	pmdscope_row_str(row, MODE, pmdscope_arming_mode_name());
	pmdscope_row_u64(row, READABLE, 0, ledger->counts.readable && !ledger->lost_memory);
	pmdscope_row_u64(row, FIRST_LEAK, 0, ledger->first_leak_realtime_ns);
	pmdscope_row_u64(row, WALKS, 0, ledger->walks);
	pmdscope_row_u64(row, WALK_US, 0, ledger->walk_us);
	pmdscope_row_u64(row, DOUBLE_FREES, 0, ledger->double_frees);
	pmdscope_row_u64(row, USE_AFTER_FREES, 0, ledger->use_after_frees);
}

const struct pmdscope_table pmdscope_leaks_table = {
	.name = "leaks",
	.help = "Where the mbufs of each pool are. Parameters: int offset",
	.columns = columns,
	.nb_columns = RTE_DIM(columns),
	.count = ledger_count,
	.fill = ledger_fill,
};
