/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "queues.h"

static const struct app_options options = { .queues = 2, .quiet = true };
/* In the order of lcores: two ports with two queues each. */
static struct lane lanes[] = { { 3, 0, 1 }, { 5, 0, 1 }, { 3, 1, 2 }, { 5, 1, 2 } };
static const struct app app = {
	.options = &options,
	.ports = { 3, 5 },
	.nb_ports = 2,
	.lanes = { .lane = lanes, .nb_lanes = 4 },
};

static void
test_balance(void)
{
	CHECK(isnan(queues_balance((uint64_t[]){ 0, 0 }, 2)));
	CHECK(queues_balance((uint64_t[]){ 7, 7, 7 }, 3) == 1);
	CHECK(queues_balance((uint64_t[]){ 0, 9, 0 }, 3) == 3);
	CHECK(queues_balance((uint64_t[]){ 3, 1 }, 2) == 1.5);
	CHECK(queues_balance((uint64_t[]){ 8 }, 1) == 1);
}

/*
 * Each queue has its own packets, for any order of the lcores; without packets there are no shares.
 */
static void
test_json(void)
{
	struct json json;

	CHECK_EQ(queues_create(&app), 0);
	queue_stats[0].rx = 30;
	queue_stats[2].rx = 10;
	CHECK_EQ(json_begin(&json), 0);
	queues_json(&json);
	fflush(json.out);
	CHECK(strcmp(json.text, "{\"rx_queues\":["
				"{\"port\":3,\"queue\":0,\"lcore\":1,\"rx\":30,\"share\":0.750},"
				"{\"port\":3,\"queue\":1,\"lcore\":2,\"rx\":10,\"share\":0.250},"
				"{\"port\":5,\"queue\":0,\"lcore\":1,\"rx\":0,\"share\":null},"
				"{\"port\":5,\"queue\":1,\"lcore\":2,\"rx\":0,\"share\":null}],"
				"\"rx_balance\":[{\"port\":3,\"rx\":40,\"max_over_mean\":1.500},"
				"{\"port\":5,\"rx\":0,\"max_over_mean\":null}]") == 0);
	fclose(json.out);
	free(json.text);
	queues_destroy();
}

int
main(void)
{
	test_balance();
	test_json();
	return 0;
}
