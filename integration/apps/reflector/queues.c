/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "counter.h"
#include "queues.h"

/* More shares do not fit into a line. */
#define MAX_SHARES 16

struct queue_stats *queue_stats;

static const struct app *app;
static uint64_t *last; /* Packets at the last interval, in the order of queue_stats. */

int
queues_create(const struct app *of)
{
	const size_t nb = of->lanes.nb_lanes;

	app = of;
	queue_stats = aligned_alloc(RTE_CACHE_LINE_SIZE, nb * sizeof(*queue_stats));
	last = calloc(nb, sizeof(*last));
	if (queue_stats == NULL || last == NULL) {
		fprintf(stderr, "%s: no memory for counters of %zu queues\n",
				program_invocation_short_name, nb);
		queues_destroy();
		return -ENOMEM;
	}
	memset(queue_stats, 0, nb * sizeof(*queue_stats));
	return 0;
}

void
queues_destroy(void)
{
	free(queue_stats);
	free(last);
	queue_stats = NULL;
	last = NULL;
}

double
queues_balance(const uint64_t *rx, unsigned int nb)
{
	uint64_t sum = 0, most = 0;
	unsigned int i;

	for (i = 0; i < nb; i++) {
		sum += rx[i];
		most = RTE_MAX(most, rx[i]);
	}
	return sum == 0 ? (double)NAN : (double)most * nb / (double)sum;
}

/* Packets of the queues of a port and their sum, minus those in since, which may be NULL. */
static uint64_t
read_port(uint16_t port, const uint64_t *since, uint64_t rx[APP_MAX_QUEUES])
{
	const struct lane *lane;
	uint64_t sum = 0;
	unsigned int i;

	for (i = 0; i < app->lanes.nb_lanes; i++) {
		lane = &app->lanes.lane[i];
		if (lane->port != port)
			continue;
		rx[lane->queue] = counter_read(&queue_stats[i].rx) - (since != NULL ? since[i] : 0);
		sum += rx[lane->queue];
	}
	return sum;
}

static void
print_shares(uint16_t port, const uint64_t *rx, uint64_t sum)
{
	const unsigned int queues = app->options->queues;
	unsigned int queue;

	printf("          port %u RX queues: max/mean %.2f", port, queues_balance(rx, queues));
	if (queues <= MAX_SHARES) {
		printf(", shares");
		for (queue = 0; queue < queues; queue++)
			printf(" %.1f", (double)rx[queue] * 100 / (double)sum);
		printf(" %%");
	}
	printf("\n");
}

void
queues_print_interval(void)
{
	uint64_t rx[APP_MAX_QUEUES] = { 0 }, sum;
	unsigned int i;

	if (app->options->quiet || app->options->queues == 1)
		return;
	for (i = 0; i < app->nb_ports; i++) {
		sum = read_port(app->ports[i], last, rx);
		if (sum > 0)
			print_shares(app->ports[i], rx, sum);
	}
	for (i = 0; i < app->lanes.nb_lanes; i++)
		last[i] = counter_read(&queue_stats[i].rx);
}

static unsigned int
lcore_of(uint16_t port, uint16_t queue)
{
	unsigned int i;

	for (i = 0; i < app->lanes.nb_lanes; i++)
		if (app->lanes.lane[i].port == port && app->lanes.lane[i].queue == queue)
			break;
	return app->lanes.lane[i].lcore;
}

void
queues_print(void)
{
	const uint16_t queues = (uint16_t)app->options->queues;
	uint64_t rx[APP_MAX_QUEUES] = { 0 }, sum;
	unsigned int i;
	uint16_t queue;

	for (i = 0; queues > 1 && i < app->nb_ports; i++) {
		sum = read_port(app->ports[i], NULL, rx);
		for (queue = 0; sum > 0 && queue < queues; queue++)
			printf("port %u queue %u on lcore %u: %" PRIu64 " packets, %.1f %%\n",
					app->ports[i], queue, lcore_of(app->ports[i], queue),
					rx[queue], (double)rx[queue] * 100 / (double)sum);
		if (sum > 0)
			printf("port %u: %" PRIu64 " packets, max/mean %.2f over %u queues\n",
					app->ports[i], sum, queues_balance(rx, queues), queues);
	}
}

void
queues_json(struct json *json)
{
	const uint16_t queues = (uint16_t)app->options->queues;
	uint64_t rx[APP_MAX_QUEUES] = { 0 }, sum;
	unsigned int i;
	uint16_t queue;

	json_open_list(json, "rx_queues");
	for (i = 0; i < app->nb_ports; i++) {
		sum = read_port(app->ports[i], NULL, rx);
		for (queue = 0; queue < queues; queue++) {
			json_open_item(json);
			json_u64(json, "port", app->ports[i]);
			json_u64(json, "queue", queue);
			json_u64(json, "lcore", lcore_of(app->ports[i], queue));
			json_u64(json, "rx", rx[queue]);
			json_f64(json, "share", (double)rx[queue] / (double)sum);
			json_close(json);
		}
	}
	json_close_list(json);
	json_open_list(json, "rx_balance");
	for (i = 0; i < app->nb_ports; i++) {
		sum = read_port(app->ports[i], NULL, rx);
		json_open_item(json);
		json_u64(json, "port", app->ports[i]);
		json_u64(json, "rx", sum);
		json_f64(json, "max_over_mean", queues_balance(rx, queues));
		json_close(json);
	}
	json_close_list(json);
}
