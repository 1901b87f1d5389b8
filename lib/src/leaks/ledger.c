/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_string_fns.h>

#include "arming.h"
#include "clock.h"
#include "classify.h"
#include "ledger.h"
#include "leak_sites.h"
#include "progress.h"
#include "queue.h"
#include "site.h"
#include "stage.h"
#include "stamp.h"
#include "walk.h"

#define MS_PER_SEC UINT64_C(1000)
/* Without stamps, walks may take this part of a CPU. */
#define UNARMED_PART 50
/* Untraced takes that are examined per sample. */
#define TAKES_PER_TICK 64

static struct {
	uint64_t walked_ms; /* When the last walk began. */
	uint32_t walk_ms;
	unsigned int last_id;
	struct pmdscope_ledger **items;
	unsigned int nb;
	unsigned int capacity;
} ledgers;

uint64_t
pmdscope_ledger_now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * MS_PER_SEC + (uint64_t)ts.tv_nsec / 1000000;
}

uint32_t
pmdscope_ledger_clock_ms(void)
{
	return (uint32_t)pmdscope_ledger_now_ms();
}

struct pmdscope_ledger *
pmdscope_ledger_get(unsigned int i)
{
	return i < ledgers.nb ? ledgers.items[i] : NULL;
}

struct pmdscope_mark *
pmdscope_ledger_find_mark(uintptr_t object)
{
	struct pmdscope_mark *mark = NULL;
	unsigned int i;

	for (i = 0; i < ledgers.nb && mark == NULL; i++)
		if (ledgers.items[i]->walking)
			mark = pmdscope_index_find(&ledgers.items[i]->index, object);
	return mark;
}

const char *
pmdscope_ledger_pool_name(unsigned int id)
{
	unsigned int i;

	for (i = 0; i < ledgers.nb; i++)
		if (ledgers.items[i]->id == id)
			return ledgers.items[i]->name;
	return "";
}

void
pmdscope_ledger_found(struct pmdscope_ledger *ledger)
{
	pmdscope_arming_news();
	ledger->suspicion = (struct pmdscope_suspicion){ 0 };
	ledger->draining = (struct pmdscope_suspicion){ 0 };
	if (ledger->first_leak_realtime_ns == 0)
		ledger->first_leak_realtime_ns = pmdscope_clock_realtime_ns(rte_rdtsc());
}

void
pmdscope_ledger_walk_soon(void)
{
	ledgers.walked_ms = 0;
}

/* --- Following the pools --------------------------------------------------------------- */

static struct pmdscope_ledger *
find(const struct pmdscope_pool_counts *counts)
{
	unsigned int i;

	for (i = 0; i < ledgers.nb; i++)
		if (ledgers.items[i]->address == counts->address &&
				strcmp(ledgers.items[i]->name, counts->name) == 0)
			return ledgers.items[i];
	return NULL;
}

static struct pmdscope_ledger *
add(const struct pmdscope_pool_counts *counts)
{
	struct pmdscope_ledger *ledger;

	if (ledgers.nb == ledgers.capacity) {
		const unsigned int capacity = ledgers.capacity == 0 ? 8 : 2 * ledgers.capacity;
		struct pmdscope_ledger **items = realloc(ledgers.items, capacity * sizeof(*items));

		if (items == NULL)
			return NULL;
		ledgers.items = items;
		ledgers.capacity = capacity;
	}
	ledger = calloc(1, sizeof(*ledger));
	if (ledger == NULL)
		return NULL;
	ledger->address = counts->address;
	strlcpy(ledger->name, counts->name, sizeof(ledger->name));
	ledger->id = ++ledgers.last_id;
	ledgers.items[ledgers.nb++] = ledger;
	pmdscope_rows_changed();
	return ledger;
}

static void
ledger_free(struct pmdscope_ledger *ledger)
{
	pmdscope_leak_site_forget(ledger->id);
	pmdscope_index_free(&ledger->index);
	free(ledger);
}

static void
sweep(void)
{
	unsigned int i, kept = 0;

	for (i = 0; i < ledgers.nb; i++) {
		if (ledgers.items[i]->seen)
			ledgers.items[kept++] = ledgers.items[i];
		else
			ledger_free(ledgers.items[i]);
	}
	if (kept != ledgers.nb)
		pmdscope_rows_changed();
	ledgers.nb = kept;
}

/* Only between walks: a walk iterates over the ledgers by number. */
static void
follow_pools(void)
{
	struct pmdscope_pool_counts counts;
	struct pmdscope_ledger *ledger;
	unsigned int i;

	for (i = 0; i < ledgers.nb; i++)
		ledgers.items[i]->seen = false;
	for (i = 0; pmdscope_pool_get(i, &counts); i++) {
		if (!counts.mbufs)
			continue;
		ledger = find(&counts);
		if (ledger == NULL)
			ledger = add(&counts);
		if (ledger != NULL)
			ledger->seen = true;
	}
	sweep();
}

