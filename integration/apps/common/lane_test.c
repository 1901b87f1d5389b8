/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include "check.h"
#include "lane.h"

/* Every queue is polled by one lcore, and no lcore has two more than another. */
static void
check_deal(unsigned int nb_ports, unsigned int queues, unsigned int nb_lcores)
{
	const uint16_t ports[] = { 3, 0, 7, 9 };
	const unsigned int lcores[] = { 1, 2, 5, 127, 64 };
	unsigned int seen[10][8] = { { 0 } }, least = UINT32_MAX, most = 0, i, j;
	struct lanes lanes;

	CHECK_EQ(lanes_deal(&lanes, ports, nb_ports, queues, lcores, nb_lcores), 0);
	CHECK_EQ(lanes.nb_lanes, nb_ports * queues);
	for (i = 0; i < nb_lcores; i++) {
		const unsigned int first = lanes.first[lcores[i]], count = lanes.count[lcores[i]];

		least = count < least ? count : least;
		most = count > most ? count : most;
		for (j = first; j < first + count; j++) {
			CHECK_EQ(lanes.lane[j].lcore, lcores[i]);
			seen[lanes.lane[j].port][lanes.lane[j].queue]++;
		}
	}
	CHECK(most - least <= 1);
	for (i = 0; i < nb_ports; i++)
		for (j = 0; j < queues; j++)
			CHECK_EQ(seen[ports[i]][j], 1);
	lanes_free(&lanes);
}

int
main(void)
{
	unsigned int nb_ports, queues, nb_lcores;

	for (nb_ports = 1; nb_ports <= 4; nb_ports++)
		for (queues = 1; queues <= 8; queues++)
			for (nb_lcores = 1; nb_lcores <= 5; nb_lcores++)
				check_deal(nb_ports, queues, nb_lcores);
	return 0;
}
