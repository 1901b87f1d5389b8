/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_PORTS_H
#define PDUMP_PORTS_H

/*
 * Which port ids an app uses, by the names of its devices. They are in a memzone whose layout is
 * not public: an array at its end, in which each element begins with a name. It is checked by the
 * names of known ports.
 */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include <rte_memzone.h>

#include "failure.h"
#include "options.h"

struct ports {
	uintptr_t names; /* Of port 0, in the app. */
	size_t stride;	 /* From one name to the next. */
};

/* Call when attached. 0, or -1 with the failure. */
int ports_find(struct ports *ports, const struct options *options, struct failure *failure);

/* The same, for a given memzone. */
int ports_find_in(struct ports *ports, const struct rte_memzone *zone,
		const struct options *options, struct failure *failure);

/*
 * The name of the device with this id, as long as RTE_DEV_NAME_MAX_LEN; empty if there is none.
 * False if it cannot be read.
 */
bool ports_name(const struct ports *ports, uint16_t id, char *name);

/* The highest id in use that is at least `from`; -1 if there is none. */
int ports_highest(const struct ports *ports, uint16_t from);

#endif /* PDUMP_PORTS_H */
