/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>

#include "arming.h"
#include "classify.h"
#include "ledger.h"
#include "log.h"
#include "stamp.h"
#include "walk.h"

#define MS_PER_SEC UINT64_C(1000)
/* In mode auto, stamps stay armed for this long after the last reason to be armed. */
#define QUIET_MS (15 * MS_PER_SEC)
/* Or for this multiple of the residence bound, if that is longer. */
#define QUIET_HOLDS 12
/* The first pause after arming found nothing, and the longest. */
#define PAUSE_MS (30 * MS_PER_SEC)
#define PAUSE_MAX_MS (3600 * MS_PER_SEC)
/* Walks after which an mbuf that was held for too long is reported as lost. */
#define CONFIRM_WALKS 4

static struct {
	enum pmdscope_leak_mode mode;
	bool stamps; /* struct rte_mbuf has room for them. */
	bool armed;
	uint32_t armed_epoch; /* Older stamps are of an earlier arming. */
	uint64_t asked_until; /* Armed on demand until then; 0: not. */
	uint64_t news_ms;     /* Last reason to be armed. */
	uint32_t walk_ms;
	uint32_t hold_ms;
	uint64_t quiet_ms;
} arming;

static void
arm(const char *why)
{
	if (arming.armed)
		return;
	PMDSCOPE_LOG(INFO, "stamps armed: %s", why);
	pmdscope_stamp_advance();
	pmdscope_stamp_arm();
	pmdscope_walk_arm();
	arming.armed_epoch = pmdscope_stamp_epoch();
	pmdscope_ledger_walk_soon();
	arming.armed = true;
}

static void
disarm(void)
{
	if (!arming.armed)
		return;
	PMDSCOPE_LOG(INFO, "stamps disarmed");
	pmdscope_stamp_disarm();
	arming.armed = false;
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
 * At its current rate the pool is empty before growth is detected and a leak is confirmed. Mbufs
 * lost by then would have no site.
 */
static bool
is_draining(const struct pmdscope_ledger *ledger)
{
	const struct pmdscope_pool_counts *counts = &ledger->counts;

	return pmdscope_trend_grown_in_ms(&ledger->trend, counts->common + counts->cached) <
	       PMDSCOPE_TREND_WINDOW_MS + arming.hold_ms + CONFIRM_WALKS * arming.walk_ms;
}

/* True if there is a reason, and arming for it has not recently found nothing. */
static bool
try_reason(struct pmdscope_suspicion *s, uint64_t now, bool reason)
{
	if (!reason || s->tried || now < s->not_before)
		return false;
	s->tried = true;
	return true;
}

/* The reason to arm, or NULL. */
static const char *
suspect(uint64_t now)
{
	struct pmdscope_ledger *ledger;
	const char *why = NULL;
	unsigned int i;

	for (i = 0; (ledger = pmdscope_ledger_get(i)) != NULL; i++) {
		if (try_reason(&ledger->suspicion, now, is_suspicious(ledger)))
			why = "mbufs are missing from a pool";
		if (try_reason(&ledger->draining, now, is_draining(ledger)))
			why = "a pool is empty soon";
	}
	return why;
}

/* The armed time is over: if nothing was found, pause for longer each time. */
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
	struct pmdscope_ledger *ledger;
	unsigned int i;

	for (i = 0; (ledger = pmdscope_ledger_get(i)) != NULL; i++) {
		pause_reason(&ledger->suspicion, now);
		pause_reason(&ledger->draining, now);
	}
}

/*
 * A pool that stamps were armed for needs more walks than fit into quiet_ms, because mbufs were
 * once missing for long. If stamps were disarmed earlier, its losses would never be found.
 */
static bool
waits_longer(void)
{
	const struct pmdscope_ledger *ledger;
	unsigned int i;

	for (i = 0; (ledger = pmdscope_ledger_get(i)) != NULL; i++)
		if ((ledger->suspicion.tried || ledger->draining.tried) &&
				pmdscope_walk_waits_longer(ledger))
			return true;
	return false;
}

/* Disarmed on request: from now on only new growth arms again, and suspicion after a pause. */
static void
disarm_for_good(uint64_t now)
{
	struct pmdscope_ledger *ledger;
	unsigned int i;

	disarm();
	for (i = 0; (ledger = pmdscope_ledger_get(i)) != NULL; i++) {
		ledger->trend = (struct pmdscope_trend){ 0 };
		ledger->suspicion.tried = true;
		ledger->draining.tried = true;
	}
	give_up(now);
}

static void
arm_by_suspicion(uint64_t now)
{
	const char *why = arming.armed ? NULL : suspect(now);

	if (arming.armed && waits_longer())
		arming.news_ms = now;
	if (why != NULL) {
		arming.news_ms = now;
		arm(why);
	} else if (arming.armed && now >= arming.news_ms + arming.quiet_ms) {
		disarm();
		give_up(now);
	}
}

void
pmdscope_arming_decide(uint64_t now, bool grows)
{
	if (grows)
		arming.news_ms = now;
	if (arming.asked_until != 0 && now >= arming.asked_until) {
		arming.asked_until = 0;
		arming.news_ms = 0;
	}
	if (!arming.stamps || arming.mode == PMDSCOPE_LEAK_NEVER)
		return;
	if (arming.mode == PMDSCOPE_LEAK_ALWAYS)
		arm("always");
	else if (arming.asked_until != 0)
		arm("on demand");
	else if (grows)
		arm("a pool loses mbufs");
	else
		arm_by_suspicion(now);
}

int
pmdscope_arming_ask(uint32_t seconds)
{
	const uint64_t now = pmdscope_ledger_now_ms();

	if (arming.mode == PMDSCOPE_LEAK_NEVER)
		return -EPERM;
	if (!arming.stamps)
		return -ENODEV;
	arming.asked_until = seconds == 0 ? 0 : now + seconds * MS_PER_SEC;
	if (seconds != 0)
		arm("on demand");
	else if (arming.mode == PMDSCOPE_LEAK_AUTO)
		disarm_for_good(now);
	return 0;
}

bool
pmdscope_arming_on(void)
{
	return arming.armed;
}

const char *
pmdscope_arming_mode_name(void)
{
	static const char *const names[] = {
		[PMDSCOPE_LEAK_AUTO] = "auto",
		[PMDSCOPE_LEAK_ALWAYS] = "always",
		[PMDSCOPE_LEAK_NEVER] = "never",
	};

	return names[arming.mode];
}

bool
pmdscope_arming_possible(void)
{
	return arming.stamps;
}

bool
pmdscope_arming_covers(uint32_t epoch)
{
	return arming.armed && (int32_t)(epoch - arming.armed_epoch) >= 0;
}

void
pmdscope_arming_news(void)
{
	arming.news_ms = pmdscope_ledger_now_ms();
}

void
pmdscope_arming_start(const struct pmdscope_conf *conf)
{
	arming.mode = conf->leak_mode;
	arming.walk_ms = conf->leak_walk_ms;
	arming.hold_ms = conf->leak_hold_ms;
	arming.stamps = conf->leak_mode != PMDSCOPE_LEAK_NEVER && pmdscope_stamp_start() == 0;
	arming.quiet_ms = RTE_MAX(QUIET_MS, QUIET_HOLDS * (uint64_t)conf->leak_hold_ms);
	arming.asked_until = 0;
	arming.news_ms = 0;
}

void
pmdscope_arming_stop(void)
{
	disarm();
}
