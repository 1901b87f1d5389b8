/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * However libpmdscope is linked, an app that ends in rte_exit() keeps its exit status, or
 * pmdscope_init() fails because it could not. Arguments: "ends" or "refused", and optionally a
 * library to load.
 */

#include <dlfcn.h>
#include <sys/wait.h>

#include <rte_debug.h>
#include <rte_errno.h>
#include <rte_mbuf.h>

#include "pmdscope.h"
#include "test.h"

#define ROUNDS 10
#define STATUS 3

typedef int (*init_fn)(const struct pmdscope_conf *conf);
typedef void (*fini_fn)(void);

#ifdef LOADED
static void *
load(const char *library, const char *name)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);

	if (handle == NULL)
		fprintf(stderr, "%s\n", dlerror());
	CHECK(handle != NULL);
	return dlsym(handle, name);
}
#endif

static void
run(bool refused, const char *library)
{
	struct pmdscope_conf conf = {
		.sample_ms = 10,
		.leak_walk_ms = 50,
		.leak_mode = PMDSCOPE_LEAK_ALWAYS,
	};
	init_fn init;
	fini_fn fini;

#ifdef LOADED
	*(void **)&init = load(library, "pmdscope_init");
	*(void **)&fini = load(library, "pmdscope_fini");
#else
	(void)library;
	init = pmdscope_init;
	fini = pmdscope_fini;
#endif
	test_eal("0");
	if (rte_pktmbuf_pool_create("pool", 30000, 0, 0, 256, 0) == NULL)
		rte_exit(1, "pool: %s\n", rte_strerror(rte_errno));
	if (refused) {
		CHECK(init(&conf) == -ENOTSUP);
		conf.flags = PMDSCOPE_F_FINI_FIRST;
	}
	CHECK(init(&conf) == 0);
	rte_delay_us_sleep(100000);
	if (refused)
		fini();
	rte_exit(STATUS, "the end\n");
}

int
main(int argc, char **argv)
{
	int round, status;
	pid_t child;

	CHECK(argc >= 2);
	for (round = 0; round < ROUNDS; round++) {
		child = fork();
		if (child == 0)
			run(strcmp(argv[1], "refused") == 0, argc > 2 ? argv[2] : NULL);
		CHECK(child > 0);
		CHECK(waitpid(child, &status, 0) == child);
		if (!WIFEXITED(status) || WEXITSTATUS(status) != STATUS) {
			fprintf(stderr, "round %d ended with status %#x\n", round, status);
			return 1;
		}
	}
	return 0;
}
