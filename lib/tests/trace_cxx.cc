/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* In C++, in templates. One of them has a counterpart that is not a template, in the same file. */

#include "trace.h"

#define NAME(name) call_##name<int>
#define CALL(name) \
	template <typename T> static void \
	call_##name(const struct trace_env *env, struct trace_result *r)
#define TRACE_CALL trace_call_cxx

#include "trace_calls.h"

inline struct rte_mbuf *
trace_inline(struct rte_mempool *pool)
{
	return [pool] { return rte_pktmbuf_alloc(pool); }();
}

extern "C" struct rte_mbuf *trace_lambda(struct rte_mempool *pool);

struct rte_mbuf *
trace_lambda(struct rte_mempool *pool)
{
	return trace_inline(pool);
}
