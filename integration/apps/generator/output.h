/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef OUTPUT_H
#define OUTPUT_H

/*
 * A file to which whole lines are written during the run. A failure to write, for instance on a
 * full disk, is reported once and does not end the run; a line is then left out as a whole, and
 * later ones are tried again.
 */

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct output {
	const char *option; /* Option with the file name, without "--". */
	const char *path;
	int fd; /* Negative: not open. */
	off_t end;
	uint64_t missing; /* Lines. */
};

/* Create or truncate the file. 0 or a negative errno, reported. */
int output_open(struct output *output, const char *option, const char *path);

/* Append text, which ends with a newline. */
void output_write(struct output *output, const char *text, size_t size);

/* 0, or -EIO if lines are missing, reported. */
int output_close(struct output *output);

#endif /* OUTPUT_H */
