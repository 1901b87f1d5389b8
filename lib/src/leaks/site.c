/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <rte_common.h>
#include <rte_string_fns.h>

#include "pmdscope.h"
#include "site.h"

#define STAGE_NAME_MAX 63
/* Represents all sites that did not fit into the table. */
#define SITE_OTHER (PMDSCOPE_SITES_MAX - 1)
/* The rest of a long path says more than its beginning. */
#define FILE_MAX (PMDSCOPE_TEXT_MAX - 12)

static struct pmdscope_site_info sites[PMDSCOPE_SITES_MAX] = {
	[PMDSCOPE_SITE_UNTRACED] = { .name = "untraced code", .operation = "take", .ready = true },
	[SITE_OTHER] = { .name = "other sites", .operation = "other", .ready = true },
};
static uint32_t nb_sites = 1;

/* Held to register a stage. Sites are registered without it, by poll loops. */
static pthread_mutex_t stages_lock = PTHREAD_MUTEX_INITIALIZER;

const struct pmdscope_site_info *
pmdscope_site_info(unsigned int id)
{
	if (id == 0 || id >= PMDSCOPE_SITES_MAX ||
			!__atomic_load_n(&sites[id].ready, __ATOMIC_ACQUIRE))
		return NULL;
	return &sites[id];
}

unsigned int
pmdscope_site_end(void)
{
	const uint32_t nb = __atomic_load_n(&nb_sites, __ATOMIC_RELAXED);

	return nb < PMDSCOPE_SITE_UNTRACED ? nb : PMDSCOPE_SITES_MAX;
}

/* The number of a free place, or 0. */
static uint32_t
take_place(void)
{
	uint32_t id = __atomic_load_n(&nb_sites, __ATOMIC_RELAXED);

	while (id < PMDSCOPE_SITE_UNTRACED)
		if (__atomic_compare_exchange_n(&nb_sites, &id, id + 1, false, __ATOMIC_RELAXED,
				    __ATOMIC_RELAXED))
			return id;
	return 0;
}

static void
publish(struct pmdscope_site_info *info)
{
	__atomic_store_n(&info->ready, true, __ATOMIC_RELEASE);
}

static bool
is_one_of(const char *operation, const char *const *operations)
{
	for (; *operations != NULL; operations++)
		if (strcmp(operation, *operations) == 0)
			return true;
	return false;
}

static void
describe_operation(struct pmdscope_site_info *info, const char *operation)
{
	static const char *const sources[] = { "rx_burst", "alloc", "alloc_bulk", "raw_alloc",
		"clone", "copy", "ipv4_fragment", "ipv6_fragment", "ipv4_fragment_copy",
		"gso_segment", NULL };
	static const char *const clones[] = { "clone", "attach", "ipv4_fragment", "ipv6_fragment",
		"gso_segment", NULL };
	/* Places inside of DPDK where packets may wait for any time. */
	static const char *const holds[] = { "tx_buffer", "ip_frag_table", "reorder_buffer",
		"distributor", "gro_table", NULL };

	strlcpy(info->operation, operation, sizeof(info->operation));
	info->source = is_one_of(operation, sources);
	info->clones = is_one_of(operation, clones);
	info->hold = is_one_of(operation, holds);
	info->rx = strcmp(operation, "rx_burst") == 0;
	info->keeps = strcmp(operation, "prefree_seg") == 0;
}

/* Not snprintf(): this may be the first packet of a poll loop. */
static void
describe(struct pmdscope_site_info *info, const struct pmdscope_site *site)
{
	const char *file = site->file;
	char digits[10];
	uint32_t line = site->line;
	unsigned int n = 0;
	size_t at;

	while (strncmp(file, "../", 3) == 0)
		file += 3;
	at = strlen(file);
	file += at > FILE_MAX ? at - FILE_MAX : 0;
	at = strlcpy(info->name, file, sizeof(info->name));
	do {
		digits[n++] = (char)('0' + line % 10);
		line /= 10;
	} while (line != 0);
	info->name[at++] = ':';
	while (n > 0)
		info->name[at++] = digits[--n];
	info->name[at] = '\0';
	strlcpy(info->function, site->function, sizeof(info->function));
	describe_operation(info, site->operation);
}

/* If two threads register a site at the same time, one of the places remains unused. */
uint32_t
pmdscope_site_register(struct pmdscope_site *site)
{
	uint32_t id = take_place(), others = 0;

	if (id == 0)
		id = SITE_OTHER;
	else
		describe(&sites[id], site);
	publish(&sites[id]);
	if (!__atomic_compare_exchange_n(
			    &site->id, &others, id, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		return others;
	return id;
}

static int
find_stage(const char *name)
{
	unsigned int id;

	for (id = 1; id < pmdscope_site_end(); id++)
		if (sites[id].ready && sites[id].stage &&
				strcmp(sites[id].name + strlen("stage "), name) == 0)
			return (int)id;
	return 0;
}

static int
add_stage(const char *name)
{
	const uint32_t id = take_place();

	if (id == 0)
		return -ENOSPC;
	snprintf(sites[id].name, sizeof(sites[id].name), "stage %s", name);
	strlcpy(sites[id].operation, "mark", sizeof(sites[id].operation));
	sites[id].stage = true;
	publish(&sites[id]);
	return (int)id;
}

int
pmdscope_stage(const char *name)
{
	int id;

	if (name == NULL || name[0] == '\0' || strlen(name) > STAGE_NAME_MAX)
		return -EINVAL;
	pthread_mutex_lock(&stages_lock);
	id = find_stage(name);
	if (id == 0)
		id = add_stage(name);
	pthread_mutex_unlock(&stages_lock);
	return id;
}

int
pmdscope_stage_hold(int stage)
{
	if (stage <= 0 || pmdscope_site_info((unsigned int)stage) == NULL || !sites[stage].stage)
		return -EINVAL;
	__atomic_store_n(&sites[stage].hold, true, __ATOMIC_RELAXED);
	return 0;
}
