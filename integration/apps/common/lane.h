/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef LANE_H
#define LANE_H

/*
 * A lane is one queue pair of one port. Lanes are assigned to lcores round-robin: each is polled by
 * exactly one lcore, and the numbers of lanes per lcore differ by at most one.
 */

#include <stdint.h>

#include <rte_config.h>

struct lane {
	uint16_t port;
	uint16_t queue;
	unsigned int lcore;
};

struct lanes {
	/* Lanes of one lcore are adjacent, beginning at first[lcore]. */
	struct lane *lane;
	unsigned int nb_lanes;
	unsigned int first[RTE_MAX_LCORE];
	unsigned int count[RTE_MAX_LCORE];
};

/* Distribute the queues of all ports over the lcores. 0 or -ENOMEM. */
int lanes_deal(struct lanes *lanes, const uint16_t *ports, unsigned int nb_ports,
		unsigned int queues, const unsigned int *lcores, unsigned int nb_lcores);

void lanes_free(struct lanes *lanes);

#endif /* LANE_H */
