/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef LOOP_H
#define LOOP_H

/* One poll loop, compiled several times. Each forwards `bursts` bursts and counts the packets. */

#include <stdint.h>

#include "nic.h"

uint64_t loop_plain(struct nic *nic, uint32_t bursts);
uint64_t loop_copy(struct nic *nic, uint32_t bursts);	 /* The same, elsewhere in memory. */
uint64_t loop_linked(struct nic *nic, uint32_t bursts);	 /* Calls pmdscope_poll(). */
uint64_t loop_traced(struct nic *nic, uint32_t bursts);	 /* Also with -include pmdscope_trace.h. */
uint64_t loop_history(struct nic *nic, uint32_t bursts); /* Marks as DPDK 25.11 does. */

#endif /* LOOP_H */
