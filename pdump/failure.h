/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_FAILURE_H
#define PDUMP_FAILURE_H

/* The reason of a failure, as text that fits into a message to the consumer. */

#include <rte_common.h>

#include "pmdscope_ring.h"

struct failure {
	int error; /* A positive errno; 0 if there is none. */
	char text[sizeof(((struct pmdscope_tee_message *)0)->text)];
};

/* Set cause and cure; always returns -1. */
int
failure_set(struct failure *failure, int error, const char *format, ...) __rte_format_printf(3, 4);

/* Print one line on stderr, which the launcher shows with the failure. */
void complain(const char *format, ...) __rte_format_printf(1, 2);

/* Print one line on stderr, which the launcher shows at once, while the capture goes on. */
void note(const char *format, ...) __rte_format_printf(1, 2);

#endif /* PDUMP_FAILURE_H */
