/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef HDR_H
#define HDR_H

/*
 * Latencies in the formats of HdrHistogram: its interval log, whose lines have a histogram in the
 * compressed encoding V2, in base64. Values are nanoseconds, kept with HDR_DIGITS decimal digits;
 * struct latency itself has two (see latency.h).
 */

#include <stddef.h>
#include <stdint.h>

#include "clock.h"
#include "latency.h"
#include "output.h"

#define HDR_DIGITS 3
/* Larger values are stored as this one: one day. */
#define HDR_MAX_NS UINT64_C(86400000000000)

/*
 * Encode a histogram of TSC cycles. Returns the text, which stays until the next call, or NULL if
 * zlib fails. Not thread-safe.
 */
const char *hdr_encode(const struct latency *latency, uint64_t tsc_hz, size_t *size);

/* Write the start of the log. */
void hdr_log_begin(struct output *output, const struct moment *start);

/*
 * Write the line of an interval, which begins start_ns after the moment of hdr_log_begin() and
 * takes span_ns. tag is NULL or contains no comma.
 */
void hdr_log_line(struct output *output, const char *tag, uint64_t start_ns, uint64_t span_ns,
		const struct latency *latency, uint64_t tsc_hz);

#endif /* HDR_H */
