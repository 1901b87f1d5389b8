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

/* More rows than this have no room; there are not that many bugs. */
#define LOSSES_MAX 8192

static struct pmdscope_loss *losses;
static unsigned int nb_losses, capacity;
/* Where the next question most likely goes. */
static unsigned int hint;

static bool
is(const struct pmdscope_loss *loss, unsigned int pool, uint32_t place,
		enum pmdscope_loss_kind kind)
{
	return loss->pool == pool && loss->place == place && loss->kind == kind;
}

static struct pmdscope_loss *
append(unsigned int pool, uint32_t place, enum pmdscope_loss_kind kind)
{
	if (nb_losses == LOSSES_MAX)
		return NULL;
	if (nb_losses == capacity) {
		const unsigned int grown = capacity == 0 ? 16 : 2 * capacity;
		struct pmdscope_loss *items = realloc(losses, grown * sizeof(*items));

		if (items == NULL)
			return NULL;
		losses = items;
		capacity = grown;
	}
	losses[nb_losses] = (struct pmdscope_loss){ .pool = pool, .place = place, .kind = kind };
	pmdscope_rows_changed();
	return &losses[nb_losses++];
}

struct pmdscope_loss *
pmdscope_loss_get(unsigned int pool, uint32_t place, enum pmdscope_loss_kind kind)
{
	unsigned int i;

	if (hint < nb_losses && is(&losses[hint], pool, place, kind))
		return &losses[hint];
	for (i = 0; i < nb_losses; i++)
		if (is(&losses[i], pool, place, kind)) {
			hint = i;
			return &losses[i];
		}
	return append(pool, place, kind);
}

static bool
is_misuse(const struct pmdscope_loss *loss)
{
	return loss->kind == PMDSCOPE_LOSS_DOUBLE_FREE ||
	       loss->kind == PMDSCOPE_LOSS_USE_AFTER_FREE;
}

void
pmdscope_loss_event(struct pmdscope_loss *loss)
{
	const uint32_t now = pmdscope_ledger_clock_ms();

	loss->events++;
	if (is_misuse(loss)) {
		loss->oldest_ms = loss->count == 0 ? now : loss->oldest_ms;
		loss->newest_ms = now;
		loss->count++;
	}
	if (loss->first_realtime_ns == 0)
		loss->first_realtime_ns = pmdscope_clock_realtime_ns(rte_rdtsc());
}

void
pmdscope_loss_count(struct pmdscope_loss *loss, uint32_t since_ms)
{
	if (loss->counted == 0 || (int32_t)(since_ms - loss->oldest) < 0)
		loss->oldest = since_ms;
	if (loss->counted == 0 || (int32_t)(since_ms - loss->newest) > 0)
		loss->newest = since_ms;
	loss->counted++;
}

void
pmdscope_loss_publish(unsigned int pool)
{
	unsigned int i;

	for (i = 0; i < nb_losses; i++) {
		struct pmdscope_loss *loss = &losses[i];

		if (loss->pool != pool || is_misuse(loss))
			continue;
		loss->count = loss->counted;
		loss->oldest_ms = loss->oldest;
		loss->newest_ms = loss->newest;
		loss->counted = 0;
	}
}

void
pmdscope_loss_forget(unsigned int pool)
{
	unsigned int i, kept = 0;

	for (i = 0; i < nb_losses; i++)
		if (losses[i].pool != pool)
			losses[kept++] = losses[i];
	if (kept != nb_losses)
		pmdscope_rows_changed();
	nb_losses = kept;
}

void
pmdscope_loss_stop(void)
{
	free(losses);
	losses = NULL;
	nb_losses = 0;
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
loss_count(void)
{
	return nb_losses;
}

static void
loss_fill(unsigned int i, struct pmdscope_row *row)
{
	const struct pmdscope_loss *loss = &losses[i];
	const struct pmdscope_site_info *info =
			pmdscope_site_info(PMDSCOPE_STAMP_SITE_ID((uint64_t)loss->place));
	const uint32_t now = pmdscope_ledger_clock_ms();
	char name[PMDSCOPE_TEXT_MAX];

	pmdscope_place_name(loss->place, name);
	pmdscope_row_str(row, POOL, pmdscope_ledger_pool_name(loss->pool));
	pmdscope_row_str(row, SITE, name);
	pmdscope_row_str(row, FUNCTION,
			info != NULL && !pmdscope_place_is_unproven(loss->place) ? info->function
										 : "");
	pmdscope_row_str(row, OPERATION, pmdscope_place_operation(loss->place));
	pmdscope_row_str(row, KIND, kinds[loss->kind]);
	pmdscope_row_u64(row, ID, 0, loss->place);
	pmdscope_row_u64(row, COUNT, 0, loss->count);
	pmdscope_row_u64(row, EVENTS, 0, loss->events);
	if (loss->count != 0) {
		pmdscope_row_u64(row, OLDEST_MS, 0, now - loss->oldest_ms);
		pmdscope_row_u64(row, NEWEST_MS, 0, now - loss->newest_ms);
	}
	pmdscope_row_u64(row, FIRST, 0, loss->first_realtime_ns);
}

const struct pmdscope_table pmdscope_loss_table = {
	.name = "sites",
	.help = "Lost and misused mbufs by site. Parameters: int offset",
	.columns = columns,
	.nb_columns = RTE_DIM(columns),
	.count = loss_count,
	.fill = loss_fill,
};
