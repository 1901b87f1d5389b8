/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * A filter for a burst: each test is done for all packets that reach it, then the next one. The
 * packets share the cost of decoding a test, and an outcome that differs between packets causes no
 * mispredicted branch.
 */

#include <string.h>

#include <rte_byteorder.h>
#include <rte_prefetch.h>

#include "filter.h"

/* With fewer packets at a test, only these are tested; otherwise the whole burst is. */
#define DENSE 10

struct burst {
	const uint8_t *data[PMDSCOPE_FILTER_BURST];
	uint32_t len[PMDSCOPE_FILTER_BURST]; /* In the first segment. */
	struct rte_mbuf **pkts;
	uint32_t whole; /* Packets that the tests can be run on. */
	uint32_t small; /* Of those, packets that may be too short for a test. */
};

/* Replaces data that cannot be read. */
static const uint8_t blank[PMDSCOPE_FILTER_REACH];

/* So that compilers use vector instructions, which they do not for 1 << i. */
#define BITS4(i) UINT32_C(1) << (i), UINT32_C(2) << (i), UINT32_C(4) << (i), UINT32_C(8) << (i)
static const uint32_t bits[PMDSCOPE_FILTER_BURST] = { BITS4(0), BITS4(4), BITS4(8), BITS4(12),
	BITS4(16), BITS4(20), BITS4(24), BITS4(28) };

static __rte_always_inline uint32_t
bit(unsigned int i, bool set)
{
	return (uint32_t)set << i;
}

static __rte_always_inline uint32_t
read_field(const uint8_t *p, unsigned int width)
{
	uint32_t word;
	uint16_t half;

	switch (width) {
	case 1:
		return *p;
	case 2:
		memcpy(&half, p, sizeof(half));
		return rte_be_to_cpu_16(half);
	default:
		memcpy(&word, p, sizeof(word));
		return rte_be_to_cpu_32(word);
	}
}

static __rte_always_inline bool
compare(const struct pmdscope_filter_test *test, uint32_t value)
{
	value &= test->mask;
	return test->greater ? value > test->value : value == test->value;
}

/* Offset of a field behind an IPv4 header. */
static __rte_always_inline uint32_t
offset_behind(const struct burst *b, unsigned int i, const struct pmdscope_filter_test *test)
{
	return ((b->data[i][test->base] & 0xfU) << 2) + test->offset;
}

/* The field of packet i. *end is the end of the field, which may be beyond that of the packet. */
static __rte_always_inline uint32_t
load_field(const struct burst *b, unsigned int i, const struct pmdscope_filter_test *test,
		unsigned int width, bool behind, uint32_t *end)
{
	uint32_t offset = test->offset;

	if (behind) {
		offset = offset_behind(b, i, test);
		*end = offset + width;
		/* Branchless: a field beyond the packet is read at offset 0. */
		offset &= 0U - (*end <= b->len[i]);
	}
	return read_field(b->data[i] + offset, width);
}

/* For few packets at a test; otherwise as test_all(). */
static __rte_always_inline uint32_t
test_few(const struct burst *b, const struct pmdscope_filter_test *test, unsigned int width,
		bool behind, uint32_t *at)
{
	uint32_t yes = 0, left, value, end = 0;
	unsigned int i;

	for (left = *at; left != 0; left &= left - 1) {
		i = (unsigned int)__builtin_ctz(left);
		value = load_field(b, i, test, width, behind, &end);
		yes |= bit(i, compare(test, value));
		if (behind)
			*at &= ~bit(i, end > b->len[i]);
	}
	return yes & *at;
}

/*
 * For all packets of the burst, whether they are at the test or not: loops of fixed length without
 * branches.
 */
static __rte_always_inline uint32_t
test_all(const struct burst *b, const struct pmdscope_filter_test *test, unsigned int width,
		bool behind, uint32_t *at)
{
	uint32_t values[PMDSCOPE_FILTER_BURST], ends[PMDSCOPE_FILTER_BURST];
	uint32_t yes = 0, there = 0;
	unsigned int i;

#pragma GCC unroll 32
	for (i = 0; i < PMDSCOPE_FILTER_BURST; i++)
		values[i] = load_field(b, i, test, width, behind, &ends[i]);
	if (behind) {
		for (i = 0; i < PMDSCOPE_FILTER_BURST; i++)
			there |= ends[i] <= b->len[i] ? bits[i] : 0;
		*at &= there;
	}
	if (test->greater)
		for (i = 0; i < PMDSCOPE_FILTER_BURST; i++)
			yes |= (values[i] & test->mask) > test->value ? bits[i] : 0;
	else
		for (i = 0; i < PMDSCOPE_FILTER_BURST; i++)
			yes |= (values[i] & test->mask) == test->value ? bits[i] : 0;
	return yes & *at;
}

/* Packets of which the test is true; those that end before the field are taken out of *at. */
static __rte_always_inline uint32_t
test_field(const struct burst *b, const struct pmdscope_filter_test *test, unsigned int width,
		bool behind, uint32_t *at)
{
	return __builtin_popcount(*at) < DENSE ? test_few(b, test, width, behind, at)
					       : test_all(b, test, width, behind, at);
}

