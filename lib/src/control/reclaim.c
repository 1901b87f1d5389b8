/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdlib.h>
#include <unistd.h>

#include <rte_malloc.h>

#include "lcore.h"
#include "reclaim.h"

struct graveyard {
	void **items;
	unsigned int nb;
	unsigned int capacity;
};

/* New entries, and those in their grace period. */
static struct graveyard fresh, waiting;
static struct pmdscope_grace grace;

/* Memory that cannot be noted is leaked: 64 bytes for a callback. */
void
pmdscope_reclaim_later(void *memory)
{
	if (fresh.nb == fresh.capacity) {
		const unsigned int capacity = fresh.capacity == 0 ? 16 : 2 * fresh.capacity;
		void **items = realloc(fresh.items, capacity * sizeof(*items));

		if (items == NULL)
			return;
		fresh.items = items;
		fresh.capacity = capacity;
	}
	fresh.items[fresh.nb++] = memory;
}

static void
free_items(struct graveyard *graveyard)
{
	unsigned int i;

	for (i = 0; i < graveyard->nb; i++)
		rte_free(graveyard->items[i]);
	graveyard->nb = 0;
}

static void
begin_waiting(void)
{
	const struct graveyard empty = waiting;

	waiting = fresh;
	fresh = empty;
	pmdscope_grace_begin(&grace);
}

void
pmdscope_reclaim_tick(void)
{
	if (waiting.nb != 0 && pmdscope_grace_over(&grace))
		free_items(&waiting);
	if (waiting.nb == 0 && fresh.nb != 0)
		begin_waiting();
}

bool
pmdscope_reclaim_all(unsigned int wait_ms)
{
	unsigned int ms;

	/* A new grace period covers both. */
	pmdscope_grace_begin(&grace);
	for (ms = 0; !pmdscope_grace_over(&grace); ms++) {
		if (ms >= wait_ms)
			return false;
		usleep(1000);
	}
	free_items(&waiting);
	free_items(&fresh);
	free(waiting.items);
	free(fresh.items);
	waiting = (struct graveyard){ 0 };
	fresh = (struct graveyard){ 0 };
	return true;
}
