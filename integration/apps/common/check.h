/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef CHECK_H
#define CHECK_H

/* Assertions of the unit tests: enabled in every build type, and print the values. */

#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CHECK(cond) \
	do { \
		if (!(cond)) { \
			fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond); \
			exit(1); \
		} \
	} while (0)

#define CHECK_EQ(seen, wanted) \
	do { \
		const uint64_t seen_ = (uint64_t)(seen), wanted_ = (uint64_t)(wanted); \
		if (seen_ != wanted_) { \
			fprintf(stderr, "%s:%d: %s is %" PRIu64 ", not %" PRIu64 "\n", __FILE__, \
					__LINE__, #seen, seen_, wanted_); \
			exit(1); \
		} \
	} while (0)

/* A repeatable stream of random numbers (xorshift64*). */
static inline uint64_t
check_random(uint64_t *state)
{
	*state ^= *state >> 12;
	*state ^= *state << 25;
	*state ^= *state >> 27;
	return *state * UINT64_C(2685821657736338717);
}

#endif /* CHECK_H */
