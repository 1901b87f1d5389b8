/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* /pmdscope/tee: counters of the captures of this app. */

#include "capture.h"
#include "capture_instance.h"
#include "capture_server.h"

/* The i-th row of /pmdscope/tee; NULL and, in *end, their number when there are fewer. */
static const struct pmdscope_capture_conn *
find_row(unsigned int i, unsigned int *lcore, unsigned int *end)
{
	const struct pmdscope_capture_conn *conn;
	unsigned int row = 0, n, l;

	for (n = 0; (conn = pmdscope_capture_conn(n)) != NULL; n++) {
		for (l = 0; conn->capture != NULL && l < RTE_MAX_LCORE; l++) {
			if (!conn->capture->watch[l].listed)
				continue;
			if (row == i) {
				*lcore = l;
				return conn;
			}
			row++;
		}
	}
	*end = row;
	return NULL;
}

static unsigned int
table_count(void)
{
	unsigned int lcore, end = 0;

	find_row(UINT32_MAX, &lcore, &end);
	return end;
}

enum {
	SESSION,
	PID,
	ARMED,
	LCORE,
	RING_BYTES,
	USED_BYTES,
	RECORDS,
	DROPPED,
	FILTERED,
	SAMPLED_OUT,
};

static const struct pmdscope_column columns[] = {
	[SESSION] = { "session", PMDSCOPE_COLUMN_U64, 1 },
	[PID] = { "pid", PMDSCOPE_COLUMN_U64, 1 },
	[ARMED] = { "armed", PMDSCOPE_COLUMN_U64, 1 },
	[LCORE] = { "lcore", PMDSCOPE_COLUMN_U64, 1 },
	[RING_BYTES] = { "ring_bytes", PMDSCOPE_COLUMN_U64, 1 },
	[USED_BYTES] = { "used_bytes", PMDSCOPE_COLUMN_U64, 1 },
	[RECORDS] = { "records", PMDSCOPE_COLUMN_U64, 1 },
	[DROPPED] = { "dropped", PMDSCOPE_COLUMN_U64, 1 },
	[FILTERED] = { "filtered", PMDSCOPE_COLUMN_U64, 1 },
	[SAMPLED_OUT] = { "sampled_out", PMDSCOPE_COLUMN_U64, 1 },
};

/* Bytes that the consumer has not read, as far as its tail is plausible. */
static uint64_t
used_bytes(const struct pmdscope_capture_producer *p)
{
	const uint64_t head = __atomic_load_n(&p->head, __ATOMIC_RELAXED);
	const uint64_t tail = pmdscope_capture_ring_tail(p->ring);

	return RTE_MIN(head - RTE_MIN(tail, head), p->ring->size);
}

static void
table_fill(unsigned int i, struct pmdscope_row *row)
{
	const struct pmdscope_capture_producer *p;
	unsigned int lcore = 0, end;
	const struct pmdscope_capture_conn *conn = find_row(i, &lcore, &end);

	if (conn == NULL)
		return;
	p = &conn->capture->producers[lcore];
	pmdscope_row_u64(row, SESSION, 0, conn->capture->id);
	pmdscope_row_u64(row, PID, 0, (uint64_t)conn->pid);
	pmdscope_row_u64(row, ARMED, 0, conn->armed);
	pmdscope_row_u64(row, LCORE, 0,
			conn->capture->spec.leaked ? PMDSCOPE_CAPTURE_LCORE_CONTROL : lcore);
	if (p->ring != NULL) {
		pmdscope_row_u64(row, RING_BYTES, 0, p->ring->size);
		pmdscope_row_u64(row, USED_BYTES, 0, used_bytes(p));
	}
	pmdscope_row_u64(row, RECORDS, 0, __atomic_load_n(&p->records, __ATOMIC_RELAXED));
	pmdscope_row_u64(row, DROPPED, 0, __atomic_load_n(&p->dropped, __ATOMIC_RELAXED));
	pmdscope_row_u64(row, FILTERED, 0, __atomic_load_n(&p->filtered, __ATOMIC_RELAXED));
	pmdscope_row_u64(row, SAMPLED_OUT, 0, __atomic_load_n(&p->sampled_out, __ATOMIC_RELAXED));
}

const struct pmdscope_table pmdscope_capture_table = {
	.name = "tee",
	.help = "Captures, one row per session and lcore. Parameters: offset",
	.columns = columns,
	.nb_columns = RTE_DIM(columns),
	.count = table_count,
	.fill = table_fill,
};
