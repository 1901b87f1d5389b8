/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <linux/filter.h>

#include <rte_common.h>

#include "filter_translate.h"

/* Tests read at least this many bytes. */
#define REACH_MIN 4
#define IPV4_HEADER_MAX 60

/* The field of the packet that a register holds, if it is known. */
struct field {
	uint8_t load; /* PMDSCOPE_LOAD_NONE: not known. */
	/*
	 * On every path to here a test has used the field. A load ends the program if the packet is
	 * too short, so a load that no test uses cannot be left out.
	 */
	bool tested;
	uint16_t base;
	uint16_t offset;
	uint32_t mask;
};

/* State of the registers before an instruction. */
struct registers {
	bool reached;
	struct field a;
	struct field x; /* Length of the IPv4 header at base, if known. */
};

static bool
same_field(const struct field *p, const struct field *q)
{
	return p->load == q->load && p->base == q->base && p->offset == q->offset &&
	       p->mask == q->mask;
}

static void
join_field(struct field *into, const struct field *from)
{
	const bool tested = into->tested && from->tested;

	if (!same_field(into, from))
		*into = (struct field){ .load = PMDSCOPE_LOAD_NONE };
	into->tested = tested;
}

/* Add a path that leads to an instruction. */
static void
join(struct registers *into, const struct registers *from)
{
	if (!into->reached) {
		*into = *from;
		return;
	}
	join_field(&into->a, &from->a);
	join_field(&into->x, &from->x);
}

/*
 * Load a new field into a register; false if the field it replaces was not tested, or the offset is
 * too large.
 */
static bool
load(struct field *field, uint8_t kind, uint16_t base, uint32_t offset, uint32_t limit)
{
	const bool replaceable = field->tested;

	*field = (struct field){ .load = kind,
		.tested = kind == PMDSCOPE_LOAD_LENGTH,
		.base = base,
		.offset = (uint16_t)offset,
		.mask = UINT32_MAX };
	return replaceable && offset <= limit;
}

static bool
load_fixed(struct registers *r, uint8_t kind, uint32_t offset)
{
	return load(&r->a, kind, 0, offset, PMDSCOPE_FILTER_REACH - sizeof(uint32_t));
}

static bool
load_behind(struct registers *r, uint8_t kind, uint32_t offset)
{
	return r->x.load != PMDSCOPE_LOAD_NONE && load(&r->a, kind, r->x.base, offset, UINT16_MAX);
}

/* Effect of an instruction on the registers; false if tests cannot express it. */
static bool
step(const struct pmdscope_insn *insn, struct registers *r)
{
	switch (insn->code) {
	case BPF_LD | BPF_B | BPF_ABS:
		return load_fixed(r, PMDSCOPE_LOAD_BYTE, insn->k);
	case BPF_LD | BPF_H | BPF_ABS:
		return load_fixed(r, PMDSCOPE_LOAD_HALF, insn->k);
	case BPF_LD | BPF_W | BPF_ABS:
		return load_fixed(r, PMDSCOPE_LOAD_WORD, insn->k);
	case BPF_LD | BPF_B | BPF_IND:
		return load_behind(r, PMDSCOPE_LOAD_BYTE_BEHIND, insn->k);
	case BPF_LD | BPF_H | BPF_IND:
		return load_behind(r, PMDSCOPE_LOAD_HALF_BEHIND, insn->k);
	case BPF_LD | BPF_W | BPF_IND:
		return load_behind(r, PMDSCOPE_LOAD_WORD_BEHIND, insn->k);
	case BPF_LD | BPF_W | BPF_LEN:
		return load(&r->a, PMDSCOPE_LOAD_LENGTH, 0, 0, 0);
	case BPF_LDX | BPF_B | BPF_MSH:
		return insn->k < PMDSCOPE_FILTER_REACH &&
		       load(&r->x, PMDSCOPE_LOAD_BYTE, (uint16_t)insn->k, 0, 0);
	case BPF_ALU | BPF_AND | BPF_K:
		r->a.mask &= insn->k;
		return r->a.load != PMDSCOPE_LOAD_NONE;
	case BPF_JMP | BPF_JEQ | BPF_K:
	case BPF_JMP | BPF_JGT | BPF_K:
	case BPF_JMP | BPF_JGE | BPF_K:
	case BPF_JMP | BPF_JSET | BPF_K:
		r->a.tested = true;
		if (r->a.load >= PMDSCOPE_LOAD_BYTE_BEHIND && r->x.load != PMDSCOPE_LOAD_NONE &&
				r->x.base == r->a.base)
			r->x.tested = true;
		return r->a.load != PMDSCOPE_LOAD_NONE;
	case BPF_JMP | BPF_JA:
		return true;
	case BPF_RET | BPF_K:
		return r->a.tested && r->x.tested;
	default:
		return false;
	}
}

