/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_PAGE_H
#define PMDSCOPE_PAGE_H

/*
 * Serves a table over the DPDK telemetry socket, column-wise and paged, so that
 * none of its undocumented limits is reached (docs/telemetry.md).
 */

#include <stdint.h>

#include <rte_telemetry.h>

enum pmdscope_column_type {
	PMDSCOPE_COLUMN_U64,
	PMDSCOPE_COLUMN_INT,
	PMDSCOPE_COLUMN_STR,
	/* Any number of values per row; the column has its own length. */
	PMDSCOPE_COLUMN_LIST,
};

/* Maximums of a table: columns, sum of the widths of number columns, STR columns, LIST columns. */
#define PMDSCOPE_PAGE_COLUMNS 24
#define PMDSCOPE_PAGE_VALUES 64
#define PMDSCOPE_PAGE_STRINGS 8
#define PMDSCOPE_PAGE_LISTS 4
/* Values of one row in a LIST column; more are cut. */
#define PMDSCOPE_PAGE_LIST_VALUES 512

struct pmdscope_column {
	const char *name;
	enum pmdscope_column_type type;
	/* Values per row of a U64 column: 1, or the buckets of a histogram. Otherwise 1. */
	unsigned int width;
};

/* A row that is being added to a page. */
struct pmdscope_row;

/* Set value i (below the column's width) of a U64 column. Unset values are 0. */
void
pmdscope_row_u64(struct pmdscope_row *row, unsigned int column, unsigned int i, uint64_t value);
/* Set an INT column. */
void pmdscope_row_int(struct pmdscope_row *row, unsigned int column, int value);
/* Set a STR column; cut at 127 bytes. Unset strings are empty. */
void pmdscope_row_str(struct pmdscope_row *row, unsigned int column, const char *value);
/* Append a value to a LIST column. */
void pmdscope_row_list(struct pmdscope_row *row, unsigned int column, uint64_t value);
/* Number of the row within its page. */
unsigned int pmdscope_row_index(const struct pmdscope_row *row);

struct pmdscope_table {
	/* Name after "/pmdscope/". */
	const char *name;
	/* One line for /help, under 64 bytes. */
	const char *help;
	const struct pmdscope_column *columns;
	unsigned int nb_columns;
	/* U64 columns, as a bit mask, that a page omits if they are 0 in all of its rows. */
	uint32_t optional;
	/* Current number of rows. The state lock is held during count and fill. */
	unsigned int (*count)(void);
	/* Fill row i. */
	void (*fill)(unsigned int i, struct pmdscope_row *row);
};

/* Rows of some table have appeared, vanished or changed places. Caller holds the state lock. */
void pmdscope_rows_changed(void);
/* Changes with every pmdscope_rows_changed(). */
uint64_t pmdscope_generation(void);

/* Version of docs/telemetry.md. */
#define PMDSCOPE_SCHEMA 1

/* Add a number to a dict; the name of DPDK's function has changed. */
void pmdscope_dict_u64(struct rte_tel_data *d, const char *name, uint64_t value);

/* Bytes of a string in a reply, with its NUL. */
#define PMDSCOPE_TEXT_MAX 128
/*
 * Copy a string in the form that DPDK can report: cut, with '?' for what it cannot print in JSON.
 */
void pmdscope_text(char text[PMDSCOPE_TEXT_MAX], const char *value);

/*
 * Render the page that params asks for ("<offset>", or NULL or "" for 0) into d, which the
 * calling thread must turn into JSON before it renders another page. Caller holds the state lock.
 * Returns 0, -EINVAL for a bad offset, -ENOMEM.
 */
int pmdscope_page_render(
		const struct pmdscope_table *table, const char *params, struct rte_tel_data *d);

#endif /* PMDSCOPE_PAGE_H */
