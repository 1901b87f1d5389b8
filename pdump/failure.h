/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_VERDICT_H
#define PDUMP_VERDICT_H

/* Why something did not work, in words that fit a message to the consumer. */

#include <rte_common.h>

#include "pmdscope_ring.h"

struct verdict {
	int error; /* A positive errno; 0 when all is well. */
	char text[sizeof(((struct pmdscope_tee_message *)0)->text)];
};

/* Take note of cause and cure; always -1. */
int
verdict_set(struct verdict *verdict, int error, const char *format, ...) __rte_format_printf(3, 4);

/* One line on stderr, which the launcher shows along with the verdict. */
void complain(const char *format, ...) __rte_format_printf(1, 2);

#endif /* PDUMP_VERDICT_H */
