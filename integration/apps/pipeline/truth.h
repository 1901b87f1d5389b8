/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef TRUTH_H
#define TRUTH_H

/* The real effect of a fault, to compare with the findings of a test. */

#include <stdint.h>

#include <rte_mbuf.h>

#include "clock.h"
#include "json.h"

#define TRUTH_SAMPLES 16
#define TRUTH_BYTES 64

/* Written by the lcore of the fault; read when it has ended. */
struct truth {
	uint64_t injected; /* Times. Read by the control thread meanwhile. */
	uint64_t first_tsc;
	uint64_t last_tsc;
	/* The statement that is wrong. */
	const char *function;
	const char *fault_file;
	int fault_line;
	/* The last call that was given the packet: all that stamps can know. */
	const char *site_file;
	int site_line;
	uint32_t nb_samples;
	struct {
		uint16_t size;
		uint8_t bytes[TRUTH_BYTES];
	} samples[TRUTH_SAMPLES];
};

/* File the fault that happens on this line to this packet, which is still whole. */
#define TRUTH_FAULT(truth, m) truth_fault(truth, m, __FILE__, __func__, __LINE__)

/* Carry out the last call before the fault, and note its line. */
#define TRUTH_SITE(truth, call) \
	((truth)->site_file = __FILE__, (truth)->site_line = __LINE__, (call))

void truth_fault(struct truth *truth, const struct rte_mbuf *m, const char *file,
		const char *function, int line);

/* A member of an object: what happened, when (reckoned from a moment), where and to what. */
void truth_json(const struct truth *truth, struct json *json, const char *name,
		const struct moment *moment, uint64_t hz);

#endif /* TRUTH_H */
