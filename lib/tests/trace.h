/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef TRACE_H
#define TRACE_H

/* Every wrapped call, each on a separate line, for a test that is compiled without the macros. */

#ifdef __cplusplus
extern "C" {
#endif

#include <stdint.h>

#include <rte_mbuf.h>

struct trace_env {
	struct rte_mempool *pool;
	uint16_t port;	    /* Takes and gives packets. */
	uint16_t full_port; /* Takes none. */
};

/* Effect of a call. */
struct trace_result {
	struct rte_mbuf *m; /* The mbuf to check; its memory still exists. */
	const char *file;
	unsigned int line;
	const char *operation;
	uint64_t stamp_class;
};

/* Make call i; false after the last. In C++ the same calls are in templates. */
bool trace_call(unsigned int i, const struct trace_env *env, struct trace_result *result);
bool trace_call_cxx(unsigned int i, const struct trace_env *env, struct trace_result *result);

#ifdef __cplusplus
}
#endif

#endif /* TRACE_H */
