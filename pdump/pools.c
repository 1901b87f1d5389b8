/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <string.h>

#include <rte_mempool.h>
#include <rte_memzone.h>

#include "app_memory.h"
#include "pools.h"

#define PREFIX_LEN (sizeof(RTE_MEMPOOL_MZ_PREFIX) - 1)

struct look {
	bool differs;
	char name[RTE_MEMPOOL_NAMESIZE];
	size_t expected, found;
};

size_t
pools_zone_len(const struct rte_mempool *mp)
{
	const size_t header = RTE_MEMPOOL_HEADER_SIZE(mp, mp->cache_size);

	return RTE_ALIGN_CEIL(RTE_ALIGN_CEIL(header + mp->private_data_size, RTE_MEMPOOL_ALIGN),
			RTE_CACHE_LINE_SIZE);
}

/* The app may free a pool at any time, so its memory is read as that of another process. */
static void
look_at(const struct rte_memzone *zone, void *arg)
{
	struct look *look = arg;
	struct rte_mempool mp;

	if (look->differs || strncmp(zone->name, RTE_MEMPOOL_MZ_PREFIX, PREFIX_LEN) != 0 ||
			!app_memory_read((uintptr_t)zone->addr, &mp, sizeof(mp)) || mp.mz != zone ||
			strncmp(mp.name, zone->name + PREFIX_LEN, sizeof(mp.name)) != 0)
		return;
	look->expected = pools_zone_len(&mp);
	look->found = zone->len;
	look->differs = look->expected != look->found;
	memcpy(look->name, mp.name, sizeof(look->name));
}

int
pools_check(struct failure *failure)
{
	struct look look = { 0 };

	rte_memzone_walk(look_at, &look);
	if (!look.differs)
		return 0;
	return failure_set(failure, EPROTONOSUPPORT,
			"mempool %.26s has %zu bytes of header, not %zu: build pmdscope-pdump with the "
			"app's DPDK",
			look.name, look.found, look.expected);
}
