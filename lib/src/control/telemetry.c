/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_telemetry.h>
#include <rte_version.h>

#include "arming.h"
#include "clock.h"
#include "lcore.h"
#include "ledger.h"
#include "leak_sites.h"
#include "page.h"
#include "pool.h"
#include "port.h"
#include "readers.h"
#include "queue.h"
#include "ring.h"
#include "stage.h"
#include "state.h"
#include "capture.h"
#include "telemetry.h"

#define PREFIX "/pmdscope"

static const struct pmdscope_table *const tables[] = {
	&pmdscope_pool_table,
	&pmdscope_queue_table,
	&pmdscope_queue_counters_table,
	&pmdscope_ring_table,
	&pmdscope_lcore_table,
	&pmdscope_capture_table,
	&pmdscope_leaks_table,
	&pmdscope_leak_sites_table,
	&pmdscope_stage_table,
	&pmdscope_port_table,
};

static const struct pmdscope_table *
table_of(const char *cmd)
{
	unsigned int i;

	for (i = 0; i < RTE_DIM(tables); i++)
		if (strcmp(cmd + strlen(PREFIX "/"), tables[i]->name) == 0)
			return tables[i];
	return NULL;
}

static int
handle_table(const char *cmd, const char *params, struct rte_tel_data *d)
{
	const struct pmdscope_table *table = table_of(cmd);
	int ret = -ENODEV;

	if (!pmdscope_state_lock_to_answer())
		return ret;
	if (pmdscope_state.running && table != NULL) {
		pmdscope_readers_note();
		ret = pmdscope_page_render(table, params, d);
	}
	pthread_mutex_unlock(&pmdscope_state.lock);
	return ret;
}

/* State lock held. */
static void
render_info(struct rte_tel_data *d, struct rte_tel_data *names)
{
	const struct pmdscope_conf *conf = &pmdscope_state.conf;
	char socket[PMDSCOPE_TEXT_MAX];

	pmdscope_text(socket, pmdscope_capture_socket_path());
	rte_tel_data_start_dict(d);
	rte_tel_data_add_dict_int(d, "schema", PMDSCOPE_SCHEMA);
	rte_tel_data_add_dict_string(d, "version", PMDSCOPE_VERSION);
	rte_tel_data_add_dict_string(d, "dpdk", rte_version());
	rte_tel_data_add_dict_int(d, "pid", getpid());
	pmdscope_dict_u64(d, "tsc_hz", pmdscope_clock_hz());
	pmdscope_dict_u64(d, "start_realtime_ns", pmdscope_clock_first()->realtime_ns);
	pmdscope_dict_u64(d, "sample_ms", conf->sample_ms);
	pmdscope_dict_u64(d, "window_ms", conf->window_ms);
	pmdscope_dict_u64(d, "stall_us", conf->stall_us);
	pmdscope_dict_u64(d, "generation", pmdscope_generation());
	rte_tel_data_add_dict_container(d, "tables", names, 0);
	rte_tel_data_add_dict_string(d, "tee_socket", socket);
	pmdscope_dict_u64(d, "tee_sessions", pmdscope_capture_nb_sessions());
	pmdscope_dict_u64(d, "foreign_polls", pmdscope_foreign_polls());
	pmdscope_dict_u64(d, "foreign_bursts", pmdscope_capture_foreign_bursts());
	pmdscope_dict_u64(d, "queues_counted", pmdscope_queue_counting());
	pmdscope_dict_u64(d, "control_shares_poll_cpu", pmdscope_state.shares_cpu);
	pmdscope_dict_u64(d, "abandoned_bytes", pmdscope_capture_abandoned_bytes());
	pmdscope_dict_u64(d, "traced_units",
			__atomic_load_n(&pmdscope_traced_units, __ATOMIC_RELAXED));
}

static int
handle_info(const char *cmd __rte_unused, const char *params, struct rte_tel_data *d)
{
	struct rte_tel_data *names;
	int ret = -ENODEV;
	unsigned int i;

	if (params != NULL && params[0] != '\0')
		return -EINVAL;
	names = rte_tel_data_alloc();
	if (names == NULL)
		return -ENOMEM;
	rte_tel_data_start_array(names, RTE_TEL_STRING_VAL);
	for (i = 0; i < RTE_DIM(tables); i++)
		rte_tel_data_add_array_string(names, tables[i]->name);

	if (pmdscope_state_lock_to_answer()) {
		if (pmdscope_state.running) {
			render_info(d, names);
			ret = 0;
		}
		pthread_mutex_unlock(&pmdscope_state.lock);
	}
	if (ret != 0)
		rte_tel_data_free(names);
	return ret;
}

#define ARM_SECONDS_MAX 86400

/* Digits only, and in range. */
static int
parse_seconds(const char *params, uint32_t *seconds)
{
	const size_t len = params == NULL ? 0 : strlen(params);

	if (len == 0 || len > strlen(RTE_STR(ARM_SECONDS_MAX)) ||
			strspn(params, "0123456789") != len)
		return -EINVAL;
	*seconds = (uint32_t)strtoul(params, NULL, 10);
	return *seconds <= ARM_SECONDS_MAX ? 0 : -EINVAL;
}

static int
handle_arm(const char *cmd __rte_unused, const char *params, struct rte_tel_data *d)
{
	uint32_t seconds;
	int ret;

	ret = parse_seconds(params, &seconds);
	if (ret != 0)
		return ret;
	ret = -ENODEV;
	if (!pmdscope_state_lock_to_answer())
		return ret;
	if (pmdscope_state.running)
		ret = pmdscope_arming_ask(seconds);
	if (ret == 0) {
		rte_tel_data_start_dict(d);
		pmdscope_dict_u64(d, "armed", pmdscope_arming_on());
		rte_tel_data_add_dict_string(d, "mode", pmdscope_arming_mode_name());
	}
	pthread_mutex_unlock(&pmdscope_state.lock);
	return ret;
}

int
pmdscope_telemetry_register(void)
{
	static bool registered;
	char cmd[PMDSCOPE_TEXT_MAX];
	unsigned int i;
	int ret;

	if (registered)
		return 0;
	ret = rte_telemetry_register_cmd(
			PREFIX, handle_info, "About libpmdscope in this app. No parameters");
	if (ret == 0)
		ret = rte_telemetry_register_cmd(PREFIX "/arm", handle_arm,
				"Stamp mbufs for a while. Parameters: int seconds");
	for (i = 0; ret == 0 && i < RTE_DIM(tables); i++) {
		snprintf(cmd, sizeof(cmd), PREFIX "/%s", tables[i]->name);
		ret = rte_telemetry_register_cmd(cmd, handle_table, tables[i]->help);
	}
	registered = ret == 0;
	return ret;
}
