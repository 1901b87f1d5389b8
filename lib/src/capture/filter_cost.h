/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_FILTER_COST_H
#define PMDSCOPE_FILTER_COST_H

/* What a filter takes of a poll loop at worst, known before it runs. */

#include <stdint.h>

struct pmdscope_filter;

/*
 * TSC cycles a packet on the most expensive way through a valid program, by the interpreter or, in a
 * full burst, by its tests. Without memory that is not cached, and with branches that the CPU
 * predicts.
 */
uint32_t pmdscope_filter_cost(const struct pmdscope_filter *filter);

#endif /* PMDSCOPE_FILTER_COST_H */
