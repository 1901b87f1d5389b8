/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef OPTIONS_H
#define OPTIONS_H

/* Parses a command line according to a table, and prints errors and --help from it. */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct option_spec {
	const char *name;
	/* Name of the value in --help; NULL for an option without one. */
	const char *value;
	const char *help;
	/* Store text (NULL without a value) in field. On failure report and return -EINVAL. */
	int (*parse)(const struct option_spec *spec, const char *text);
	void *field;
	/* Smallest and largest number, in the unit of the field. */
	uint64_t min;
	uint64_t max;
};

/* Parsers; the comment names the type of the field. */
int option_flag(const struct option_spec *spec, const char *text);    /* bool */
int option_u32(const struct option_spec *spec, const char *text);     /* uint32_t */
int option_u64(const struct option_spec *spec, const char *text);     /* uint64_t */
int option_rate(const struct option_spec *spec, const char *text);    /* uint64_t; 1500k, 2M */
int option_seconds(const struct option_spec *spec, const char *text); /* uint64_t, milliseconds */
int option_text(const struct option_spec *spec, const char *text);    /* const char * */
int option_output(const struct option_spec *spec, const char *text);  /* const char * */

/* A decimal number in [min, max] that ends at end_char. False otherwise; *end points after it. */
bool option_number(const char *text, char end_char, uint64_t min, uint64_t max, uint64_t *number,
		const char **end);

/* Read "US/MS": a length and a period, which must be longer. 0, or -EINVAL, reported. */
int option_time_every(const struct option_spec *spec, const char *text, uint64_t *time_us,
		uint64_t *every_ms);

/* Report on stderr that a value is wrong, and which values are valid. Returns -EINVAL. */
int option_refuse(const struct option_spec *spec, const char *text, const char *wanted, ...)
		__attribute__((format(printf, 3, 4)));

enum options_result {
	OPTIONS_OK,
	OPTIONS_HELP,
	OPTIONS_BAD, /* Already reported. */
};

/* Options may take this many entries in a table. */
#define OPTIONS_MAX 96

/* Parse argv[1..argc); "--help" and "-h" are accepted in addition to the table. */
enum options_result
options_parse(const struct option_spec *specs, unsigned int nb_specs, int argc, char **argv);

/* Start of the application's own arguments: the index of the first "--", or argc. */
int options_split(int argc, char **argv);

/* One paragraph per option. */
void options_help(FILE *out, const struct option_spec *specs, unsigned int nb_specs);

#endif /* OPTIONS_H */
