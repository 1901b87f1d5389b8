/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <arpa/inet.h>
#include <string.h>

#include "flows.h"
#include "options.h"

#define MAX_PORT 65535
#define TAIL_BITS 32
/* Longer than any range of two addresses. */
#define MAX_TEXT (2 * INET6_ADDRSTRLEN + 2)

/* An address, split into the fixed and the variable part of a range. */
struct address {
	uint8_t bytes[16];
	uint32_t tail;
};

static void
set(struct flows *flows, enum flow_field field, uint32_t first, uint32_t last)
{
	flows->first.value[field] = first;
	flows->last.value[field] = last;
}

bool
flows_parse_ports(struct flows *flows, enum flow_field field, const char *text)
{
	uint64_t first, last;
	const char *rest = text;

	if (strchr(text, '-') != NULL) {
		if (!option_number(text, '-', 1, MAX_PORT, &first, &rest) ||
				!option_number(rest, '\0', first, MAX_PORT, &last, NULL))
			return false;
	} else {
		if (!option_number(text, '\0', 1, MAX_PORT, &first, NULL))
			return false;
		last = first;
	}
	set(flows, field, (uint32_t)first, (uint32_t)last);
	return true;
}

static size_t
size_of(bool ipv6)
{
	return ipv6 ? 16 : 4;
}

static bool
read_address(const char *text, bool ipv6, struct address *address)
{
	uint32_t tail;

	if (inet_pton(ipv6 ? AF_INET6 : AF_INET, text, address->bytes) != 1)
		return false;
	memcpy(&tail, address->bytes + size_of(ipv6) - sizeof(tail), sizeof(tail));
	address->tail = ntohl(tail);
	return true;
}

/* Set the address to the first of its prefix; also returns the last. */
static bool
read_prefix(const char *text, bool ipv6, struct address *address, uint32_t *last)
{
	const unsigned int bits = ipv6 ? 128 : 32;
	uint64_t length;
	uint32_t tail, mask;

	if (!option_number(text, '\0', bits - TAIL_BITS, bits, &length, NULL))
		return false;
	mask = (uint32_t)((UINT64_C(1) << (bits - length)) - 1);
	address->tail &= ~mask;
	*last = address->tail | mask;
	tail = htonl(address->tail);
	memcpy(address->bytes + size_of(ipv6) - sizeof(tail), &tail, sizeof(tail));
	return true;
}

static bool
read_end(const char *text, bool ipv6, const struct address *first, uint32_t *last)
{
	struct address end;

	if (!read_address(text, ipv6, &end) || end.tail < first->tail ||
			memcmp(end.bytes, first->bytes, size_of(ipv6) - sizeof(end.tail)) != 0)
		return false;
	*last = end.tail;
	return true;
}

bool
flows_parse_ips(struct flows *flows, enum flow_field field, const char *text, bool ipv6,
		uint8_t *address)
{
	struct address first;
	char copy[MAX_TEXT], *separator;
	uint32_t last;
	char kind;
	bool ok;

	if (strlen(text) >= sizeof(copy))
		return false;
	strcpy(copy, text);
	separator = strpbrk(copy, "-/");
	kind = separator != NULL ? *separator : '\0';
	if (separator != NULL)
		*separator++ = '\0';
	if (!read_address(copy, ipv6, &first))
		return false;
	last = first.tail;
	ok = kind == '\0' || (kind == '/' ? read_prefix(separator, ipv6, &first, &last)
					  : read_end(separator, ipv6, &first, &last));
	if (!ok)
		return false;
	set(flows, field, first.tail, last);
	memcpy(address, first.bytes, size_of(ipv6));
	return true;
}

void
flows_prepare(struct flows *flows)
{
	enum flow_field field;

	flows->nb_varying = 0;
	for (field = 0; field < FLOW_FIELDS; field++)
		if (flows->first.value[field] != flows->last.value[field])
			flows->varying[flows->nb_varying++] = field;
}
