/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef RUNTIME_DIR_H
#define RUNTIME_DIR_H

/* A runtime directory for a unit test that starts the EAL: the EAL creates one, and never removes it. */

#include <stdio.h>
#include <stdlib.h>

#include "check.h"

static char runtime_dir[] = "/tmp/pmdscope-test-XXXXXX";

static inline void
remove_runtime_dir(void)
{
	static const char *const leaves[] = { "/dpdk/rte", "/dpdk", "" };
	char path[sizeof(runtime_dir) + sizeof("/dpdk/rte")];
	unsigned int i;

	for (i = 0; i < sizeof(leaves) / sizeof(leaves[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", runtime_dir, leaves[i]);
		remove(path);
	}
}

/* Make rte_eal_init() use a directory that is removed when the test exits. */
static inline void
use_own_runtime_dir(void)
{
	CHECK(mkdtemp(runtime_dir) != NULL);
	CHECK(atexit(remove_runtime_dir) == 0);
	CHECK(setenv("RUNTIME_DIRECTORY", runtime_dir, 1) == 0);
}

#endif /* RUNTIME_DIR_H */
