/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdio.h>
#include <string.h>

#include <rte_cycles.h>

#include "counter.h"
#include "truth.h"

static void
sample(struct truth *truth, const struct rte_mbuf *m)
{
	uint16_t size = RTE_MIN(rte_pktmbuf_data_len(m), TRUTH_BYTES);

	if (truth->nb_samples == TRUTH_SAMPLES)
		return;
	truth->samples[truth->nb_samples].size = size;
	memcpy(truth->samples[truth->nb_samples].bytes, rte_pktmbuf_mtod(m, const void *), size);
	truth->nb_samples++;
}

void
truth_fault(struct truth *truth, const struct rte_mbuf *m, const char *file, const char *function,
		int line)
{
	truth->last_tsc = rte_rdtsc();
	if (truth->injected == 0)
		truth->first_tsc = truth->last_tsc;
	truth->function = function;
	truth->fault_file = file;
	truth->fault_line = line;
	sample(truth, m);
	counter_add(&truth->injected, 1);
}

static void
put_place(struct json *json, const char *key, const char *file, int line)
{
	const char *slash = strrchr(file, '/');
	char text[128];

	snprintf(text, sizeof(text), "%s:%d", slash != NULL ? slash + 1 : file, line);
	json_str(json, key, text);
}

static void
put_samples(struct json *json, const struct truth *truth)
{
	char hex[2 * TRUTH_BYTES + 1];
	uint32_t i, byte;

	json_open_list(json, "packets");
	for (i = 0; i < truth->nb_samples; i++) {
		hex[0] = '\0';
		for (byte = 0; byte < truth->samples[i].size; byte++)
			snprintf(&hex[2 * byte], 3, "%02x", truth->samples[i].bytes[byte]);
		json_item(json, hex);
	}
	json_close_list(json);
}

void
truth_json(const struct truth *truth, struct json *json, const char *name,
		const struct moment *moment, uint64_t hz)
{
	json_open(json, name);
	json_u64(json, "injected", truth->injected);
	if (truth->injected != 0) {
		json_u64(json, "first_realtime_ns",
				clock_realtime_ns(moment, truth->first_tsc, hz));
		json_u64(json, "last_realtime_ns", clock_realtime_ns(moment, truth->last_tsc, hz));
		json_str(json, "function", truth->function);
		put_place(json, "fault", truth->fault_file, truth->fault_line);
		put_place(json, "site", truth->site_file, truth->site_line);
	}
	put_samples(json, truth);
	json_close(json);
}
