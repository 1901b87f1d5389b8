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

static void
print_line(const char *kind, const char *format, va_list ap)
{
	char line[512];

	vsnprintf(line, sizeof(line), format, ap);
	fprintf(stderr, "pmdscope-pdump: %s%s\n", kind, line);
}

void
complain(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	print_line("", format, ap);
	va_end(ap);
}

void
note(const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	print_line("note: ", format, ap);
	va_end(ap);
}
