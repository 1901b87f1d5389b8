/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <string.h>

#include "lost_ports.h"

enum place {
	PLACE_KEPT,
	PLACE_EMPTY,
	PLACE_TAKEN, /* By another device. */
};

/* What is at the id of a tap's port. `name` is that of the device there. */
static enum place
look(const struct state_tap *tap, const struct ports *ports, char name[RTE_DEV_NAME_MAX_LEN])
{
	if (!ports_name(ports, tap->port, name) || strcmp(name, tap->device) == 0)
		return PLACE_KEPT; /* What cannot be read is not judged. */
	return name[0] == '\0' ? PLACE_EMPTY : PLACE_TAKEN;
}

/* Have the pump pass over packets of a port, or copy them. */
static void
copy_port(struct pump *pump, uint16_t port, bool copied)
{
	unsigned int i;

	for (i = 0; i < pump->nb_taps; i++)
		if (pump->taps[i].port == port)
			pump->taps[i].armed = copied;
}

static void
report(struct lost_ports *lost, struct pump *pump, const struct state_tap *tap, enum place place,
		const char *name)
{
	bool *const is_lost = &lost->lost[tap->port], *const replaced = &lost->replaced[tap->port];

	if (place != PLACE_KEPT && !*is_lost)
		note("port %u (%s) was removed by the app; the capture goes on without it",
				tap->port, tap->device);
	if (place == PLACE_KEPT && *is_lost) {
		note("port %u (%s) is back in the capture", tap->port, tap->device);
		copy_port(pump, tap->port, true);
	}
	if (place == PLACE_TAKEN && !*replaced) {
		note("port %u is now %s, which is not captured", tap->port, name);
		copy_port(pump, tap->port, false);
	}
	*is_lost = place != PLACE_KEPT;
	*replaced = place == PLACE_TAKEN;
}

/* The next tap of another port; taps of a port follow each other. */
static unsigned int
next_port(const struct pump *pump, unsigned int i)
{
	const uint16_t port = pump->taps[i].port;

	while (i < pump->nb_taps && pump->taps[i].port == port)
		i++;
	return i;
}

int
lost_ports_check(struct lost_ports *lost, struct pump *pump, const struct ports *ports,
		struct failure *failure)
{
	char name[RTE_DEV_NAME_MAX_LEN];
	const struct state_tap *last = pump->taps;
	bool any = false;
	unsigned int i;

	for (i = 0; !any && i < pump->nb_taps; i = next_port(pump, i)) {
		any = look(&pump->taps[i], ports, name) == PLACE_KEPT;
		if (!lost->lost[pump->taps[i].port])
			last = &pump->taps[i];
	}
	if (!any)
		return failure_set(failure, ENODEV, "port %u (%.64s) was removed by the app",
				last->port, last->device);
	for (i = 0; i < pump->nb_taps; i = next_port(pump, i))
		report(lost, pump, &pump->taps[i], look(&pump->taps[i], ports, name), name);
	return 0;
}