/* True if the mbufs in use of a pool grow. */
static bool
note_counts(uint64_t now)
{
	struct pmdscope_pool_counts counts;
	struct pmdscope_ledger *ledger;
	bool grows = false;
	unsigned int i;

	for (i = 0; pmdscope_pool_get(i, &counts); i++) {
		ledger = find(&counts);
		if (ledger == NULL)
			continue;
		counts.name = ledger->name;
		ledger->counts = counts;
		if (pmdscope_trend_note(&ledger->trend, now, counts.in_use))
			grows |= pmdscope_trend_grows(&ledger->trend);
	}
	return grows;
}

static struct pmdscope_ledger *
find_address(const void *pool)
{
	unsigned int i;

	for (i = 0; i < ledgers.nb; i++)
		if (ledgers.items[i]->address == pool)
			return ledgers.items[i];
	return NULL;
}

static void
note_misuse(void)
{
	struct pmdscope_misuse_event event;
	struct pmdscope_ledger *ledger;
	struct pmdscope_leak_site *site;
	bool is_free;

	while (pmdscope_stamp_misuse_next(&event)) {
		ledger = find_address(event.pool);
		if (ledger == NULL)
			continue;
		is_free = event.misuse == PMDSCOPE_MISUSE_FREE;
		ledger->double_frees += is_free;
		ledger->use_after_frees += !is_free;
		pmdscope_arming_news();
		site = pmdscope_leak_site_get(ledger->id, pmdscope_stamp_place(event.stamp),
				is_free ? PMDSCOPE_LOSS_DOUBLE_FREE : PMDSCOPE_LOSS_USE_AFTER_FREE);
		if (site != NULL)
			pmdscope_leak_site_event(site);
	}
}

/* Mbufs that the app sends although no traced call took them from their pool. */
static void
note_untraced_takes(void)
{
	struct pmdscope_untraced_take take;
	const struct pmdscope_site_info *info;
	unsigned int i;

	for (i = 0; i < TAKES_PER_TICK && pmdscope_stamp_untraced_take_next(&take); i++) {
		struct pmdscope_ledger *ledger = find_address(take.pool);

		info = pmdscope_site_info(PMDSCOPE_STAMP_SITE_ID(take.stamp));
		if (ledger == NULL || (info != NULL && info->keeps) ||
				!pmdscope_arming_covers(PMDSCOPE_STAMP_EPOCH(take.stamp)))
			continue;
		ledger->untraced_takes++;
	}
}

/* --- Start, stop and ticks -------------------------------------------------------------- */

/*
 * Time from walk to walk. Without stamps walks continue, less often: they find missing mbufs, and
 * lost ones that are freed after all.
 */
static uint64_t
walk_pause_ms(void)
{
	uint64_t walk_us = 0;
	unsigned int i;

	if (pmdscope_arming_on())
		return ledgers.walk_ms;
	for (i = 0; i < ledgers.nb; i++)
		walk_us += ledgers.items[i]->walk_us;
	return RTE_MAX((uint64_t)ledgers.walk_ms, UNARMED_PART * walk_us / 1000);
}

void
pmdscope_ledger_tick(uint64_t now_ns)
{
	const uint64_t now = now_ns / 1000000;
	const bool moving = pmdscope_progress_made(now);

	if (!pmdscope_walk_busy())
		follow_pools();
	note_misuse();
	note_untraced_takes();
	pmdscope_arming_decide(now, note_counts(now));
	if (moving)
		pmdscope_stamp_advance();
	/* Without counts an mbuf in a queue would seem to be lost. */
	if (moving && pmdscope_queue_counting() && pmdscope_arming_possible() &&
			now - ledgers.walked_ms >= walk_pause_ms() && !pmdscope_walk_busy()) {
		ledgers.walked_ms = now;
		pmdscope_walk_begin();
	}
	pmdscope_walk_slice();
}

bool
pmdscope_ledger_busy(void)
{
	return pmdscope_walk_busy();
}

void
pmdscope_ledger_slice(void)
{
	pmdscope_walk_slice();
}

void
pmdscope_ledger_start(const struct pmdscope_conf *conf)
{
	const uint32_t hold = (conf->leak_hold_ms + conf->sample_ms - 1) / conf->sample_ms;
	const struct pmdscope_walk_conf walk_conf = {
		.epoch_ms = conf->sample_ms,
		.walk_ms = conf->leak_walk_ms,
		.hold_walks = conf->leak_hold_ms / conf->leak_walk_ms + 1,
	};

	ledgers.walk_ms = conf->leak_walk_ms;
	ledgers.walked_ms = 0;
	pmdscope_arming_start(conf);
	pmdscope_progress_start();
	pmdscope_stage_start(hold, conf->sample_ms);
	pmdscope_walk_start(&walk_conf);
}

void
pmdscope_ledger_stop(void)
{
	unsigned int i;

	pmdscope_arming_stop();
	pmdscope_walk_stop();
	for (i = 0; i < ledgers.nb; i++)
		ledger_free(ledgers.items[i]);
	free(ledgers.items);
	ledgers.items = NULL;
	ledgers.nb = 0;
	ledgers.capacity = 0;
	pmdscope_leak_site_stop();
	pmdscope_stage_stop();
}
