/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lane.h"

int
lanes_deal(struct lanes *lanes, const uint16_t *ports, unsigned int nb_ports, unsigned int queues,
		const unsigned int *lcores, unsigned int nb_lcores)
{
	const unsigned int nb_lanes = nb_ports * queues;
	unsigned int i, n, at = 0;

	memset(lanes, 0, sizeof(*lanes));
	lanes->lane = calloc(nb_lanes, sizeof(*lanes->lane));
	if (lanes->lane == NULL)
		return -ENOMEM;
	lanes->nb_lanes = nb_lanes;

	for (i = 0; i < nb_lcores; i++) {
		lanes->first[lcores[i]] = at;
		for (n = i; n < nb_lanes; n += nb_lcores)
			lanes->lane[at++] = (struct lane){
				.port = ports[n / queues],
				.queue = (uint16_t)(n % queues),
				.lcore = lcores[i],
			};
		lanes->count[lcores[i]] = at - lanes->first[lcores[i]];
	}
	return 0;
}

void
lanes_free(struct lanes *lanes)
{
	free(lanes->lane);
	lanes->lane = NULL;
	lanes->nb_lanes = 0;
}
