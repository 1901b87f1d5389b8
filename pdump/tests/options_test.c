/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include "options.h"
#include "test.h"

#define MAX_ARGS 16
#define GOOD "--file-prefix", "app", "--pid", "42", "--fd", "3", "--cpus", "0,2-3"

static struct options options;
static char why[256];

static enum options_result
parse(const char *const *args)
{
	static char program[] = "pmdscope-pdump";
	char *argv[MAX_ARGS + 1] = { program };
	int argc = 1;

	for (; args[argc - 1] != NULL; argc++)
		argv[argc] = (char *)(uintptr_t)args[argc - 1];
	return options_parse(argc, argv, &options, why, sizeof(why));
}

#define PARSE(...) parse((const char *const[]){ __VA_ARGS__, NULL })

static void
test_good(void)
{
	CHECK(PARSE(GOOD, "--port", "1,2,4,net_null0,odd") == OPTIONS_RUN);
	CHECK(strcmp(options.file_prefix, "app") == 0);
	CHECK(options.pid == 42 && options.fd == 3 && !options.force);
	CHECK_U64(CPU_COUNT(&options.cpus), 3);
	CHECK(CPU_ISSET(0, &options.cpus) && CPU_ISSET(3, &options.cpus));
	CHECK_U64(options.nb_ports, 1);
	CHECK(options.ports[0].id == 1 && options.ports[0].nb_rxq == 2);
	CHECK(options.ports[0].nb_txq == 4);
	CHECK(strcmp(options.ports[0].device, "net_null0,odd") == 0);
	CHECK(PARSE(GOOD, "--port", "0,1,1,a", "--port", "3,1,1,b", "--force") == OPTIONS_RUN);
	CHECK(options.nb_ports == 2 && options.force);
}

/* Errors name the wrong option. */
static void
test_wrong(void)
{
	static const char *const ports[] = { "", "0", "0,1,1", "0,1,1,", "x,1,1,d", "-1,1,1,d",
		"0,1025,1,d", "32,1,1,d",
		"0,1,1,12345678901234567890123456789012345678901234567890"
		"123456789012345" };
	static const char *const cpus[] = { "", ",", "1,", "a", "3-1", "0-", "-1", "0-99999", "1;2",
		"99999999999999999999" };
	static const char *const prefixes[] = { "", "-x", "a/b", "..", "." };
	unsigned int i;

	for (i = 0; i < RTE_DIM(ports); i++) {
		CHECK(PARSE(GOOD, "--port", ports[i]) == OPTIONS_WRONG);
		CHECK(strstr(why, "--port") != NULL);
	}
	for (i = 0; i < RTE_DIM(cpus); i++) {
		CHECK(PARSE(GOOD, "--port", "0,1,1,d", "--cpus", cpus[i]) == OPTIONS_WRONG);
		CHECK(strstr(why, "--cpus") != NULL);
	}
	for (i = 0; i < RTE_DIM(prefixes); i++) {
		CHECK(PARSE(GOOD, "--port", "0,1,1,d", "--file-prefix", prefixes[i]) ==
				OPTIONS_WRONG);
		CHECK(strstr(why, "--file-prefix") != NULL);
	}
	CHECK(PARSE(GOOD) == OPTIONS_WRONG && strstr(why, "--port") != NULL);
	CHECK(PARSE(GOOD, "--pid", "0") == OPTIONS_WRONG && strstr(why, "--pid") != NULL);
	CHECK(PARSE(GOOD, "--fd", "x") == OPTIONS_WRONG && strstr(why, "--fd") != NULL);
	CHECK(PARSE(GOOD, "--port") == OPTIONS_WRONG && strstr(why, "--port") != NULL);
	CHECK(PARSE(GOOD, "--turbo") == OPTIONS_WRONG && strstr(why, "--turbo") != NULL);
	CHECK(PARSE(GOOD, "--port", "0,1,1,d", "more") == OPTIONS_WRONG);
	CHECK(strstr(why, "more") != NULL);
	CHECK(PARSE("--help") == OPTIONS_SHOWN);
	CHECK(PARSE("--version") == OPTIONS_SHOWN);
}

int
main(void)
{
	test_good();
	test_wrong();
	return 0;
}