static uint32_t
test_length(const struct burst *b, const struct pmdscope_filter_test *test, uint32_t at)
{
	uint32_t yes = 0, left;
	unsigned int i;

	for (left = at; left != 0; left &= left - 1) {
		i = (unsigned int)__builtin_ctz(left);
		yes |= bit(i, compare(test, b->pkts[i]->pkt_len));
	}
	return yes;
}

static uint32_t
test_burst(const struct burst *b, const struct pmdscope_filter_test *test, uint32_t *at)
{
	switch (test->load) {
	case PMDSCOPE_LOAD_BYTE:
		return test_field(b, test, 1, false, at);
	case PMDSCOPE_LOAD_HALF:
		return test_field(b, test, 2, false, at);
	case PMDSCOPE_LOAD_WORD:
		return test_field(b, test, 4, false, at);
	case PMDSCOPE_LOAD_BYTE_BEHIND:
		return test_field(b, test, 1, true, at);
	case PMDSCOPE_LOAD_HALF_BEHIND:
		return test_field(b, test, 2, true, at);
	case PMDSCOPE_LOAD_WORD_BEHIND:
		return test_field(b, test, 4, true, at);
	default:
		return test_length(b, test, *at);
	}
}

/* Packets at a test that are too short for it. */
static uint32_t
too_short(const struct burst *b, const struct pmdscope_filter_test *test, uint32_t at)
{
	uint32_t found = 0, left;
	unsigned int i;

	for (left = at & b->small; left != 0; left &= left - 1) {
		i = (unsigned int)__builtin_ctz(left);
		found |= bit(i, b->len[i] < test->end);
	}
	return found;
}

/*
 * Tests read up to their greatest offset whatever the packet's length is, so the buffer must be
 * that long. The length is checked where it matters: if there is only this segment, or it has all
 * fields, a field beyond its end is beyond that of the packet.
 */
static void
look_at(struct burst *b, const struct pmdscope_filter_tests *tests, uint8_t dir,
		struct rte_mbuf **pkts, unsigned int nb_pkts)
{
	const uint64_t tagged = pmdscope_packet_vlan_flag(dir) | pmdscope_packet_qinq_flag(dir);
	unsigned int i;

	b->pkts = pkts;
	b->whole = 0;
	b->small = 0;
	for (i = 0; i < nb_pkts; i++) {
		const struct rte_mbuf *m = pkts[i];
		const bool whole = (m->ol_flags & tagged) == 0 &&
				   (uint32_t)m->data_off + tests->reach <= m->buf_len &&
				   (m->nb_segs == 1 || m->data_len >= tests->far);

		b->data[i] = whole ? rte_pktmbuf_mtod(m, const uint8_t *) : blank;
		b->len[i] = whole ? m->data_len : 0;
		rte_prefetch0(b->data[i]);
		b->whole |= bit(i, whole);
		b->small |= bit(i, m->data_len < tests->reach);
	}
	for (; i < PMDSCOPE_FILTER_BURST; i++) {
		b->data[i] = blank;
		b->len[i] = 0;
	}
}

/* Apply the verdict to the packets at a return; returns those to keep. */
static uint32_t
decide(const struct pmdscope_filter_test *verdict, uint32_t at, uint32_t *keep)
{
	uint32_t left;

	if (verdict->value == 0)
		return 0;
	for (left = at; left != 0; left &= left - 1)
		keep[__builtin_ctz(left)] = verdict->value;
	return at;
}

/*
 * Returns the packets to keep; *undecided becomes those that the tests are not run on. A packet that
 * ends before a field is rejected, as by the interpreter.
 */
static uint32_t
run_tests(const struct pmdscope_filter_tests *tests, const struct burst *b, uint32_t *keep,
		uint32_t *undecided)
{
	uint32_t at[PMDSCOPE_TEE_MAX_INSNS];
	const struct pmdscope_filter_test *test;
	uint32_t here, yes, kept = 0, left = b->whole;

	*undecided &= ~left;
	memset(at, 0, tests->nb_tests * sizeof(at[0]));
	at[0] = left;
	/* Each test precedes its successors, and the last ones are returns. */
	for (test = tests->tests; left != 0; test++) {
		here = at[test - tests->tests];
		if (here == 0)
			continue;
		left &= ~here;
		if (test->load == PMDSCOPE_LOAD_NONE) {
			kept |= decide(test, here, keep);
			continue;
		}
		here &= ~too_short(b, test, here);
		yes = test_burst(b, test, &here);
		at[test->next[1]] |= yes;
		at[test->next[0]] |= here & ~yes;
		left |= here;
	}
	return kept;
}

uint32_t
pmdscope_filter_burst(const struct pmdscope_filter *filter, uint8_t dir, struct rte_mbuf **pkts,
		unsigned int nb_pkts, uint32_t *keep)
{
	uint32_t left = UINT32_MAX >> (PMDSCOPE_FILTER_BURST - nb_pkts), kept = 0;
	struct pmdscope_packet pkt;
	struct burst b;
	unsigned int i;

	if (filter->tests.nb_tests != 0) {
		look_at(&b, &filter->tests, dir, pkts, nb_pkts);
		kept = run_tests(&filter->tests, &b, keep, &left);
	}
	for (; left != 0; left &= left - 1) {
		i = (unsigned int)__builtin_ctz(left);
		pmdscope_packet_init(&pkt, pkts[i], dir);
		keep[i] = pmdscope_filter_run(filter, &pkt);
		kept |= bit(i, keep[i] != 0);
	}
	return kept;
}
