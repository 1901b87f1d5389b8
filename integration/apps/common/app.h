/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef APP_H
#define APP_H

/* Code of both applications, from the first argument to the last cleanup. */

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_ethdev.h>
#include <rte_mempool.h>

#include <pmdscope.h>

#include "json.h"
#include "lane.h"
#include "options.h"

/* Largest --burst, and so the size of the arrays that hold one. */
#define APP_MAX_BURST 256
#define APP_MAX_QUEUES 64

#define APP_EXIT_OK 0
#define APP_EXIT_FAILED 1
#define APP_EXIT_USAGE 2

struct app_options {
	uint32_t queues;
	/* Maximum queues per direction; 0: as many as queues. */
	uint32_t rx_queues;
	uint32_t tx_queues;
	uint32_t burst;
	uint32_t descriptors;
	uint32_t mbufs; /* 0: as many as the ports and lcores can hold, and some spare */
	uint64_t duration_ms;
	uint64_t interval_ms;
	const char *json;
	bool quiet;
};

#define APP_OPTIONS_DEFAULT \
	{ \
		.queues = 1, .burst = 32, .descriptors = 1024, .interval_ms = 1000 \
	}

/* Entries of an option table that fill a struct app_options with static storage. */
#define APP_OPTION_SPECS(o) \
	{ "queues", "N", "queue pairs per port (1)", option_u32, &(o).queues, 1, APP_MAX_QUEUES }, \
			{ "burst", "N", "packets per RX or TX call (32)", option_u32, &(o).burst, \
				1, APP_MAX_BURST }, \
			{ "descriptors", "N", "descriptors per queue (1024)", option_u32, \
				&(o).descriptors, 8, 32768 }, \
			{ "mbufs", "N", "size of the packet pool (what the ports need)", \
				option_u32, &(o).mbufs, 64, 16777215 }, \
			{ "duration", "S", "end after S seconds (run until a signal)", \
				option_seconds, &(o).duration_ms, 1, 1000000000 }, \
			{ "interval", "S", "seconds between statistics (1)", option_seconds, \
				&(o).interval_ms, 10, 3600000 }, \
			{ "json", "FILE", "write the final summary to FILE as JSON", \
				option_output, &(o).json, 0, 0 }, \
	{ \
		"quiet", NULL, "print only the summary and errors", option_flag, &(o).quiet, 0, 0 \
	}

struct app {
	const char *pool_name;
	const struct app_options *options;
	/* Settings of libpmdscope; --pmdscope changes them. */
	struct pmdscope_conf pmdscope;
	/* Number of lcores that poll the ports, beginning with the main one; 0: all. */
	unsigned int nb_pollers;
	/* Timeout for the links of the ports to come up; 0: do not wait. */
	uint64_t wait_link_ms;

	/* Set by app_open(). */
	struct rte_mempool *pool;
	uint16_t ports[RTE_MAX_ETHPORTS];
	unsigned int nb_ports;
	unsigned int nb_started;
	struct lanes lanes;
};

/*
 * Split the arguments at "--", parse the application's and leave the EAL's in argc.
 * Returns -1 to continue, otherwise an exit code: help was printed or an error
 * reported.
 */
int app_parse(int *argc, char **argv, const struct option_spec *specs, unsigned int nb_specs,
		void (*help)(FILE *out));

/* Start EAL, ports and libpmdscope. 0, or an exit code, reported, with nothing left open. */
int app_open(struct app *app, int argc, char **argv);

/*
 * Run lcore_main on every lcore, the main one included, and report at each interval.
 * Returns 0 when all have ended, or a negative errno, reported.
 */
int app_run(struct app *app, int (*lcore_main)(void *), void *arg,
		void (*report)(uint64_t elapsed_ns, uint64_t span_ns));

/* Stop and close the ports. Returns the number of packets that are missing from the pool. */
unsigned int app_stop(struct app *app);

/* Free the pool and end EAL. */
void app_close(struct app *app);

/* The members at the start of every summary. */
void app_json(struct json *json, const struct app *app, double duration_s);

/* Write the summary and report a failure. 0 or a negative errno. */
int app_json_save(struct json *json, const struct app *app);

/*
 * Add the counters of all lcores to *sum. stats is an array of RTE_MAX_LCORE structs like *sum, of
 * size bytes, all members of which are uint64_t.
 */
void app_sum(void *sum, const void *stats, size_t size);

/* Packets of all lcores since the start of the run. */
struct app_totals {
	uint64_t rx;
	uint64_t tx;
	uint64_t dropped;
	uint64_t lost;
};

/* Print the line of an interval, unless quiet. The label is that of the lost packets. */
void app_report(const struct app *app, const struct app_totals *now, const char *lost_label,
		uint64_t elapsed_ns, uint64_t span_ns);

#endif /* APP_H */
