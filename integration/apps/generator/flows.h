/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef FLOWS_H
#define FLOWS_H

/*
 * Ranges of ports and addresses. Packets use all combinations in turn: source ports change with
 * each packet, then destination ports, source addresses, destination addresses, like the digits of
 * an odometer.
 */

#include <stdbool.h>
#include <stdint.h>

enum flow_field {
	FLOW_SRC_PORT,
	FLOW_DST_PORT,
	FLOW_SRC_IP, /* The last 32 bits, as those of IPv6 addresses in the two that follow. */
	FLOW_DST_IP,
	FLOW_FIELDS,
};

/* Values that differ between flows, in host byte order. */
struct flow {
	uint32_t value[FLOW_FIELDS];
};

struct flows {
	struct flow first;
	struct flow last;
	/* Fields with more than one value, the fastest first. */
	enum flow_field varying[FLOW_FIELDS];
	unsigned int nb_varying;
};

/* Valid values, for errors. */
#define FLOWS_PORTS_WANTED "a port from 1 to 65535, or a range A-B"
#define FLOWS_IPV4_WANTED "an IPv4 address, a range A-B, or a prefix A/N; --ipv6 sends IPv6"
#define FLOWS_IPV6_WANTED \
	"an IPv6 address, a range A-B whose ends differ in the last 32 bits, or a prefix A/N " \
	"with N from 96, as --ipv6 asks for"

/* Read "PORT" or "A-B". False if text is neither; flows is then untouched. */
bool flows_parse_ports(struct flows *flows, enum flow_field field, const char *text);

/*
 * Read "A", "A-B" or "A/N", and the first address into address, which has 16 bytes for IPv6,
 * otherwise 4. False if text is none of these; address and flows are then untouched.
 */
bool flows_parse_ips(struct flows *flows, enum flow_field field, const char *text, bool ipv6,
		uint8_t *address);

/* Note which fields vary, once all ranges are set. */
void flows_prepare(struct flows *flows);

/* Go to the next combination, after the last one to the first. */
static inline void
flows_next(const struct flows *flows, struct flow *flow)
{
	unsigned int i;

	for (i = 0; i < flows->nb_varying; i++) {
		const enum flow_field field = flows->varying[i];

		if (flow->value[field] != flows->last.value[field]) {
			flow->value[field]++;
			return;
		}
		flow->value[field] = flows->first.value[field];
	}
}

#endif /* FLOWS_H */
