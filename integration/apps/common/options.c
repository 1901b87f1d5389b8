/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <libgen.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options.h"

int
option_refuse(const struct option_spec *spec, const char *text, const char *wanted, ...)
{
	va_list ap;

	fprintf(stderr, "%s: --%s: '%s' is not ", program_invocation_short_name, spec->name, text);
	va_start(ap, wanted);
	vfprintf(stderr, wanted, ap);
	va_end(ap);
	fprintf(stderr, "; see --help\n");
	return -EINVAL;
}

bool
option_number(const char *text, char end_char, uint64_t min, uint64_t max, uint64_t *number,
		const char **end)
{
	char *after;

	/* strtoull() accepts blanks and signs. */
	if (!isdigit((unsigned char)*text))
		return false;
	errno = 0;
	*number = strtoull(text, &after, 10);
	if (errno != 0 || *after != end_char || *number < min || *number > max)
		return false;
	if (end != NULL)
		*end = after + (end_char != '\0');
	return true;
}

int
option_flag(const struct option_spec *spec, const char *text)
{
	(void)text;
	*(bool *)spec->field = true;
	return 0;
}

int
option_u64(const struct option_spec *spec, const char *text)
{
	uint64_t number;

	if (!option_number(text, '\0', spec->min, spec->max, &number, NULL))
		return option_refuse(spec, text, "a whole number from %" PRIu64 " to %" PRIu64,
				spec->min, spec->max);
	*(uint64_t *)spec->field = number;
	return 0;
}

int
option_u32(const struct option_spec *spec, const char *text)
{
	uint64_t number;
	struct option_spec wide = *spec;

	wide.field = &number;
	if (option_u64(&wide, text) != 0)
		return -EINVAL;
	*(uint32_t *)spec->field = (uint32_t)number;
	return 0;
}

int
option_rate(const struct option_spec *spec, const char *text)
{
	const size_t len = strlen(text);
	const char last = len > 0 ? text[len - 1] : '\0';
	const uint64_t unit = last == 'k' ? 1000 : last == 'M' ? 1000000 : 1;
	uint64_t number;

	if (!option_number(text, unit == 1 ? '\0' : last, 0, spec->max / unit, &number, NULL) ||
			number * unit < spec->min)
		return option_refuse(spec, text,
				"a whole number from %" PRIu64 " to %" PRIu64
				", such as 200000, 200k "
				"or 2M",
				spec->min, spec->max);
	*(uint64_t *)spec->field = number * unit;
	return 0;
}

int
option_time_every(const struct option_spec *spec, const char *text, uint64_t *time_us,
		uint64_t *every_ms)
{
	const char *every;
	uint64_t us, ms;

	if (!option_number(text, '/', 1, 10000000, &us, &every) ||
			!option_number(every, '\0', 1, 3600000, &ms, NULL) || us >= ms * 1000)
		return option_refuse(spec, text,
				"US/MS, up to 10000000 microseconds every MS milliseconds, "
				"shorter than those");
	*time_us = us;
	*every_ms = ms;
	return 0;
}

int
option_seconds(const struct option_spec *spec, const char *text)
{
	double seconds = -1;
	char *after = NULL;

	if (isdigit((unsigned char)*text))
		seconds = strtod(text, &after);
	/* Written so that a NaN fails as well. */
	if (after == NULL || *after != '\0' ||
			!(seconds * 1e3 >= (double)spec->min && seconds * 1e3 <= (double)spec->max))
		return option_refuse(spec, text, "a number of seconds from %g to %g",
				(double)spec->min / 1e3, (double)spec->max / 1e3);
	*(uint64_t *)spec->field = (uint64_t)(seconds * 1e3 + 0.5);
	return 0;
}

int
option_text(const struct option_spec *spec, const char *text)
{
	if (*text == '\0')
		return option_refuse(spec, text, "a value");
	*(const char **)spec->field = text;
	return 0;
}

/* Refuse early an output that could only fail at the end of a long run. */
int
option_output(const struct option_spec *spec, const char *text)
{
	char *copy;
	int writable;

	if (option_text(spec, text) != 0)
		return -EINVAL;
	copy = strdup(text);
	writable = copy != NULL && access(dirname(copy), W_OK | X_OK) == 0;
	free(copy);
	if (!writable || text[strlen(text) - 1] == '/')
		return option_refuse(spec, text, "a file in a directory that can be written to");
	return 0;
}

enum options_result
options_parse(const struct option_spec *specs, unsigned int nb_specs, int argc, char **argv)
{
	struct option longopts[OPTIONS_MAX + 2] = { 0 };
	unsigned int i;
	int index, opt;

	if (nb_specs > OPTIONS_MAX)
		return OPTIONS_BAD;
	for (i = 0; i < nb_specs; i++) {
		longopts[i].name = specs[i].name;
		longopts[i].has_arg = specs[i].value != NULL ? required_argument : no_argument;
	}
	longopts[nb_specs] = (struct option){ "help", no_argument, NULL, 'h' };

	opterr = 0;
	optind = 0;
	while ((opt = getopt_long(argc, argv, "+:h", longopts, &index)) != -1) {
		switch (opt) {
		case 0:
			if (specs[index].parse(&specs[index], optarg) != 0)
				return OPTIONS_BAD;
			break;
		case 'h':
			return OPTIONS_HELP;
		case ':':
			fprintf(stderr, "%s: %s needs a value; see --help\n",
					program_invocation_short_name, argv[optind - 1]);
			return OPTIONS_BAD;
		default:
			fprintf(stderr, "%s: unknown or ambiguous option '%s'; see --help\n",
					program_invocation_short_name, argv[optind - 1]);
			return OPTIONS_BAD;
		}
	}
	if (optind < argc) {
		fprintf(stderr, "%s: unexpected argument '%s'; see --help\n",
				program_invocation_short_name, argv[optind]);
		return OPTIONS_BAD;
	}
	return OPTIONS_OK;
}

int
options_split(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		if (strcmp(argv[i], "--") == 0)
			return i;
	return argc;
}

void
options_help(FILE *out, const struct option_spec *specs, unsigned int nb_specs)
{
	unsigned int i;
	char left[32];

	for (i = 0; i < nb_specs; i++) {
		snprintf(left, sizeof(left), "--%s %s", specs[i].name,
				specs[i].value != NULL ? specs[i].value : "");
		fprintf(out, "  %-22s %s\n", left, specs[i].help);
	}
	fprintf(out, "  %-22s %s\n", "-h, --help", "print this text");
}
