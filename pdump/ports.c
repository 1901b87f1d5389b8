/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <string.h>

#include "app_memory.h"
#include "ports.h"

#define ZONE "rte_eth_dev_data"
/* The part in front of the array is shorter than this, and the elements are aligned. */
#define HEAD RTE_CACHE_LINE_SIZE

/* The app may free the memzone, so its memory is read as that of another process. */
bool
ports_name(const struct ports *ports, uint16_t id, char *name)
{
	if (id >= RTE_MAX_ETHPORTS || !app_memory_read(ports->names + id * ports->stride, name,
						      RTE_DEV_NAME_MAX_LEN))
		return false;
	name[RTE_DEV_NAME_MAX_LEN - 1] = '\0';
	return true;
}

static bool
has_name(const struct ports *ports, const struct port *port)
{
	char name[RTE_DEV_NAME_MAX_LEN];

	return ports_name(ports, port->id, name) && strcmp(name, port->device) == 0;
}

int
ports_find_in(struct ports *ports, const struct rte_memzone *zone, const struct options *options,
		struct failure *failure)
{
	const size_t stride = zone->len > HEAD ? (zone->len - HEAD) / RTE_MAX_ETHPORTS : 0;
	unsigned int i;

	*ports = (struct ports){ .names = zone->addr_64 + HEAD, .stride = stride };
	if (stride < RTE_DEV_NAME_MAX_LEN || stride % RTE_CACHE_LINE_SIZE != 0)
		return failure_set(failure, EPROTONOSUPPORT,
				"the app's list of ports is laid out otherwise: build pmdscope-pdump with its "
				"DPDK");
	for (i = 0; i < options->nb_ports; i++)
		if (!has_name(ports, &options->ports[i]))
			return failure_set(failure, EPROTONOSUPPORT,
					"port %u is not %.40s, or the app's list of ports is laid out "
					"otherwise",
					options->ports[i].id, options->ports[i].device);
	return 0;
}

int
ports_find(struct ports *ports, const struct options *options, struct failure *failure)
{
	const struct rte_memzone *zone = rte_memzone_lookup(ZONE);

	if (zone == NULL)
		return failure_set(failure, ENODEV, "the app has no ports");
	return ports_find_in(ports, zone, options, failure);
}

int
ports_highest(const struct ports *ports, uint16_t from)
{
	int id;
	char c;

	for (id = RTE_MAX_ETHPORTS - 1; id >= from; id--)
		if (app_memory_read(ports->names + (unsigned int)id * ports->stride, &c, 1) &&
				c != '\0')
			return id;
	return -1;
}
