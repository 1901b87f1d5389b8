/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "config.h"

static struct {
	uint64_t rate;
	uint32_t queues;
	bool fill, quiet;
	const char *size, *config;
} values;

static const struct option_spec specs[] = {
	{ "rate", "PPS", "", option_rate, &values.rate, 0, 1000000 },
	{ "queues", "N", "", option_u32, &values.queues, 1, 64 },
	{ "fill", NULL, "", option_flag, &values.fill, 0, 0 },
	{ "quiet", NULL, "", option_flag, &values.quiet, 0, 0 },
	{ "size", "SIZES", "", option_text, &values.size, 0, 0 },
	{ "config", "FILE", "", option_text, &values.config, 0, 0 },
};
#define NB_SPECS (sizeof(specs) / sizeof(specs[0]))

static char path[] = "/tmp/pmdscope-config-XXXXXX";

static int
parse(const char *text)
{
	FILE *out = fopen(path, "w");

	CHECK(out != NULL);
	CHECK(fputs(text, out) >= 0);
	CHECK(fclose(out) == 0);
	memset(&values, 0, sizeof(values));
	return config_parse(specs, NB_SPECS, path);
}

/* The error message on stderr. */
static const char *
parse_wrong(const char *text)
{
	static char said[4096];
	char name[] = "/tmp/pmdscope-config-XXXXXX";
	const int log = mkstemp(name), own = dup(STDERR_FILENO);
	ssize_t size;

	CHECK(log >= 0 && own >= 0);
	unlink(name);
	CHECK(dup2(log, STDERR_FILENO) >= 0);
	CHECK(parse(text) != 0);
	CHECK(dup2(own, STDERR_FILENO) >= 0);
	size = pread(log, said, sizeof(said) - 1, 0);
	CHECK(size > 0);
	said[size] = '\0';
	close(log);
	close(own);
	return said;
}

static void
check_wrong(const char *text, const char *line, const char *what)
{
	char where[64];
	const char *said = parse_wrong(text);

	snprintf(where, sizeof(where), "%s:%s: ", path, line);
	if (strstr(said, where) == NULL || strstr(said, what) == NULL) {
		fprintf(stderr, "no '%s' and '%s' in: %s", where, what, said);
		exit(1);
	}
}

static void
test_right(void)
{
	CHECK_EQ(parse("# a comment\n"
		       "rate = 200k\n"
		       "\n"
		       "  queues=3   # three\n"
		       "fill = yes\n"
		       "quiet = no\n"
		       "size = 60:7,590:4"),
			0);
	CHECK_EQ(values.rate, 200000);
	CHECK_EQ(values.queues, 3);
	CHECK(values.fill);
	CHECK(!values.quiet);
	CHECK(strcmp(values.size, "60:7,590:4") == 0);
	CHECK_EQ(parse(""), 0);
	CHECK_EQ(parse("rate = 1\nrate = 2\r\n"), 0);
	CHECK_EQ(values.rate, 2);
}

static void
test_wrong(void)
{
	static char longest[400];

	check_wrong("rate = 1\n\nspeed = 2\n", "3", "unknown option 'speed'");
	check_wrong("rate = 1\nqueues = 65\n", "2", "wrong value of 'queues'");
	check_wrong("rate = 1\nqueues = 65\n", "2", "from 1 to 64");
	check_wrong("rate\n", "1", "name = value");
	check_wrong("fill = 1\n", "1", "not yes or no");
	check_wrong("fill\n", "1", "name = value");
	check_wrong("size =\n", "1", "wrong value of 'size'");
	check_wrong("config = other\n", "1", "unknown option 'config'");
	check_wrong("[generator]\nrate = 1\n", "2", "sections");
	check_wrong("rate = 1\n   2\n", "2", "name = value");
	/* Only the first error is reported, and lines after it have no effect. */
	CHECK(strstr(parse_wrong("speed = 2\nqueues = 65\n"), "queues") == NULL);
	parse_wrong("speed = 2\nqueues = 64\n");
	CHECK_EQ(values.queues, 0);
	memset(longest, 'x', sizeof(longest) - 1);
	check_wrong(longest, "1", "too long");
	unlink(path);
	memset(&values, 0, sizeof(values));
	CHECK(config_parse(specs, NB_SPECS, path) != 0);
}

static void
remove_file(void)
{
	unlink(path);
}

int
main(void)
{
	const int fd = mkstemp(path);

	CHECK(fd >= 0);
	close(fd);
	CHECK(atexit(remove_file) == 0);
	test_right();
	test_wrong();
	return 0;
}
