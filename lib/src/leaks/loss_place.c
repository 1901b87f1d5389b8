/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include "classify.h"
#include "stage.h"
#include "stamp.h"

/*
 * A stamp belongs to the current allocation of the mbuf, unless code without call sites has freed
 * and allocated it since. If such code is known to do so, the line in the stamp is not proven. It
 * is not proven either where this cannot be known: sent mbufs return to the pool without a traced
 * call, and a driver that keeps a packet is rarer than a library that allocates mbufs.
 */
static bool
is_proven(const struct pmdscope_ledger *ledger, const struct pmdscope_mark *mark)
{
	const bool takes = ledger->untraced_takes != 0;

	if (pmdscope_stamp_class(mark->stamp) == PMDSCOPE_STAMP_TX)
		return !takes && PMDSCOPE_STAMP_SITE_ID(mark->stamp) == 0;
	if (pmdscope_stamp_is_shared(mark->stamp))
		return !ledger->last_frees_untraced;
	if (pmdscope_stamp_class(mark->stamp) == PMDSCOPE_STAMP_FREE)
		return !takes;
	return !takes || (!ledger->frees_untraced && !mark->copied);
}

uint32_t
pmdscope_classify_place(const struct pmdscope_ledger *ledger, const struct pmdscope_mark *mark)
{
	const uint32_t place = pmdscope_stamp_place(mark->stamp);

	if (mark->stale)
		return mark->untraced ? PMDSCOPE_PLACE_UNTRACED : 0;
	if (mark->kind == PMDSCOPE_LOSS_PINNED || is_proven(ledger, mark))
		return place;
	return pmdscope_place_unproven(place);
}

enum pmdscope_loss_kind
pmdscope_classify_kind(const struct pmdscope_ledger *ledger, const struct pmdscope_mark *mark)
{
	if (mark->kind == PMDSCOPE_LOSS_TX && !is_proven(ledger, mark))
		return PMDSCOPE_LOSS_LEAK;
	return (enum pmdscope_loss_kind)mark->kind;
}
