/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <inttypes.h>
#include <stdio.h>

#include <rte_common.h>

#include "json.h"
#include "queues.h"
#include "report.h"
#include "settings.h"

struct reflector_stats stats[RTE_MAX_LCORE];
struct fault_time report_faults[REPORT_MAX_FAULTS];
unsigned int report_nb_faults;

static const struct app *app;

void
report_start(const struct app *of)
{
	app = of;
}

struct reflector_stats
report_total(void)
{
	struct reflector_stats sum = { 0 };

	app_sum(&sum, stats, sizeof(sum));
	return sum;
}

void
report_interval(uint64_t elapsed_ns, uint64_t span_ns)
{
	const struct reflector_stats now = report_total();
	const struct app_totals totals = {
		.rx = now.rx, .tx = now.tx, .dropped = now.dropped, .lost = now.leaked
	};

	app_report(app, &totals, "leaked", elapsed_ns, span_ns);
	queues_print_interval();
}

void
report_summary(const struct reflector_stats *sum, double duration_s, unsigned int in_use)
{
	printf("reflected %" PRIu64 " of %" PRIu64 " packets (%" PRIu64 " bytes) in %.1f s: "
	       "%" PRIu64 " dropped, %" PRIu64 " runts, %" PRIu64 " not IP, %" PRIu64 " stalls; "
	       "%" PRIu64 " leaked, %u missing from the pool\n",
			sum->tx, sum->rx, sum->rx_bytes, duration_s, sum->dropped, sum->runts,
			sum->other, sum->stalls, sum->leaked, in_use);
	if (settings.addresses.nb > 0)
		printf("answered %" PRIu64 " ARP requests, %" PRIu64
		       " neighbour solicitations, %" PRIu64 " echo requests; ignored %" PRIu64
		       " packets\n",
				sum->answers[ANSWER_ARP], sum->answers[ANSWER_NEIGHBOUR],
				sum->answers[ANSWER_ECHO], sum->answers[ANSWER_IGNORED]);
	queues_print();
}

static void
faults_json(struct json *json)
{
	const unsigned int nb = RTE_MIN(report_nb_faults, (unsigned int)REPORT_MAX_FAULTS);
	unsigned int i;

	json_open_list(json, "faults");
	for (i = 0; i < nb; i++) {
		json_open_item(json);
		json_u64(json, "begin_ns", report_faults[i].begin_ns);
		json_u64(json, "ns", report_faults[i].ns);
		json_close(json);
	}
	json_close_list(json);
}

int
report_save(const struct reflector_stats *sum, double duration_s, unsigned int in_use)
{
	struct json json;

	if (json_begin(&json) != 0)
		return -1;
	app_json(&json, app, duration_s);
	json_u64(&json, "received", sum->rx);
	json_u64(&json, "received_bytes", sum->rx_bytes);
	json_u64(&json, "sent", sum->tx);
	json_u64(&json, "dropped", sum->dropped);
	json_u64(&json, "runts", sum->runts);
	json_u64(&json, "not_ip", sum->other);
	json_open(&json, "answered");
	json_u64(&json, "arp", sum->answers[ANSWER_ARP]);
	json_u64(&json, "neighbour", sum->answers[ANSWER_NEIGHBOUR]);
	json_u64(&json, "echo", sum->answers[ANSWER_ECHO]);
	json_close(&json);
	json_u64(&json, "ignored", sum->answers[ANSWER_IGNORED]);
	json_u64(&json, "corrupted", sum->corrupted);
	json_u64(&json, "stalls", sum->stalls);
	json_u64(&json, "restarts", sum->restarts);
	faults_json(&json);
	json_u64(&json, "leaked", sum->leaked);
	queues_json(&json);
	json_open(&json, "pool");
	json_str(&json, "name", REFLECTOR_POOL_NAME);
	json_u64(&json, "size", app->pool->size);
	json_u64(&json, "in_use_end", in_use);
	json_close(&json);
	return app_json_save(&json, app);
}
