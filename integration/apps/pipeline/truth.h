/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef TRUTH_H
#define TRUTH_H

/* The actual effect of a fault, to compare with the findings under test. */

#include <stdint.h>

#include <rte_mbuf.h>

#include "clock.h"
#include "json.h"

#define TRUTH_SAMPLES 16
#define TRUTH_BYTES 64

/* Written by the lcore of the fault; read when it has ended. */
struct truth {
	uint64_t injected; /* Number of times. Also read by the control thread. */
	uint64_t first_tsc;
	uint64_t last_tsc;
	/* The statement that is wrong. */
	const char *function;
	const char *fault_file;
	int fault_line;
	/* The last call with the packet: stamps show no more than this. */
	const char *site_file;
	int site_line;
	uint32_t nb_samples;
	struct {
		uint16_t size;
		uint8_t bytes[TRUTH_BYTES];
	} samples[TRUTH_SAMPLES];
};

/* Record the fault of this line for this packet, which is still valid. */
#define TRUTH_FAULT(truth, m) truth_fault(truth, m, __FILE__, __func__, __LINE__)

/* Make the last call before the fault, and record its line. */
#define TRUTH_SITE(truth, call) \
	((truth)->site_file = __FILE__, (truth)->site_line = __LINE__, (call))

void truth_fault(struct truth *truth, const struct rte_mbuf *m, const char *file,
		const char *function, int line);

/* A member of an object: the fault, its time (relative to a moment), its place and the mbuf. */
void truth_json(const struct truth *truth, struct json *json, const char *name,
		const struct moment *moment, uint64_t hz);

#endif /* TRUTH_H */
