/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_FILTER_TRANSLATE_H
#define PMDSCOPE_FILTER_TRANSLATE_H

/*
 * A filter as a graph of tests: each loads a field of the packet, compares it, and names the next
 * test for either outcome. Nothing is kept from one test to the next, so that a test can be done
 * for many packets at once. Most programs of libpcap can be written in this form; for others there
 * are no tests.
 */

#include <stdbool.h>
#include <stdint.h>

#include "pmdscope_ring.h"

/* Tests read the first bytes of a packet, up to this many, except behind an IPv4 header. */
#define PMDSCOPE_FILTER_REACH 256

enum pmdscope_filter_load {
	PMDSCOPE_LOAD_NONE, /* No test: value is the verdict. */
	PMDSCOPE_LOAD_LENGTH,
	PMDSCOPE_LOAD_BYTE,
	PMDSCOPE_LOAD_HALF,
	PMDSCOPE_LOAD_WORD,
	/* Offset counts from the end of the IPv4 header that starts at base. */
	PMDSCOPE_LOAD_BYTE_BEHIND,
	PMDSCOPE_LOAD_HALF_BEHIND,
	PMDSCOPE_LOAD_WORD_BEHIND,
};

struct pmdscope_filter_test {
	uint8_t load;
	bool greater; /* True if the masked field is greater than value; otherwise if equal. */
	uint16_t base;
	uint16_t offset;
	uint16_t end;	  /* Bytes, up to fixed offsets, that the packet must have. */
	uint16_t next[2]; /* Next test if false, if true. */
	uint32_t mask;
	uint32_t value;
};

struct pmdscope_filter_tests {
	unsigned int nb_tests; /* 0: the program cannot be written as tests. */
	uint16_t reach;	       /* Greatest end of all tests. */
	uint32_t far;	       /* The same, with fields behind the longest IPv4 header. */
	struct pmdscope_filter_test tests[PMDSCOPE_TEE_MAX_INSNS];
};

/* Write a valid program as tests. */
void pmdscope_filter_translate(struct pmdscope_filter_tests *tests,
		const struct pmdscope_insn *insns, unsigned int nb_insns);

#endif /* PMDSCOPE_FILTER_TRANSLATE_H */
