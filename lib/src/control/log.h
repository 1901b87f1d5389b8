/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_LOG_H
#define PMDSCOPE_LOG_H

/* Log lines of the library, as "PMDSCOPE: ...". Never from the fast path. */

#include <rte_log.h>

extern int pmdscope_logtype;

#define PMDSCOPE_LOG(level, fmt, ...) \
	rte_log(RTE_LOG_##level, (uint32_t)pmdscope_logtype, "PMDSCOPE: " fmt "\n", ##__VA_ARGS__)

#endif /* PMDSCOPE_LOG_H */
