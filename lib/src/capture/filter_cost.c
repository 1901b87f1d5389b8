/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* integration/bench/filter.c measures what the weights stand for. */

#include <linux/filter.h>

#include <rte_common.h>

#include "filter.h"
#include "filter_cost.h"

/* TSC cycles a packet. */
#define COST_PACKET 12 /* Begin with a packet. */
#define COST_SIMPLE 4
#define COST_LOAD 5
#define COST_LOAD_WORD 6
#define COST_ARITHMETIC 6
#define COST_DIVISION 30 /* 9 to 11 with recent dividers. */
#define COST_JUMP 7
/* Of tests, for one of 32 packets. */
#define COST_BURST 8 /* Look at it first. */
#define COST_TEST 3
#define COST_TEST_BEHIND 5

static uint32_t
cost_of(const struct pmdscope_insn *insn)
{
	switch (BPF_CLASS(insn->code)) {
	case BPF_LD:
	case BPF_LDX:
		switch (BPF_MODE(insn->code)) {
		case BPF_ABS:
		case BPF_IND:
			return BPF_SIZE(insn->code) == BPF_W ? COST_LOAD_WORD : COST_LOAD;
		case BPF_MSH:
			return COST_LOAD;
		}
		return COST_SIMPLE;
	case BPF_ALU:
		return BPF_OP(insn->code) == BPF_DIV || BPF_OP(insn->code) == BPF_MOD
				       ? COST_DIVISION
				       : COST_ARITHMETIC;
	case BPF_JMP:
		return COST_JUMP;
	default:
		return COST_SIMPLE;
	}
}

/* Jumps go forward, so the ways from an instruction on are known once those behind it are. */
static uint32_t
cost_interpreted(const struct pmdscope_filter *filter)
{
	static uint32_t from[PMDSCOPE_TEE_MAX_INSNS];
	const struct pmdscope_insn *insn;
	uint32_t i, rest;

	for (i = filter->nb_insns; i-- > 0;) {
		insn = &filter->insns[i];
		if (BPF_CLASS(insn->code) == BPF_RET)
			rest = 0;
		else if (BPF_CLASS(insn->code) != BPF_JMP)
			rest = from[i + 1];
		else if (BPF_OP(insn->code) == BPF_JA)
			rest = from[i + 1 + insn->k];
		else
			rest = RTE_MAX(from[i + 1 + insn->jt], from[i + 1 + insn->jf]);
		from[i] = cost_of(insn) + rest;
	}
	return COST_PACKET + from[0];
}

static uint32_t
cost_of_tests(const struct pmdscope_filter_tests *tests)
{
	static uint32_t from[PMDSCOPE_TEE_MAX_INSNS];
	const struct pmdscope_filter_test *test;
	uint32_t i;

	for (i = tests->nb_tests; i-- > 0;) {
		test = &tests->tests[i];
		from[i] = 0;
		if (test->load == PMDSCOPE_LOAD_NONE)
			continue;
		from[i] = (test->load >= PMDSCOPE_LOAD_BYTE_BEHIND ? COST_TEST_BEHIND : COST_TEST) +
			  RTE_MAX(from[test->next[0]], from[test->next[1]]);
	}
	return from[0];
}

uint32_t
pmdscope_filter_cost(const struct pmdscope_filter *filter)
{
	const uint32_t interpreted = filter->nb_insns != 0 ? cost_interpreted(filter) : 0;

	if (filter->tests.nb_tests == 0)
		return interpreted;
	/* Which packets the tests are run on depends on the traffic. */
	return COST_BURST + RTE_MAX(interpreted, cost_of_tests(&filter->tests));
}
