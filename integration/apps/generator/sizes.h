/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef SIZES_H
#define SIZES_H

/*
 * Packet sizes in the order in which they are sent, as a table that repeats. They are not
 * random, so each size has exactly its share of every round.
 */

#include <stdint.h>

#define SIZES_MAX_KINDS 64
#define SIZES_MAX_ROUND 65535

struct sizes {
	uint16_t *size; /* One round. */
	uint32_t nb;
	uint16_t min;
	uint16_t max;
};

/* Valid values, for errors. */
#define SIZES_WANTED \
	"BYTES, A-B, a list such as 64,512,1500 or 60:7,590:4,1514:1 (SIZE:WEIGHT), or imix"

/*
 * Read "128", "64-1500" (all in turn), "64,512", "60:7,590:4,1514:1" (weights, the sizes spread over
 * the round), or "imix" (60:7,590:4,1514:1, but none under least). Sizes are from least to most,
 * and the weights add up to SIZES_MAX_ROUND at most. 0, -EINVAL, or -ENOMEM; sizes is then untouched.
 */
int sizes_parse(struct sizes *sizes, const char *text, uint16_t least, uint16_t most);

void sizes_free(struct sizes *sizes);

#endif /* SIZES_H */
