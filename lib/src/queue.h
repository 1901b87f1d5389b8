/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_QUEUE_H
#define PMDSCOPE_QUEUE_H

/* Queues of ethdev ports: the callbacks on them and what these count. */

#include "page.h"

/* /pmdscope/queues. */
extern const struct pmdscope_table pmdscope_queue_table;

/* Follow ports as they come and go. State lock held in all of these. */
void pmdscope_queue_start(void);
/* Put callbacks on queues that have none, drop the rows of queues that are gone. */
void pmdscope_queue_discover(void);
/* Free callbacks that were removed, once no lcore can be in them. */
void pmdscope_queue_reclaim(void);
/* Remove all callbacks; waits at most 200 ms for the lcores to leave them. */
void pmdscope_queue_stop(void);

#endif /* PMDSCOPE_QUEUE_H */
