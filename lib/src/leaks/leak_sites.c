/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdlib.h>

#include "clock.h"
#include "ledger.h"
#include "leak_sites.h"
#include "site.h"
#include "stage.h"
#include "stamp.h"

/* Maximum number of rows; more are not expected. */
#define SITES_MAX 8192

static struct pmdscope_leak_site *sites;
static unsigned int nb_sites, capacity;
/* Index of the row that is most likely asked for next. */
static unsigned int hint;

static bool
is(const struct pmdscope_leak_site *site, unsigned int pool, uint32_t place,
		enum pmdscope_loss_kind kind)
{
	return site->pool == pool && site->place == place && site->kind == kind;
}

static struct pmdscope_leak_site *
append(unsigned int pool, uint32_t place, enum pmdscope_loss_kind kind)
{
	if (nb_sites == SITES_MAX)
		return NULL;
	if (nb_sites == capacity) {
		const unsigned int grown = capacity == 0 ? 16 : 2 * capacity;
		struct pmdscope_leak_site *items = realloc(sites, grown * sizeof(*items));

		if (items == NULL)
			return NULL;
		sites = items;
		capacity = grown;
	}
	sites[nb_sites] = (struct pmdscope_leak_site){ .pool = pool, .place = place, .kind = kind };
	pmdscope_rows_changed();
	return &sites[nb_sites++];
}

struct pmdscope_leak_site *
pmdscope_leak_site_get(unsigned int pool, uint32_t place, enum pmdscope_loss_kind kind)
{
	unsigned int i;

	if (hint < nb_sites && is(&sites[hint], pool, place, kind))
		return &sites[hint];
	for (i = 0; i < nb_sites; i++)
		if (is(&sites[i], pool, place, kind)) {
			hint = i;
			return &sites[i];
		}
	return append(pool, place, kind);
}

static bool
is_misuse(const struct pmdscope_leak_site *site)
{
	return site->kind == PMDSCOPE_LOSS_DOUBLE_FREE ||
	       site->kind == PMDSCOPE_LOSS_USE_AFTER_FREE;
}

void
pmdscope_leak_site_event(struct pmdscope_leak_site *site)
{
	const uint32_t now = pmdscope_ledger_clock_ms();

	site->events++;
	if (is_misuse(site)) {
		site->oldest_ms = site->count == 0 ? now : site->oldest_ms;
		site->newest_ms = now;
		site->count++;
	}
	if (site->first_realtime_ns == 0)
		site->first_realtime_ns = pmdscope_clock_realtime_ns(rte_rdtsc());
}

void
pmdscope_leak_site_count(struct pmdscope_leak_site *site, uint32_t since_ms)
{
	if (site->counted == 0 || (int32_t)(since_ms - site->oldest) < 0)
		site->oldest = since_ms;
	if (site->counted == 0 || (int32_t)(since_ms - site->newest) > 0)
		site->newest = since_ms;
	site->counted++;
}

void
pmdscope_leak_site_publish(unsigned int pool)
{
	unsigned int i;

	for (i = 0; i < nb_sites; i++) {
		struct pmdscope_leak_site *site = &sites[i];

		if (site->pool != pool || is_misuse(site))
			continue;
		site->count = site->counted;
		site->oldest_ms = site->oldest;
		site->newest_ms = site->newest;
		site->counted = 0;
	}
}

void
pmdscope_leak_site_forget(unsigned int pool)
{
	unsigned int i, kept = 0;

	for (i = 0; i < nb_sites; i++)
		if (sites[i].pool != pool)
			sites[kept++] = sites[i];
	if (kept != nb_sites)
		pmdscope_rows_changed();
	nb_sites = kept;
}

void
pmdscope_leak_site_stop(void)
{
	free(sites);
	sites = NULL;
	nb_sites = 0;
	capacity = 0;
}

enum {
	POOL,
	SITE,
	FUNCTION,
	OPERATION,
	KIND,
	ID,
	COUNT,
	EVENTS,
	OLDEST_MS,
	NEWEST_MS,
	FIRST,
};

static const struct pmdscope_column columns[] = {
	[POOL] = { "pool", PMDSCOPE_COLUMN_STR, 1 },
	[SITE] = { "site", PMDSCOPE_COLUMN_STR, 1 },
	[FUNCTION] = { "function", PMDSCOPE_COLUMN_STR, 1 },
	[OPERATION] = { "operation", PMDSCOPE_COLUMN_STR, 1 },
	[KIND] = { "kind", PMDSCOPE_COLUMN_STR, 1 },
	[ID] = { "id", PMDSCOPE_COLUMN_U64, 1 },
	[COUNT] = { "count", PMDSCOPE_COLUMN_U64, 1 },
	[EVENTS] = { "events", PMDSCOPE_COLUMN_U64, 1 },
	[OLDEST_MS] = { "oldest_ms", PMDSCOPE_COLUMN_U64, 1 },
	[NEWEST_MS] = { "newest_ms", PMDSCOPE_COLUMN_U64, 1 },
	[FIRST] = { "first_realtime_ns", PMDSCOPE_COLUMN_U64, 1 },
};

static const char *const kinds[] = {
	[PMDSCOPE_LOSS_NONE] = "",
	[PMDSCOPE_LOSS_LEAK] = "leak",
	[PMDSCOPE_LOSS_TX] = "tx_lost",
	[PMDSCOPE_LOSS_PINNED] = "pinned",
	[PMDSCOPE_LOSS_DOUBLE_FREE] = "double_free",
	[PMDSCOPE_LOSS_USE_AFTER_FREE] = "use_after_free",
};

static unsigned int
site_count(void)
{
	return nb_sites;
}

static void
site_fill(unsigned int i, struct pmdscope_row *row)
{
	const struct pmdscope_leak_site *site = &sites[i];
	const struct pmdscope_site_info *info =
			pmdscope_site_info(PMDSCOPE_STAMP_SITE_ID((uint64_t)site->place));
	const uint32_t now = pmdscope_ledger_clock_ms();
	char name[PMDSCOPE_TEXT_MAX];

	pmdscope_place_name(site->place, name);
	pmdscope_row_str(row, POOL, pmdscope_ledger_pool_name(site->pool));
	pmdscope_row_str(row, SITE, name);
	pmdscope_row_str(row, FUNCTION,
			info != NULL && !pmdscope_place_is_unproven(site->place) ? info->function
										 : "");
	pmdscope_row_str(row, OPERATION, pmdscope_place_operation(site->place));
	pmdscope_row_str(row, KIND, kinds[site->kind]);
	pmdscope_row_u64(row, ID, 0, site->place);
	pmdscope_row_u64(row, COUNT, 0, site->count);
	pmdscope_row_u64(row, EVENTS, 0, site->events);
	if (site->count != 0) {
		pmdscope_row_u64(row, OLDEST_MS, 0, now - site->oldest_ms);
		pmdscope_row_u64(row, NEWEST_MS, 0, now - site->newest_ms);
	}
	pmdscope_row_u64(row, FIRST, 0, site->first_realtime_ns);
}

const struct pmdscope_table pmdscope_leak_sites_table = {
	.name = "sites",
	.help = "Lost and misused mbufs by site. Parameters: int offset",
	.columns = columns,
	.nb_columns = RTE_DIM(columns),
	.count = site_count,
	.fill = site_fill,
};
