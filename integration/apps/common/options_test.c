/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>
#include <unistd.h>

#include "check.h"
#include "options.h"

static bool quiet;
static uint32_t queues;
static uint64_t count, rate, wait_ms;
static const char *name, *out;

static const struct option_spec specs[] = {
	{ "quiet", NULL, "", option_flag, &quiet, 0, 0 },
	{ "queues", "N", "", option_u32, &queues, 1, 64 },
	{ "count", "N", "", option_u64, &count, 0, UINT64_MAX },
	{ "rate", "PPS", "", option_rate, &rate, 1, 1000000000 },
	{ "wait", "S", "", option_seconds, &wait_ms, 10, 5000 },
	{ "name", "NAME", "", option_text, &name, 0, 0 },
	{ "out", "FILE", "", option_output, &out, 0, 0 },
};

static enum options_result
parse(const char *a, const char *b)
{
	char *argv[] = { (char[]){ "test" }, strdup(a), b != NULL ? strdup(b) : NULL, NULL };
	const enum options_result result = options_parse(
			specs, sizeof(specs) / sizeof(specs[0]), b != NULL ? 3 : 2, argv);

	/* Text fields point to the arguments, so these are not freed. */
	return result;
}

static void
test_good(void)
{
	CHECK_EQ(parse("--quiet", NULL), OPTIONS_OK);
	CHECK(quiet);
	CHECK_EQ(parse("--queues", "64"), OPTIONS_OK);
	CHECK_EQ(queues, 64);
	CHECK_EQ(parse("--queues=1", NULL), OPTIONS_OK);
	CHECK_EQ(queues, 1);
	CHECK_EQ(parse("--count", "18446744073709551615"), OPTIONS_OK);
	CHECK_EQ(count, UINT64_MAX);
	CHECK_EQ(parse("--rate", "200k"), OPTIONS_OK);
	CHECK_EQ(rate, 200000);
	CHECK_EQ(parse("--rate", "1000M"), OPTIONS_OK);
	CHECK_EQ(rate, 1000000000);
	CHECK_EQ(parse("--wait", "0.25"), OPTIONS_OK);
	CHECK_EQ(wait_ms, 250);
	CHECK_EQ(parse("--name", "x"), OPTIONS_OK);
	CHECK(strcmp(name, "x") == 0);
	CHECK_EQ(parse("--out", "/tmp/x.json"), OPTIONS_OK);
	CHECK_EQ(parse("--out", "x.json"), OPTIONS_OK);
	CHECK_EQ(parse("--help", NULL), OPTIONS_HELP);
	CHECK_EQ(parse("-h", NULL), OPTIONS_HELP);
}

static void
test_bad(void)
{
	static const char *const bad[][2] = {
		{ "--queues", "0" },
		{ "--queues", "65" },
		{ "--queues", "-1" },
		{ "--queues", " 1" },
		{ "--queues", "+1" },
		{ "--queues", "1x" },
		{ "--queues", "" },
		{ "--queues", "4294967297" },
		{ "--queues", NULL },
		{ "--count", "18446744073709551616" },
		{ "--count", "1e3" },
		{ "--rate", "0" },
		{ "--rate", "k" },
		{ "--rate", "1001M" },
		{ "--rate", "2G" },
		{ "--rate", "18446744073709551615k" },
		{ "--rate", "" },
		{ "--wait", "nan" },
		{ "--wait", "inf" },
		{ "--wait", "0" },
		{ "--wait", "5.1" },
		{ "--wait", "1s" },
		{ "--wait", "-1" },
		{ "--name", "" },
		{ "--out", "/nonexistent/x" },
		{ "--out", "/tmp/" },
		{ "--nosuch", NULL },
		{ "--qu", NULL },
		{ "stray", NULL },
		{ "--quiet", "stray" },
		{ "--quiet=1", NULL },
		{ "-x", NULL },
	};
	unsigned int i;

	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		if (parse(bad[i][0], bad[i][1]) == OPTIONS_BAD)
			continue;
		fprintf(stderr, "'%s %s' was not refused\n", bad[i][0], bad[i][1]);
		exit(1);
	}
}

/* For any input, an accepted value is within the range. */
static void
test_random(void)
{
	static const char alphabet[] = "0123456789kM.-+ exnaif/";
	uint64_t state = 1;
	char text[12];
	int round, i;

	CHECK(freopen("/dev/null", "w", stderr) != NULL);
	for (round = 0; round < 20000; round++) {
		const int len = (int)(check_random(&state) % (sizeof(text) - 1));

		for (i = 0; i < len; i++)
			text[i] = alphabet[check_random(&state) % (sizeof(alphabet) - 1)];
		text[len] = '\0';
		for (i = 1; i <= 4; i++)
			specs[i].parse(&specs[i], text);
		if (queues < 1 || queues > 64 || rate < 1 || rate > 1000000000 || wait_ms < 10 ||
				wait_ms > 5000) {
			fprintf(stdout, "'%s' was accepted\n", text);
			exit(1);
		}
	}
}

static void
test_split(void)
{
	char app[] = "app", eal[] = "-l", cores[] = "0", dashes[] = "--", own[] = "--x";
	char *with[] = { app, eal, cores, dashes, own }, *without[] = { app, eal, cores };

	CHECK_EQ(options_split(5, with), 3);
	CHECK_EQ(options_split(3, without), 3);
	CHECK_EQ(options_split(1, with), 1);
}

int
main(void)
{
	test_good();
	test_bad();
	test_split();
	test_random();
	return 0;
}
