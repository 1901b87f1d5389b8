/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_OPS_TABLE_H
#define PDUMP_OPS_TABLE_H

/*
 * The mempool ops of another process. A pool refers to its ops by an index into a table that each
 * process fills in the order in which its libraries are loaded; so the index for an app must be
 * read from the app.
 */

#include <stdbool.h>
#include <stddef.h>

#include <rte_mempool.h>

#include "app_memory.h"
#include "failure.h"

/* Of the table in the app. */
extern const struct app_symbol ops_table_symbol;

/* Read the table out of a process. 0, or -1 with the failure. */
int ops_table_read(struct rte_mempool_ops_table *table, struct failure *failure);

/* Index of the ops of this name; -1 when there are none. */
int ops_table_index(const struct rte_mempool_ops_table *table, const char *name);

/* Ranges of addresses that hold code, to tell functions by. */
struct ops_code {
	unsigned int nb;
	struct {
		uintptr_t start, end;
	} ranges[512];
};

/* Does this look like such a table in every respect? */
bool ops_table_valid(const struct rte_mempool_ops_table *table, const struct ops_code *code);

/*
 * Look for a table in the data of a process, as was read from an address that is aligned to a
 * cache line. NULL when there is none.
 */
const struct rte_mempool_ops_table *
ops_table_scan(const void *data, size_t size, const struct ops_code *code);

#endif /* PDUMP_OPS_TABLE_H */
