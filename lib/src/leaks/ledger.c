/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rte_string_fns.h>

#include "clock.h"
#include "classify.h"
#include "ledger.h"
#include "log.h"
#include "leak_sites.h"
#include "progress.h"
#include "site.h"
#include "stage.h"
#include "stamp.h"
#include "walk.h"

#define MS_PER_SEC UINT64_C(1000)
/* In mode auto, stamps stay armed for so long after the last news. */
#define QUIET_MS (15 * MS_PER_SEC)
/* Or for so many times the bound of residence, if that is longer. */
#define QUIET_HOLDS 12
/* The first pause after arming in vain, and the longest. */
#define PAUSE_MS (30 * MS_PER_SEC)
#define PAUSE_MAX_MS (3600 * MS_PER_SEC)
/* Unarmed, the walks may take this part of a CPU. */
#define UNARMED_PART 50
/* What has been held for too long is called lost after so many walks. */
#define CONFIRM_WALKS 4
/* Untraced takes that are looked at per sample. */
#define TAKES_PER_TICK 64

static struct {
	enum pmdscope_leak_mode mode;
	bool stamps; /* There is room for them in struct rte_mbuf. */
	bool armed;
	uint32_t armed_epoch; /* Stamps from before are of an earlier arming. */
	uint64_t asked_until; /* Armed on demand until then, 0: not. */
	uint64_t news_ms;     /* Last reason to be armed. */
	uint64_t walked_ms;   /* When the last walk began. */
	uint32_t walk_ms;
	uint32_t hold_ms;
	uint64_t quiet_ms;
	unsigned int last_id;
	struct pmdscope_ledger **items;
	unsigned int nb;
	unsigned int capacity;
} ledgers;

static uint64_t
now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * MS_PER_SEC + (uint64_t)ts.tv_nsec / 1000000;
}

uint32_t
pmdscope_ledger_clock_ms(void)
{
	return (uint32_t)now_ms();
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
	ledgers.news_ms = now_ms();
	ledger->suspicion = (struct pmdscope_suspicion){ 0 };
	ledger->draining = (struct pmdscope_suspicion){ 0 };
	if (ledger->first_leak_realtime_ns == 0)
		ledger->first_leak_realtime_ns = pmdscope_clock_realtime_ns(rte_rdtsc());
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

/* Between walks: a walk counts through the ledgers. */
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

/* True when a pool is seen to grow. */
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
		ledgers.news_ms = now_ms();
		site = pmdscope_leak_site_get(ledger->id, pmdscope_stamp_place(event.stamp),
				is_free ? PMDSCOPE_LOSS_DOUBLE_FREE : PMDSCOPE_LOSS_USE_AFTER_FREE);
		if (site != NULL)
			pmdscope_leak_site_event(site);
	}
}

/* While the app sends what nobody had from its pool by a traced call. */
static void
note_untraced_takes(void)
{
	struct pmdscope_untraced_take take;
	const struct pmdscope_site_info *info;
	unsigned int i;

	for (i = 0; i < TAKES_PER_TICK && pmdscope_stamp_untraced_take_next(&take); i++) {
		struct pmdscope_ledger *ledger = find_address(take.pool);

		info = pmdscope_site_info(PMDSCOPE_STAMP_SITE_ID(take.stamp));
		if (ledger == NULL || !ledgers.armed || (info != NULL && info->keeps) ||
				(int32_t)(PMDSCOPE_STAMP_EPOCH(take.stamp) - ledgers.armed_epoch) <
						0)
			continue;
		ledger->untraced_takes++;
	}
}

/* --- Arming ---------------------------------------------------------------------------- */

static void
arm(const char *why)
{
	if (ledgers.armed)
		return;
	PMDSCOPE_LOG(INFO, "stamps armed: %s", why);
	pmdscope_stamp_advance();
	pmdscope_stamp_arm();
	pmdscope_walk_arm();
	ledgers.armed_epoch = pmdscope_stamp_epoch();
	ledgers.walked_ms = 0;
	ledgers.armed = true;
}

static void
disarm(void)
{
	if (!ledgers.armed)
		return;
	PMDSCOPE_LOG(INFO, "stamps disarmed");
	pmdscope_stamp_disarm();
	ledgers.armed = false;
}

/* Mbufs are missing, or hardly any are left. */
static bool
is_suspicious(const struct pmdscope_ledger *ledger)
{
	const struct pmdscope_pool_counts *counts = &ledger->counts;

	return ledger->parts.missing != 0 ||
	       pmdscope_is_nearly_empty(counts->common + counts->cached, counts->size);
}

/*
 * At its pace it is empty before its growth is sure and a leak is confirmed: what is lost by then
 * would have no site.
 */
static bool
is_draining(const struct pmdscope_ledger *ledger)
{
	const struct pmdscope_pool_counts *counts = &ledger->counts;

	return pmdscope_trend_grown_in_ms(&ledger->trend, counts->common + counts->cached) <
	       PMDSCOPE_TREND_WINDOW_MS + ledgers.hold_ms + CONFIRM_WALKS * ledgers.walk_ms;
}

/* True when there is a reason that was not in vain a short time ago. */
static bool
try_reason(struct pmdscope_suspicion *s, uint64_t now, bool reason)
{
	if (!reason || s->tried || now < s->not_before)
		return false;
	s->tried = true;
	return true;
}

