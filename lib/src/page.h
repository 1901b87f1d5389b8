/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_PAGE_H
#define PMDSCOPE_PAGE_H

/*
 * Serves a table over the DPDK telemetry socket, column-wise and paged, so that
 * none of its silent limits is ever reached (docs/telemetry.md).
 */

#include <stdint.h>

enum pmdscope_column_type {
	PMDSCOPE_COLUMN_U64,
	PMDSCOPE_COLUMN_STR,
};

struct pmdscope_column {
	const char *name;
	enum pmdscope_column_type type;
	/* Values per row: 1, or the buckets of a histogram. */
	unsigned int width;
};

/* One row on its way into a page. */
struct pmdscope_row;

/* Set value i (below the column's width) of a U64 column. Unset values are 0. */
void pmdscope_row_u64(struct pmdscope_row *row, unsigned int column, unsigned int i,
		uint64_t value);
/* Set a STR column; cut at 127 bytes. Unset strings are empty. */
void pmdscope_row_str(struct pmdscope_row *row, unsigned int column, const char *value);

struct pmdscope_table {
	/* Name behind "/pmdscope/". */
	const char *name;
	/* One line for /help, under 64 bytes. */
	const char *help;
	const struct pmdscope_column *columns;
	unsigned int nb_columns;
	/* Rows at this moment. The state lock is held over count and fill. */
	unsigned int (*count)(void);
	/* Fill row i. */
	void (*fill)(unsigned int i, struct pmdscope_row *row);
};

#endif /* PMDSCOPE_PAGE_H */
