/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <rte_mbuf.h>

#include "clone.h"
#include "site.h"
#include "stamp.h"

/*
 * Attaching copies the stamp. A received mbuf is not a clone: if a clone has such a stamp,
 * untraced code has made it. Any other stamp may be the clone's own.
 */
void
pmdscope_clone_note(struct pmdscope_mark *mark, uintptr_t object)
{
	const struct pmdscope_site_info *info =
			pmdscope_site_info(PMDSCOPE_STAMP_SITE_ID(mark->stamp));

	if (mark->stale || pmdscope_stamp_class(mark->stamp) != PMDSCOPE_STAMP_APP ||
			!RTE_MBUF_CLONED((const struct rte_mbuf *)object))
		return;
	if (info == NULL || info->rx) {
		mark->untraced = 1;
		mark->stale = 1;
	} else {
		mark->copied = !info->clones;
	}
}

#define PIN(walk, alive) ((uint16_t)((walk) << 1 | (alive)))
#define PIN_WALK(pin) ((pin) >> 1)

/*
 * A clone keeps the mbuf whose data it shares. Its fields may be changing, so no pointer is
 * followed.
 */
void
pmdscope_clone_pin_direct(const struct pmdscope_walk_context *ctx, const struct pmdscope_mark *mark,
		uintptr_t object)
{
	const struct rte_mbuf *m = (const struct rte_mbuf *)object;
	const uint16_t lives = PIN(ctx->walk, 1);
	struct pmdscope_mark *direct;

	if (!RTE_MBUF_CLONED(m))
		return;
	direct = pmdscope_ledger_find_mark((uintptr_t)m->buf_addr - sizeof(*m) - m->priv_size);
	if (direct == NULL || direct == mark || direct->pin == lives)
		return;
	direct->pin = mark->kind == PMDSCOPE_LOSS_NONE ? lives : PIN(ctx->walk, 0);
}

/* A walk found a clone of it: this walk or the previous one. */
bool
pmdscope_clone_pins(const struct pmdscope_walk_context *ctx, const struct pmdscope_mark *mark)
{
	const uint16_t now = PIN_WALK(PIN(ctx->walk, 0));
	const uint16_t then = PIN_WALK(PIN(ctx->walk - 1, 0));

	return mark->pin != 0 && (PIN_WALK(mark->pin) == now || PIN_WALK(mark->pin) == then);
}

/* As pmdscope_clone_pins(), for a clone that is not lost itself. */
bool
pmdscope_clone_alive_pins(const struct pmdscope_walk_context *ctx, const struct pmdscope_mark *mark)
{
	return pmdscope_clone_pins(ctx, mark) && (mark->pin & 1) != 0;
}
