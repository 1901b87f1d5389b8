/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdarg.h>
#include <stdio.h>

#include "failure.h"

int
failure_set(struct failure *failure, int error, const char *format, ...)
{
	va_list ap;

	failure->error = error;
	va_start(ap, format);
	vsnprintf(failure->text, sizeof(failure->text), format, ap);
	va_end(ap);
	return -1;
}

void
complain(const char *format, ...)
{
	char line[512];
	va_list ap;

	va_start(ap, format);
	vsnprintf(line, sizeof(line), format, ap);
	va_end(ap);
	fprintf(stderr, "pmdscope-pdump: %s\n", line);
}
