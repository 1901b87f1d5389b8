/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* What the validator refuses, and why. */

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "filter.h"
#include "capture_test.h"

#define RET \
	{ \
		.code = 0x06, .k = 1 \
	}

static const struct {
	const char *name;
	const char *reason; /* NULL: valid. */
	struct pmdscope_insn insns[3];
	unsigned int nb_insns;
} programs[] = {
	{ "only a return", NULL, { RET }, 1 },
	{ "jump to the last", NULL, { { .code = 0x05, .k = 1 }, RET, RET }, 3 },
	{ "largest shift", NULL, { { .code = 0x64, .k = 31 }, RET }, 2 },
	{ "last memory slot", NULL, { { .code = 0x02, .k = 15 }, RET }, 2 },
	{ "largest offset", NULL, { { .code = 0x20, .k = INT32_MAX }, RET }, 2 },
	{ "division by X", NULL, { { .code = 0x3c }, RET }, 2 },
	{ "no return", "instruction 1: the program does not end in a return",
			{ RET, { .code = 0x00 } }, 2 },
	{ "jump at the end", "instruction 1: jump out", { RET, { .code = 0x15 } }, 2 },
	{ "jump beyond the end", "instruction 0: jump out", { { .code = 0x05, .k = 2 }, RET, RET },
			3 },
	{ "jump back", "instruction 1: jump backwards",
			{ RET, { .code = 0x05, .k = UINT32_MAX }, RET }, 3 },
	{ "true branch beyond", "instruction 0: jump out", { { .code = 0x15, .jt = 1 }, RET }, 2 },
	{ "false branch beyond", "instruction 0: jump out", { { .code = 0x2d, .jf = 255 }, RET },
			2 },
	{ "load of slot 16", "instruction 0: memory slot", { { .code = 0x60, .k = 16 }, RET }, 2 },
	{ "ldx of slot 16", "instruction 0: memory slot", { { .code = 0x61, .k = 16 }, RET }, 2 },
	{ "st of slot 16", "instruction 0: memory slot", { { .code = 0x02, .k = 16 }, RET }, 2 },
	{ "stx of slot 2^32-1", "instruction 0: memory slot",
			{ { .code = 0x03, .k = UINT32_MAX }, RET }, 2 },
	{ "division by 0", "instruction 0: division by zero", { { .code = 0x34 }, RET }, 2 },
	{ "modulo by 0", "instruction 0: division by zero", { { .code = 0x94 }, RET }, 2 },
	{ "left shift by 32", "instruction 0: shift", { { .code = 0x64, .k = 32 }, RET }, 2 },
	{ "right shift by 2^31", "instruction 0: shift", { { .code = 0x74, .k = 1U << 31 }, RET },
			2 },
	{ "kernel extension", "instruction 0: negative", { { .code = 0x28, .k = 0xfffff004 }, RET },
			2 },
	{ "negative indirect", "instruction 0: negative", { { .code = 0x50, .k = 1U << 31 }, RET },
			2 },
	{ "negative msh", "instruction 0: negative", { { .code = 0xb1, .k = UINT32_MAX }, RET },
			2 },
	{ "return of X", "instruction 0: unknown opcode", { { .code = 0x0e }, RET }, 2 },
	{ "high bits", "instruction 0: unknown opcode", { { .code = 0x0120 }, RET }, 2 },
	{ "word msh", "instruction 0: unknown opcode", { { .code = 0xa1 }, RET }, 2 },
	{ "ldx absolute", "instruction 0: unknown opcode", { { .code = 0x21 }, RET }, 2 },
	{ "eBPF arithmetic", "instruction 0: unknown arithmetic", { { .code = 0xb4 }, RET }, 2 },
	{ "high bits in alu", "instruction 0: unknown arithmetic", { { .code = 0x1004 }, RET }, 2 },
	{ "eBPF jump", "instruction 0: unknown jump", { { .code = 0x55 }, RET }, 2 },
	{ "jump by X", "instruction 0: unknown jump", { { .code = 0x0d }, RET }, 2 },
	{ "second is bad", "instruction 1: unknown opcode",
			{ { .code = 0x00 }, { .code = 0xffff & ~7 }, RET }, 3 },
};

int
main(void)
{
	static struct pmdscope_insn many[PMDSCOPE_TEE_MAX_INSNS + 1];
	static struct pmdscope_filter filter;
	char why[112];
	unsigned int i;
	int ret;

	for (i = 0; i < RTE_DIM(programs); i++) {
		why[0] = '\0';
		ret = pmdscope_filter_load(
				&filter, programs[i].insns, programs[i].nb_insns, why, sizeof(why));
		if (ret != (programs[i].reason != NULL ? -EINVAL : 0))
			fprintf(stderr, "%s: %d \"%s\"\n", programs[i].name, ret, why);
		CHECK(ret == (programs[i].reason != NULL ? -EINVAL : 0));
		if (programs[i].reason != NULL && strstr(why, programs[i].reason) == NULL)
			fprintf(stderr, "%s: \"%s\"\n", programs[i].name, why);
		CHECK(programs[i].reason == NULL || strstr(why, programs[i].reason) != NULL);
	}

	for (i = 0; i < RTE_DIM(many); i++)
		many[i] = (struct pmdscope_insn)RET;
	CHECK(pmdscope_filter_load(&filter, many, PMDSCOPE_TEE_MAX_INSNS, why, sizeof(why)) == 0);
	CHECK(pmdscope_filter_load(&filter, many, PMDSCOPE_TEE_MAX_INSNS + 1, why, sizeof(why)) ==
			-EINVAL);
	CHECK(pmdscope_filter_load(&filter, many, 0, why, sizeof(why)) == 0 &&
			filter.nb_insns == 0);
	return EXIT_SUCCESS;
}
