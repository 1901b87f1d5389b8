/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_QUEUE_H
#define PMDSCOPE_QUEUE_H

/* Queues of ethdev ports: the callbacks on them and what these count. */

#include <stdbool.h>
#include <stdint.h>

#include "page.h"

/* /pmdscope/queues. */
extern const struct pmdscope_table pmdscope_queue_table;
extern const struct pmdscope_table pmdscope_queue_counters_table;

/* Follow ports as they come and go. State lock held in all of these. */
void pmdscope_queue_start(bool count);
/*
 * Add callbacks to queues that have none, remove the rows of queues that no longer exist. Without
 * count remove all callbacks and rows; later counts begin at 0.
 */
void pmdscope_queue_discover(bool count);
/* Queues have callbacks and rows. */
bool pmdscope_queue_counting(void);
/* Free callbacks that were removed, once no lcore can be in them. */
void pmdscope_queue_reclaim(void);
/* Remove all callbacks; waits at most 200 ms for the lcores to leave them. */
void pmdscope_queue_stop(void);

struct pmdscope_queue;

/* Number of queues that exist now. */
unsigned int pmdscope_queue_rows(void);
/* The queue of a row, NULL after the last. */
struct pmdscope_queue *pmdscope_queue_row(unsigned int i);
/* The name of its port. */
const char *pmdscope_queue_device(const struct pmdscope_queue *q);
/* A transmit queue, or NULL if its port has no such queue now. */
const struct pmdscope_queue *pmdscope_queue_tx(unsigned int port, unsigned int queue);
/* Ask the drivers of all ports that have sent something for the number of packets sent. */
void pmdscope_queue_ask_sent(void);
/*
 * Packets that the port has sent between the last two calls; UINT64_MAX when it does not report it.
 */
uint64_t pmdscope_queue_sent(unsigned int port);

#endif /* PMDSCOPE_QUEUE_H */