static bool
is_test(const struct pmdscope_insn *insn)
{
	return BPF_CLASS(insn->code) == BPF_RET ||
	       (BPF_CLASS(insn->code) == BPF_JMP && BPF_OP(insn->code) != BPF_JA);
}

/* Registers before each instruction; false if tests cannot express one of the instructions. */
static bool
follow(const struct pmdscope_insn *insns, unsigned int nb_insns, struct registers *before)
{
	struct registers r;
	unsigned int i;

	memset(before, 0, nb_insns * sizeof(*before));
	before[0].reached = true;
	before[0].a.tested = true;
	before[0].x.tested = true;
	for (i = 0; i < nb_insns; i++) {
		if (!before[i].reached)
			continue;
		r = before[i];
		if (!step(&insns[i], &r))
			return false;
		if (BPF_CLASS(insns[i].code) == BPF_RET)
			continue;
		if (BPF_CLASS(insns[i].code) != BPF_JMP) {
			join(&before[i + 1], &r);
		} else if (!is_test(&insns[i])) {
			join(&before[i + 1 + insns[i].k], &r);
		} else {
			join(&before[i + 1 + insns[i].jt], &r);
			join(&before[i + 1 + insns[i].jf], &r);
		}
	}
	return true;
}

/* The next test or return, beginning at instruction i. */
static unsigned int
next_test(const struct pmdscope_insn *insns, unsigned int i)
{
	while (!is_test(&insns[i]))
		i += 1 + (BPF_CLASS(insns[i].code) == BPF_JMP ? insns[i].k : 0);
	return i;
}

static void
set_comparison(struct pmdscope_filter_test *test, const struct pmdscope_insn *insn,
		const struct field *field, uint16_t if_true, uint16_t if_false)
{
	test->mask = field->mask;
	test->value = insn->k;
	test->next[0] = if_false;
	test->next[1] = if_true;
	switch (BPF_OP(insn->code)) {
	case BPF_JGT:
		test->greater = true;
		break;
	case BPF_JGE:
		/* Every value is at least 0. */
		test->greater = insn->k > 0;
		test->value = insn->k > 0 ? insn->k - 1 : 0;
		test->mask = insn->k > 0 ? field->mask : 0;
		break;
	case BPF_JSET:
		test->mask &= insn->k;
		test->value = 0;
		test->next[0] = if_true;
		test->next[1] = if_false;
		break;
	}
}

/* Returns how far into the packet the field may reach, behind the longest header. */
static uint32_t
set_field(struct pmdscope_filter_test *test, const struct field *field)
{
	static const uint16_t width[] = {
		[PMDSCOPE_LOAD_BYTE] = 1, [PMDSCOPE_LOAD_HALF] = 2, [PMDSCOPE_LOAD_WORD] = 4
	};

	test->load = field->load;
	test->base = field->base;
	test->offset = field->offset;
	if (field->load >= PMDSCOPE_LOAD_BYTE_BEHIND) {
		test->end = field->base + 1;
		return IPV4_HEADER_MAX + field->offset + (uint32_t)sizeof(uint32_t);
	}
	if (field->load != PMDSCOPE_LOAD_LENGTH)
		test->end = field->offset + width[field->load];
	return test->end;
}

void
pmdscope_filter_translate(struct pmdscope_filter_tests *tests, const struct pmdscope_insn *insns,
		unsigned int nb_insns)
{
	static struct registers before[PMDSCOPE_TEE_MAX_INSNS];
	uint16_t numbers[PMDSCOPE_TEE_MAX_INSNS] = { 0 };
	struct pmdscope_filter_test *test;
	uint16_t n = 0;
	unsigned int i;
	uint32_t far;

	tests->nb_tests = 0;
	tests->reach = REACH_MIN;
	tests->far = REACH_MIN;
	if (nb_insns == 0 || !follow(insns, nb_insns, before))
		return;
	for (i = 0; i < nb_insns; i++)
		if (before[i].reached && is_test(&insns[i]))
			numbers[i] = n++;
	for (i = 0; i < nb_insns; i++) {
		if (!before[i].reached || !is_test(&insns[i]))
			continue;
		test = &tests->tests[numbers[i]];
		*test = (struct pmdscope_filter_test){ .load = PMDSCOPE_LOAD_NONE,
			.value = insns[i].k };
		if (BPF_CLASS(insns[i].code) == BPF_RET)
			continue;
		far = set_field(test, &before[i].a);
		set_comparison(test, &insns[i], &before[i].a,
				numbers[next_test(insns, i + 1 + insns[i].jt)],
				numbers[next_test(insns, i + 1 + insns[i].jf)]);
		tests->reach = RTE_MAX(tests->reach, test->end);
		tests->far = RTE_MAX(tests->far, RTE_MAX(far, test->end));
	}
	tests->nb_tests = n;
}
