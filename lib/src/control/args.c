/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>
#include <rte_kvargs.h>

#include "args.h"
#include "log.h"

#define OPTION "--pmdscope"
#define VARIABLE "PMDSCOPE_LEAK_MODE"
#define LEAK_MODE "leak_mode"
#define QUEUE_COUNTERS "queue_counters"

static const char *const leak_modes[] = {
	[PMDSCOPE_LEAK_AUTO] = "auto",
	[PMDSCOPE_LEAK_ALWAYS] = "always",
	[PMDSCOPE_LEAK_NEVER] = "never",
};

static const struct number {
	const char *key;
	size_t offset;
} numbers[] = {
	{ "sample_ms", offsetof(struct pmdscope_conf, sample_ms) },
	{ "window_ms", offsetof(struct pmdscope_conf, window_ms) },
	{ "stall_us", offsetof(struct pmdscope_conf, stall_us) },
	{ "tee_sessions", offsetof(struct pmdscope_conf, tee_sessions) },
	{ "tee_session_mb", offsetof(struct pmdscope_conf, tee_session_mb) },
	{ "tee_filter_cycles", offsetof(struct pmdscope_conf, tee_filter_cycles) },
	{ "leak_hold_ms", offsetof(struct pmdscope_conf, leak_hold_ms) },
	{ "leak_walk_ms", offsetof(struct pmdscope_conf, leak_walk_ms) },
};

static int
set_leak_mode(const char *source, const char *value, struct pmdscope_conf *conf)
{
	unsigned int i;

	for (i = 0; i < RTE_DIM(leak_modes); i++)
		if (strcmp(value, leak_modes[i]) == 0) {
			conf->leak_mode = (enum pmdscope_leak_mode)i;
			return 0;
		}
	PMDSCOPE_LOG(ERR, "%s is \"%s\", must be auto, always or never", source, value);
	return -EINVAL;
}

static int
set_queue_counters(const char *value, struct pmdscope_conf *conf)
{
	if (strcmp(value, "on_demand") == 0) {
		conf->flags |= PMDSCOPE_F_COUNT_ON_DEMAND;
		return 0;
	}
	if (strcmp(value, "always") == 0) {
		conf->flags &= ~PMDSCOPE_F_COUNT_ON_DEMAND;
		return 0;
	}
	PMDSCOPE_LOG(ERR, OPTION " " QUEUE_COUNTERS " is \"%s\", must be always or on_demand",
			value);
	return -EINVAL;
}

/* pmdscope_init() checks the range. */
static int
set_number(const struct number *number, const char *value, struct pmdscope_conf *conf)
{
	char *end = NULL;
	unsigned long long n;

	errno = 0;
	n = value[0] >= '0' && value[0] <= '9' ? strtoull(value, &end, 10) : 0;
	if (end == NULL || *end != '\0' || errno != 0 || n == 0 || n > UINT32_MAX) {
		PMDSCOPE_LOG(ERR, OPTION " %s is \"%s\", must be a number above 0", number->key,
				value);
		return -EINVAL;
	}
	*(uint32_t *)((uintptr_t)conf + number->offset) = (uint32_t)n;
	return 0;
}

static int
set_pair(const char *key, const char *value, void *conf)
{
	unsigned int i;

	if (value == NULL)
		value = "";
	if (strcmp(key, LEAK_MODE) == 0)
		return set_leak_mode(OPTION " " LEAK_MODE, value, conf);
	if (strcmp(key, QUEUE_COUNTERS) == 0)
		return set_queue_counters(value, conf);
	for (i = 0; i < RTE_DIM(numbers); i++)
		if (strcmp(key, numbers[i].key) == 0)
			return set_number(&numbers[i], value, conf);
	PMDSCOPE_LOG(ERR, OPTION " does not know \"%s\"; see struct pmdscope_conf", key);
	return -EINVAL;
}

static int
parse_pairs(const char *pairs, struct pmdscope_conf *conf)
{
	struct rte_kvargs *kvargs = pairs[0] != '\0' ? rte_kvargs_parse(pairs, NULL) : NULL;
	int ret;

	if (kvargs == NULL) {
		PMDSCOPE_LOG(ERR, OPTION " \"%s\": expected key=value,...", pairs);
		return -EINVAL;
	}
	ret = rte_kvargs_process(kvargs, NULL, set_pair, conf);
	rte_kvargs_free(kvargs);
	return ret != 0 ? -EINVAL : 0;
}

int
pmdscope_parse_args(int argc, char **argv, struct pmdscope_conf *conf)
{
	struct pmdscope_conf parsed = *conf;
	int from, to = 0;

	for (from = 0; from < argc && strcmp(argv[from], "--") != 0; from++) {
		const char *pairs = argv[from] + strlen(OPTION);

		if (from == 0 || strncmp(argv[from], OPTION, strlen(OPTION)) != 0 ||
				(*pairs != '=' && *pairs != '\0')) {
			argv[to++] = argv[from];
			continue;
		}
		if (*pairs == '=')
			pairs++;
		else if (from + 1 < argc)
			pairs = argv[++from];
		if (parse_pairs(pairs, &parsed) != 0)
			return -EINVAL;
	}
	while (from < argc)
		argv[to++] = argv[from++];
	if (to < argc)
		argv[to] = NULL;
	*conf = parsed;
	return to;
}

void
pmdscope_args_environment(struct pmdscope_conf *conf)
{
	const char *value = getenv(VARIABLE);

	if (value != NULL)
		set_leak_mode(VARIABLE, value, conf);
}
