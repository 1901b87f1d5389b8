/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_LOST_PORTS_H
#define PDUMP_LOST_PORTS_H

/*
 * Ports of a capture that the app removes, as after the removal of a VF, and adds again. Once the
 * same device is back under the same id, the app calls the callbacks again that it has kept.
 */

#include <stdbool.h>

#include <rte_ethdev.h>

#include "failure.h"
#include "ports.h"
#include "pump.h"

struct lost_ports {
	bool lost[RTE_MAX_ETHPORTS];	 /* By id: the device is not there. */
	bool replaced[RTE_MAX_ETHPORTS]; /* Another one is. */
};

/*
 * Report ports that were removed or are back since the last call, and have the pump pass over
 * packets of other devices. 0, or -1 with the failure if no port is left.
 */
int lost_ports_check(struct lost_ports *lost, struct pump *pump, const struct ports *ports,
		struct failure *failure);

#endif /* PDUMP_LOST_PORTS_H */
