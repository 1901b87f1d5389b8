/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef QUEUES_H
#define QUEUES_H

/* Packets by RX queue, and how evenly they are spread over the queues of a port. */

#include <stdint.h>

#include <rte_common.h>

#include "app.h"
#include "json.h"

/* Written by the lcore that polls the queue, read by the control thread. */
struct queue_stats {
	uint64_t rx;
} __rte_cache_aligned;

/* One for each lane, in the order of app->lanes. */
extern struct queue_stats *queue_stats;

/* 0, or -ENOMEM, reported. */
int queues_create(const struct app *app);
void queues_destroy(void);

/*
 * The packets of the busiest queue, divided by the mean of all: 1 if all have the same number,
 * nb if one has all of them. NaN without packets.
 */
double queues_balance(const uint64_t *rx, unsigned int nb);

/* Print the shares since the last call, for ports with several queues that received packets. */
void queues_print_interval(void);

/* Print the packets of each queue since the start, for ports with several queues. */
void queues_print(void);

/* Members "rx_queues" and "rx_balance". */
void queues_json(struct json *json);

#endif /* QUEUES_H */
