/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_FILTER_COST_H
#define PMDSCOPE_FILTER_COST_H

/* What a filter takes of a poll loop at worst, known before it runs. */

#include <stdint.h>

struct pmdscope_filter;

/*
 * TSC cycles a packet on the most expensive way through a valid program: that of its tests for a
 * packet of a full burst, and that of the interpreter, as a packet may need both. Without memory
 * that is not cached, and with branches that the CPU predicts.
 */
uint32_t pmdscope_filter_cost(const struct pmdscope_filter *filter);

#endif /* PMDSCOPE_FILTER_COST_H */
