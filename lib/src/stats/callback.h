/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_CALLBACK_H
#define PMDSCOPE_CALLBACK_H

/* A queue and the callback that it has in DPDK. Callers share a lock. */

#include <stdbool.h>
#include <stdint.h>

#include "burst.h"

/* A queue with counters at 0 and without a callback; NULL without memory. */
struct pmdscope_queue *pmdscope_queue_create(uint16_t port, enum pmdscope_dir dir, uint16_t queue);
/* False when the queue already has a callback or cannot have one, with rte_errno set. */
bool pmdscope_callback_add(struct pmdscope_queue *q);
/* False when DPDK cannot remove it now, because the port has fewer queues. */
bool pmdscope_callback_remove(struct pmdscope_queue *q);

#endif /* PMDSCOPE_CALLBACK_H */
