/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <ctype.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "pacer.h"
#include "settings.h"
#include "values.h"

#define MAX_HOT_TIMES 64
#define MAX_VLAN 4094
#define PRIORITY_SHIFT 13
#define MIN_SPEED 1e-3
#define MAX_SPEED 1e6

int
parse_mac(const struct option_spec *spec, const char *text)
{
	struct rte_ether_addr *mac = spec->field;

	if (mac == &settings.path.dst_mac) {
		settings.resolve = strcmp(text, "auto") == 0;
		if (settings.resolve)
			return 0;
	}
	if (rte_ether_unformat_addr(text, mac) != 0)
		return option_refuse(spec, text, "a MAC address such as 02:00:00:00:00:01");
	if (mac == &settings.path.src_mac) {
		settings.own_src_mac = false;
		if (rte_is_multicast_ether_addr(mac))
			return option_refuse(
					spec, text, "an address that can send: it is multicast");
	}
	return 0;
}

int
parse_stall(const struct option_spec *spec, const char *text)
{
	return option_time_every(spec, text, &settings.stall_us, &settings.stall_every_ms);
}

/* "Q:N" */
int
parse_hot_queue(const struct option_spec *spec, const char *text)
{
	uint64_t queue, times;
	const char *rest;

	if (!option_number(text, ':', 0, UINT16_MAX, &queue, &rest) ||
			!option_number(rest, '\0', 2, MAX_HOT_TIMES, &times, NULL))
		return option_refuse(spec, text, "Q:N, a queue and a number from 2 to 64");
	settings.hot_queue = (uint16_t)queue;
	settings.hot_times = (uint32_t)times;
	return 0;
}

int
parse_speed(const struct option_spec *spec, const char *text)
{
	char *end = NULL;
	double speed = 0;

	if (isdigit((unsigned char)*text))
		speed = strtod(text, &end);
	/* Written so that a NaN fails as well. */
	if (end == NULL || *end != '\0' || !(speed >= MIN_SPEED && speed <= MAX_SPEED))
		return option_refuse(
				spec, text, "a number from 0.001 to 1000000, such as 1 or 0.5");
	settings.replay_speed = speed;
	return 0;
}

/* "ID" or "ID:PCP" */
int
parse_vlan(const struct option_spec *spec, const char *text)
{
	const bool has_priority = strchr(text, ':') != NULL;
	uint64_t id, priority = 0;
	const char *rest;

	if (!option_number(text, has_priority ? ':' : '\0', 0, MAX_VLAN, &id, &rest) ||
			(has_priority && !option_number(rest, '\0', 0, 7, &priority, NULL)))
		return option_refuse(spec, text, "ID[:PCP], from 0 to 4094 and from 0 to 7");
	settings.path.tagged = true;
	settings.path.tci = (uint16_t)(priority << PRIORITY_SHIFT | id);
	return 0;
}

static const char *const paces[] = {
	[PACER_PACKETS] = "packets",
	[PACER_DUE] = "due",
	[PACER_BURSTS] = "bursts",
};

const char *
settings_pace(void)
{
	return settings.rate == 0 ? "none" : paces[settings.pace];
}

/* A double; "0.001" or "0.001%". */
int
parse_percent(const struct option_spec *spec, const char *text)
{
	char *after;
	const double percent = strtod(text, &after);

	if (*after == '%')
		after++;
	/* Written so that a NaN fails as well. */
	if (text[0] < '0' || text[0] > '9' || *after != '\0' || !(percent <= (double)spec->max))
		return option_refuse(spec, text, "a percentage from 0 to 100, such as 0.001%%");
	*(double *)spec->field = percent;
	return 0;
}

/* "200k" or "90%". The last one given counts. */
int
parse_rate_or_percent(const struct option_spec *spec, const char *text)
{
	const struct option_spec percent = {
		.name = spec->name, .field = &settings.rate_percent, .max = 100
	};
	const size_t len = strlen(text);

	settings.rate = 0;
	settings.rate_percent = 0;
	if (len == 0 || text[len - 1] != '%')
		return option_rate(spec, text);
	if (parse_percent(&percent, text) != 0)
		return -EINVAL;
	return settings.rate_percent > 0 ? 0 : option_refuse(spec, text, "more than 0 %%");
}

int
parse_pace(const struct option_spec *spec, const char *text)
{
	unsigned int i;

	for (i = 0; i < RTE_DIM(paces); i++) {
		if (strcmp(text, paces[i]) == 0) {
			settings.pace = (enum pacer_mode)i;
			return 0;
		}
	}
	return option_refuse(spec, text, "packets, due or bursts");
}
