/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <linux/filter.h>

#include "filter.h"
#include "filter_cost.h"

static int
refuse(char *why, size_t size, unsigned int at, const char *reason)
{
	snprintf(why, size, "filter instruction %u: %s", at, reason);
	return -EINVAL;
}

/* Why an arithmetic instruction is not valid, or NULL. */
static const char *
check_alu(const struct pmdscope_insn *insn)
{
	switch (insn->code) {
	case BPF_ALU | BPF_DIV | BPF_K:
	case BPF_ALU | BPF_MOD | BPF_K:
		return insn->k == 0 ? "division by zero" : NULL;
	case BPF_ALU | BPF_LSH | BPF_K:
	case BPF_ALU | BPF_RSH | BPF_K:
		return insn->k >= 32 ? "shift by 32 or more" : NULL;
	case BPF_ALU | BPF_ADD | BPF_K:
	case BPF_ALU | BPF_SUB | BPF_K:
	case BPF_ALU | BPF_MUL | BPF_K:
	case BPF_ALU | BPF_OR | BPF_K:
	case BPF_ALU | BPF_AND | BPF_K:
	case BPF_ALU | BPF_XOR | BPF_K:
	case BPF_ALU | BPF_ADD | BPF_X:
	case BPF_ALU | BPF_SUB | BPF_X:
	case BPF_ALU | BPF_MUL | BPF_X:
	case BPF_ALU | BPF_DIV | BPF_X:
	case BPF_ALU | BPF_MOD | BPF_X:
	case BPF_ALU | BPF_OR | BPF_X:
	case BPF_ALU | BPF_AND | BPF_X:
	case BPF_ALU | BPF_XOR | BPF_X:
	case BPF_ALU | BPF_LSH | BPF_X:
	case BPF_ALU | BPF_RSH | BPF_X:
	case BPF_ALU | BPF_NEG:
		return NULL;
	default:
		return "unknown arithmetic operation";
	}
}

/* Why a jump over at most `left` instructions is not valid, or NULL. */
static const char *
check_jump(const struct pmdscope_insn *insn, uint32_t left)
{
	switch (insn->code) {
	case BPF_JMP | BPF_JA:
		/* libpcap generates loops for protochain only. */
		if (insn->k > INT32_MAX)
			return "jump backwards; protochain is not available";
		return insn->k >= left ? "jump out of the program" : NULL;
	case BPF_JMP | BPF_JEQ | BPF_K:
	case BPF_JMP | BPF_JGT | BPF_K:
	case BPF_JMP | BPF_JGE | BPF_K:
	case BPF_JMP | BPF_JSET | BPF_K:
	case BPF_JMP | BPF_JEQ | BPF_X:
	case BPF_JMP | BPF_JGT | BPF_X:
	case BPF_JMP | BPF_JGE | BPF_X:
	case BPF_JMP | BPF_JSET | BPF_X:
		return insn->jt >= left || insn->jf >= left ? "jump out of the program" : NULL;
	default:
		return "unknown jump";
	}
}

/* Why an instruction is not valid, or NULL. `left` instructions follow it. */
static const char *
check(const struct pmdscope_insn *insn, uint32_t left)
{
	switch (insn->code) {
	case BPF_LD | BPF_W | BPF_ABS:
	case BPF_LD | BPF_H | BPF_ABS:
	case BPF_LD | BPF_B | BPF_ABS:
	case BPF_LD | BPF_W | BPF_IND:
	case BPF_LD | BPF_H | BPF_IND:
	case BPF_LD | BPF_B | BPF_IND:
	case BPF_LDX | BPF_B | BPF_MSH:
		/* Also covers the offsets by which kernels encode extensions, such as `inbound`. */
		return insn->k > INT32_MAX ? "negative offset" : NULL;
	case BPF_LD | BPF_MEM:
	case BPF_LDX | BPF_MEM:
	case BPF_ST:
	case BPF_STX:
		return insn->k >= BPF_MEMWORDS ? "memory slot out of range" : NULL;
	case BPF_LD | BPF_IMM:
	case BPF_LD | BPF_W | BPF_LEN:
	case BPF_LDX | BPF_IMM:
	case BPF_LDX | BPF_W | BPF_LEN:
	case BPF_MISC | BPF_TAX:
	case BPF_MISC | BPF_TXA:
	case BPF_RET | BPF_K:
	case BPF_RET | BPF_A:
		return NULL;
	}
	switch (BPF_CLASS(insn->code)) {
	case BPF_ALU:
		return check_alu(insn);
	case BPF_JMP:
		return check_jump(insn, left);
	default:
		return "unknown opcode";
	}
}

static bool
uses_memory(const struct pmdscope_insn *insn)
{
	return insn->code == (BPF_LD | BPF_MEM) || insn->code == (BPF_LDX | BPF_MEM);
}

int
pmdscope_filter_load(struct pmdscope_filter *filter, const void *insns, unsigned int nb_insns,
		char *why, size_t why_size)
{
	const char *reason;
	unsigned int i;

	if (nb_insns > PMDSCOPE_TEE_MAX_INSNS) {
		snprintf(why, why_size, "nb_insns: %u filter instructions, at most %u", nb_insns,
				PMDSCOPE_TEE_MAX_INSNS);
		return -EINVAL;
	}
	memcpy(filter->insns, insns, nb_insns * sizeof(filter->insns[0]));
	filter->nb_insns = nb_insns;
	filter->uses_memory = false;
	filter->tests.nb_tests = 0;

	for (i = 0; i < nb_insns; i++) {
		reason = check(&filter->insns[i], nb_insns - i - 1);
		if (reason != NULL)
			return refuse(why, why_size, i, reason);
		filter->uses_memory |= uses_memory(&filter->insns[i]);
	}
	if (nb_insns > 0 && BPF_CLASS(filter->insns[nb_insns - 1].code) != BPF_RET)
		return refuse(why, why_size, nb_insns - 1, "the program does not end in a return");
	pmdscope_filter_translate(&filter->tests, filter->insns, nb_insns);
	filter->cost = pmdscope_filter_cost(filter);
	return 0;
}