/* Why to arm, NULL for no reason. */
static const char *
suspect(uint64_t now)
{
	const char *why = NULL;
	unsigned int i;

	for (i = 0; i < ledgers.nb; i++) {
		struct pmdscope_ledger *ledger = ledgers.items[i];

		if (try_reason(&ledger->suspicion, now, is_suspicious(ledger)))
			why = "mbufs are missing from a pool";
		if (try_reason(&ledger->draining, now, is_draining(ledger)))
			why = "a pool is empty soon";
	}
	return why;
}

/* The armed time is over: where nothing was found, wait for longer each time. */
static void
pause_reason(struct pmdscope_suspicion *s, uint64_t now)
{
	if (!s->tried)
		return;
	s->tried = false;
	s->pause_ms = RTE_MIN(RTE_MAX(2 * s->pause_ms, PAUSE_MS), PAUSE_MAX_MS);
	s->not_before = now + s->pause_ms;
}

static void
give_up(uint64_t now)
{
	unsigned int i;

	for (i = 0; i < ledgers.nb; i++) {
		pause_reason(&ledgers.items[i]->suspicion, now);
		pause_reason(&ledgers.items[i]->draining, now);
	}
}

/*
 * A pool that stamps were armed for needs more walks than quiet_ms is meant for, because mbufs were
 * once missing for long. Disarmed before, it could never tell what it has lost.
 */
static bool
waits_longer(void)
{
	const struct pmdscope_ledger *ledger;
	unsigned int i;

	for (i = 0; i < ledgers.nb; i++) {
		ledger = ledgers.items[i];
		if ((ledger->suspicion.tried || ledger->draining.tried) &&
				pmdscope_walk_waits_longer(ledger))
			return true;
	}
	return false;
}

/* Somebody wants it so: only growth from now on arms again, and after a pause suspicion. */
static void
disarm_for_good(uint64_t now)
{
	unsigned int i;

	disarm();
	for (i = 0; i < ledgers.nb; i++) {
		ledgers.items[i]->trend = (struct pmdscope_trend){ 0 };
		ledgers.items[i]->suspicion.tried = true;
		ledgers.items[i]->draining.tried = true;
	}
	give_up(now);
}

static void
arm_by_suspicion(uint64_t now)
{
	const char *why = ledgers.armed ? NULL : suspect(now);

	if (ledgers.armed && waits_longer())
		ledgers.news_ms = now;
	if (why != NULL) {
		ledgers.news_ms = now;
		arm(why);
	} else if (ledgers.armed && now >= ledgers.news_ms + ledgers.quiet_ms) {
		disarm();
		give_up(now);
	}
}

static void
decide(uint64_t now, bool grows)
{
	if (grows)
		ledgers.news_ms = now;
	if (ledgers.asked_until != 0 && now >= ledgers.asked_until) {
		ledgers.asked_until = 0;
		ledgers.news_ms = 0;
	}
	if (!ledgers.stamps || ledgers.mode == PMDSCOPE_LEAK_NEVER)
		return;
	if (ledgers.mode == PMDSCOPE_LEAK_ALWAYS)
		arm("always");
	else if (ledgers.asked_until != 0)
		arm("on demand");
	else if (grows)
		arm("a pool loses mbufs");
	else
		arm_by_suspicion(now);
}

int
pmdscope_ledger_arm(uint32_t seconds)
{
	const uint64_t now = now_ms();

	if (ledgers.mode == PMDSCOPE_LEAK_NEVER)
		return -EPERM;
	if (!ledgers.stamps)
		return -ENODEV;
	ledgers.asked_until = seconds == 0 ? 0 : now + seconds * MS_PER_SEC;
	if (seconds != 0)
		arm("on demand");
	else if (ledgers.mode == PMDSCOPE_LEAK_AUTO)
		disarm_for_good(now);
	return 0;
}

bool
pmdscope_ledger_armed(void)
{
	return ledgers.armed;
}

const char *
pmdscope_ledger_mode_name(void)
{
	static const char *const names[] = {
		[PMDSCOPE_LEAK_AUTO] = "auto",
		[PMDSCOPE_LEAK_ALWAYS] = "always",
		[PMDSCOPE_LEAK_NEVER] = "never",
	};

	return names[ledgers.mode];
}

/* --- Life ------------------------------------------------------------------------------ */

/*
 * From walk to walk. Unarmed they go on, at their ease: they see what is missing, and whether lost
 * mbufs are freed after all.
 */
static uint64_t
walk_pause_ms(void)
{
	uint64_t walk_us = 0;
	unsigned int i;

	if (ledgers.armed)
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
	decide(now, note_counts(now));
	if (moving)
		pmdscope_stamp_advance();
	if (moving && ledgers.stamps && now - ledgers.walked_ms >= walk_pause_ms() &&
			!pmdscope_walk_busy()) {
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

	ledgers.mode = conf->leak_mode;
	ledgers.walk_ms = conf->leak_walk_ms;
	ledgers.hold_ms = conf->leak_hold_ms;
	ledgers.stamps = conf->leak_mode != PMDSCOPE_LEAK_NEVER && pmdscope_stamp_start() == 0;
	ledgers.quiet_ms = RTE_MAX(QUIET_MS, QUIET_HOLDS * (uint64_t)conf->leak_hold_ms);
	ledgers.asked_until = 0;
	ledgers.news_ms = 0;
	ledgers.walked_ms = 0;
	pmdscope_progress_start();
	pmdscope_stage_start(hold, conf->sample_ms);
	pmdscope_walk_start(&walk_conf);
}

void
pmdscope_ledger_stop(void)
{
	unsigned int i;

	disarm();
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
