/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_RINGS_H
#define PMDSCOPE_RINGS_H

/* Software rings (rte_ring). */

#include "page.h"

/* /pmdscope/rings. */
extern const struct pmdscope_table pmdscope_ring_table;

/* Find and sample all rings. Control thread, state lock held. */
void pmdscope_ring_sample(void);
void pmdscope_ring_stop(void);

#endif /* PMDSCOPE_RINGS_H */