/*
 * As in libpcap, a division by a zero X refuses the packet, and a shift by X of 32 or more gives 0.
 */
static inline bool
run_alu(uint16_t code, uint32_t *a, uint32_t v)
{
	switch (BPF_OP(code)) {
	case BPF_ADD:
		*a += v;
		return true;
	case BPF_SUB:
		*a -= v;
		return true;
	case BPF_MUL:
		*a *= v;
		return true;
	case BPF_DIV:
		if (v != 0)
			*a /= v;
		return v != 0;
	case BPF_MOD:
		if (v != 0)
			*a %= v;
		return v != 0;
	case BPF_OR:
		*a |= v;
		return true;
	case BPF_AND:
		*a &= v;
		return true;
	case BPF_XOR:
		*a ^= v;
		return true;
	case BPF_LSH:
		*a = v < 32 ? *a << v : 0;
		return true;
	case BPF_RSH:
		*a = v < 32 ? *a >> v : 0;
		return true;
	default: /* BPF_NEG */
		*a = -*a;
		return true;
	}
}

/* Number of instructions to skip. */
static inline uint32_t
run_jump(const struct pmdscope_insn *insn, uint32_t a, uint32_t v)
{
	switch (BPF_OP(insn->code)) {
	case BPF_JEQ:
		return a == v ? insn->jt : insn->jf;
	case BPF_JGT:
		return a > v ? insn->jt : insn->jf;
	case BPF_JGE:
		return a >= v ? insn->jt : insn->jf;
	case BPF_JSET:
		return (a & v) != 0 ? insn->jt : insn->jf;
	default: /* BPF_JA */
		return insn->k;
	}
}

uint32_t
pmdscope_filter_run(const struct pmdscope_filter *filter, const struct pmdscope_packet *pkt)
{
	const struct pmdscope_insn *insn;
	uint32_t mem[BPF_MEMWORDS];
	uint32_t a = 0, x = 0, v;

	if (unlikely(filter->uses_memory))
		memset(mem, 0, sizeof(mem));
	/* Validated: jumps go forward and the last instruction returns. */
	for (insn = filter->insns;; insn++) {
		switch (insn->code) {
		case BPF_LD | BPF_W | BPF_ABS:
			if (!pmdscope_packet_load(pkt, insn->k, 4, &a))
				return 0;
			continue;
		case BPF_LD | BPF_H | BPF_ABS:
			if (!pmdscope_packet_load(pkt, insn->k, 2, &a))
				return 0;
			continue;
		case BPF_LD | BPF_B | BPF_ABS:
			if (!pmdscope_packet_load(pkt, insn->k, 1, &a))
				return 0;
			continue;
		case BPF_LD | BPF_W | BPF_IND:
			if (!pmdscope_packet_load(pkt, (uint64_t)x + insn->k, 4, &a))
				return 0;
			continue;
		case BPF_LD | BPF_H | BPF_IND:
			if (!pmdscope_packet_load(pkt, (uint64_t)x + insn->k, 2, &a))
				return 0;
			continue;
		case BPF_LD | BPF_B | BPF_IND:
			if (!pmdscope_packet_load(pkt, (uint64_t)x + insn->k, 1, &a))
				return 0;
			continue;
		/* The most frequent instructions; the other jumps and all arithmetic are below. */
		case BPF_JMP | BPF_JEQ | BPF_K:
			insn += a == insn->k ? insn->jt : insn->jf;
			continue;
		case BPF_JMP | BPF_JSET | BPF_K:
			insn += (a & insn->k) != 0 ? insn->jt : insn->jf;
			continue;
		case BPF_LDX | BPF_B | BPF_MSH:
			if (!pmdscope_packet_load(pkt, insn->k, 1, &v))
				return 0;
			x = (v & 0xf) << 2;
			continue;
		case BPF_LD | BPF_W | BPF_LEN:
			a = pkt->len;
			continue;
		case BPF_LDX | BPF_W | BPF_LEN:
			x = pkt->len;
			continue;
		case BPF_LD | BPF_IMM:
			a = insn->k;
			continue;
		case BPF_LDX | BPF_IMM:
			x = insn->k;
			continue;
		case BPF_LD | BPF_MEM:
			a = mem[insn->k];
			continue;
		case BPF_LDX | BPF_MEM:
			x = mem[insn->k];
			continue;
		case BPF_ST:
			mem[insn->k] = a;
			continue;
		case BPF_STX:
			mem[insn->k] = x;
			continue;
		case BPF_MISC | BPF_TAX:
			x = a;
			continue;
		case BPF_MISC | BPF_TXA:
			a = x;
			continue;
		case BPF_RET | BPF_K:
			return insn->k;
		case BPF_RET | BPF_A:
			return a;
		}
		v = BPF_SRC(insn->code) == BPF_X ? x : insn->k;
		if (BPF_CLASS(insn->code) == BPF_JMP)
			insn += run_jump(insn, a, v);
		else if (!run_alu(insn->code, &a, v))
			return 0;
	}
}
