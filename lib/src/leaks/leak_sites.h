/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_LEAK_SITES_H
#define PMDSCOPE_LEAK_SITES_H

/*
 * Losses and misuse by pool and place: /pmdscope/sites. Control thread and tables, with the state
 * lock held.
 */

#include <stdint.h>

#include "page.h"

enum pmdscope_loss_kind {
	PMDSCOPE_LOSS_NONE,
	PMDSCOPE_LOSS_LEAK,
	PMDSCOPE_LOSS_TX,
	PMDSCOPE_LOSS_PINNED,
	PMDSCOPE_LOSS_DOUBLE_FREE,
	PMDSCOPE_LOSS_USE_AFTER_FREE,
};

/* /pmdscope/sites. */
extern const struct pmdscope_table pmdscope_leak_sites_table;

/* One row. */
struct pmdscope_leak_site {
	unsigned int pool; /* Of pmdscope_ledger_id(). */
	uint32_t place;
	enum pmdscope_loss_kind kind;
	uint64_t count;
	uint64_t events;
	uint32_t oldest_ms; /* On the walker's clock. */
	uint32_t newest_ms;
	uint64_t first_realtime_ns;
	/* Counted so far in the current walk. */
	uint64_t counted;
	uint32_t oldest;
	uint32_t newest;
};

/* The row of a place, which is added if it is missing; NULL without memory. */
struct pmdscope_leak_site *
pmdscope_leak_site_get(unsigned int pool, uint32_t place, enum pmdscope_loss_kind kind);
/* One more event, just found. */
void pmdscope_leak_site_event(struct pmdscope_leak_site *site);
/* The walk has found a lost mbuf that last moved at this time. */
void pmdscope_leak_site_count(struct pmdscope_leak_site *site, uint32_t since_ms);
/* The walk over this pool is complete. */
void pmdscope_leak_site_publish(unsigned int pool);
/* The pool was freed. */
void pmdscope_leak_site_forget(unsigned int pool);
void pmdscope_leak_site_stop(void);

#endif /* PMDSCOPE_LEAK_SITES_H */
