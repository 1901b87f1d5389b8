/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "app_memory.h"
#include "ops_table.h"

/* Ops that every DPDK app has; their name is what a scan looks for. */
#define KNOWN_OPS "ring_mp_mc"
/* More data than a program has; a larger mapping is not looked through. */
#define SCAN_MAX (256UL << 20)

const struct app_symbol ops_table_symbol = { "rte_mempool_ops_table",
	sizeof(struct rte_mempool_ops_table) };

bool
ops_table_valid(const struct rte_mempool_ops_table *table, const struct ops_code *code)
{
	const struct rte_mempool_ops *ops;
	unsigned int i, j, k;

	if (table->num_ops == 0 || table->num_ops > RTE_MEMPOOL_MAX_OPS_IDX)
		return false;
	for (i = 0; i < table->num_ops; i++) {
		ops = &table->ops[i];
		const uintptr_t functions[] = { (uintptr_t)ops->alloc, (uintptr_t)ops->enqueue,
			(uintptr_t)ops->dequeue, (uintptr_t)ops->get_count };

		if (ops->name[0] == '\0' ||
				strnlen(ops->name, sizeof(ops->name)) == sizeof(ops->name))
			return false;
		for (j = 0; j < i; j++)
			if (strcmp(ops->name, table->ops[j].name) == 0)
				return false;
		for (j = 0; j < RTE_DIM(functions); j++) {
			for (k = 0; k < code->nb; k++)
				if (functions[j] >= code->ranges[k].start &&
						functions[j] < code->ranges[k].end)
					break;
			if (k == code->nb)
				return false;
		}
	}
	return ops_table_index(table, KNOWN_OPS) >= 0;
}

int
ops_table_index(const struct rte_mempool_ops_table *table, const char *name)
{
	unsigned int i;

	for (i = 0; i < table->num_ops; i++)
		if (strncmp(table->ops[i].name, name, sizeof(table->ops[i].name)) == 0)
			return (int)i;
	return -1;
}

const struct rte_mempool_ops_table *
ops_table_scan(const void *data, size_t size, const struct ops_code *code)
{
	const uint8_t *bytes = data;
	size_t at, i, back;

	for (at = 0; at + sizeof(struct rte_mempool_ops) <= size; at += RTE_CACHE_LINE_SIZE) {
		if (memcmp(bytes + at, KNOWN_OPS, sizeof(KNOWN_OPS)) != 0)
			continue;
		for (i = 0; i < RTE_MEMPOOL_MAX_OPS_IDX; i++) {
			back = offsetof(struct rte_mempool_ops_table, ops) +
			       i * sizeof(struct rte_mempool_ops);
			if (back > at || size - (at - back) < sizeof(struct rte_mempool_ops_table))
				continue;
			if (ops_table_valid((const void *)(bytes + at - back), code))
				return (const void *)(bytes + at - back);
		}
	}
	return NULL;
}

/* Where there is code; what does not fit is taken for none. */
static void
collect_code(FILE *maps, struct ops_code *code)
{
	struct mapping m;

	rewind(maps);
	code->nb = 0;
	while (code->nb < RTE_DIM(code->ranges) && app_memory_next(maps, &m)) {
		if (m.perms[2] != 'x')
			continue;
		code->ranges[code->nb].start = m.start;
		code->ranges[code->nb++].end = m.end;
	}
}

static bool
read_by_symbol(const struct ops_code *code, struct rte_mempool_ops_table *table)
{
	const uintptr_t addr = app_memory_symbol(ops_table_symbol.name, sizeof(*table));

	return addr != 0 && app_memory_read(addr, table, sizeof(*table)) &&
	       ops_table_valid(table, code);
}

/* For an executable without symbols: its writable data, and what follows that (its .bss). */
static bool
read_by_scan(FILE *maps, const struct ops_code *code, struct rte_mempool_ops_table *table)
{
	const struct rte_mempool_ops_table *found = NULL;
	struct mapping m;
	size_t len;
	void *data;

	rewind(maps);
	while (found == NULL && app_memory_next(maps, &m)) {
		if (strncmp(m.perms, "rw-p", 4) != 0)
			continue;
		len = m.end - m.start;
		data = len <= SCAN_MAX ? malloc(len) : NULL;
		if (data == NULL)
			continue;
		if (app_memory_read(m.start, data, len))
			found = ops_table_scan(data, len, code);
		if (found != NULL)
			*table = *found;
		free(data);
	}
	return found != NULL;
}

int
ops_table_read(struct rte_mempool_ops_table *table, struct failure *failure)
{
	static struct ops_code code;
	FILE *maps;
	bool found;

	maps = app_memory_maps();
	if (maps == NULL)
		return failure_set(failure, errno, "the app's /proc/PID/maps: %s", strerror(errno));
	collect_code(maps, &code);
	found = read_by_symbol(&code, table) || read_by_scan(maps, &code, table);
	fclose(maps);
	if (found)
		return 0;
	return failure_set(failure, ENOTSUP,
			"no table of mempool ops found in the app: is it a DPDK app of this version?");
}
