/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <rte_common.h>

#include "missing.h"

/*
 * Without a stamp the place, and what is usual there, is unknown: this multiple of the bound
 * applies.
 */
#define MISSING_HOLDS 4
/* An object that was missed in this many walks is not missed by chance. */
#define MISSING_WALKS_MAX 240

/*
 * An object in use may come and go between the walks. If nb_missed objects of a pool are not
 * found, an object that is missed in all of this many walks does not move.
 */
static uint32_t
walks_by_chance(uint32_t nb_missed, uint32_t size)
{
	double expected = nb_missed;
	uint32_t walks = 1;

	for (; size != 0 && expected > 0.05 && walks < MISSING_WALKS_MAX; walks++)
		expected *= (double)nb_missed / size;
	return walks;
}

/* Walks for which objects of this pool may be missing, because others were and came back. */
static uint32_t
learned_walks(const struct pmdscope_ledger *ledger)
{
	return RTE_MIN(2 * (uint64_t)ledger->longest_missing, MISSING_WALKS_MAX);
}

/* Arming is cheap: half the bound is enough to suspect a leak. To confirm one takes longer. */
uint32_t
pmdscope_missing_walks_allowed(
		const struct pmdscope_walk_context *ctx, const struct pmdscope_ledger *ledger)
{
	const struct pmdscope_parts *last = &ledger->parts;
	const uint32_t size = ledger->index.nb_objects;
	const uint32_t known =
			last->common + last->cached + last->rings + last->leaked + last->missing;
	uint32_t walks = MISSING_HOLDS * ctx->hold_walks;

	if (!ctx->armed)
		walks = RTE_MAX(ctx->hold_walks / 2,
					walks_by_chance(size - RTE_MIN(known, size), size)) -
			1;
	return RTE_MAX(walks, learned_walks(ledger));
}

bool
pmdscope_missing_waits_longer(
		const struct pmdscope_walk_context *ctx, const struct pmdscope_ledger *ledger)
{
	return ctx->walk + MISSING_HOLDS * ctx->hold_walks <
	       ctx->armed_walk + learned_walks(ledger);
}

/*
 * Without a stamp, and missing for too long. An object that no walk has ever found was in use
 * before the first walk: probably posted to a NIC, or set aside by the app.
 */
bool
pmdscope_is_missing(const struct pmdscope_walk_context *ctx, const struct pmdscope_mark *mark)
{
	return (mark->met || mark->untraced) && mark->stale && mark->first != 0 &&
	       (ctx->walk - mark->first > ctx->max_missed_walks || mark->hits != 0);
}

/* An object without a stamp that was considered missing is back. */
void
pmdscope_missing_learn(const struct pmdscope_walk_context *ctx, struct pmdscope_ledger *ledger,
		const struct pmdscope_mark *mark)
{
	const uint32_t walks = (ctx->clock_ms - mark->since_ms) / ctx->walk_ms;

	if (mark->kind != PMDSCOPE_LOSS_NONE || mark->first <= ctx->proof.all_turned)
		ledger->longest_missing = RTE_MAX(ledger->longest_missing, walks);
}
