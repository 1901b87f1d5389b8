/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Each call that pmdscope_trace.h wraps stores its line in the mbuf, and none while disarmed. */

#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "pmdscope.h"
#include "site.h"
#include "stamp.h"
#include "test.h"
#include "trace.h"

static const struct pmdscope_conf never = { .leak_mode = PMDSCOPE_LEAK_NEVER };
static const struct pmdscope_conf always = { .leak_mode = PMDSCOPE_LEAK_ALWAYS, .sample_ms = 10 };

static struct trace_env env;

static uint16_t
ring_port(const char *name, bool full)
{
	const struct rte_eth_conf conf = { 0 };
	struct rte_ring *r = rte_ring_create(name, 256, SOCKET_ID_ANY, 0);
	int port;

	CHECK(r != NULL);
	while (full && rte_ring_enqueue(r, r) == 0)
		;
	port = rte_eth_from_rings(name, &r, 1, &r, 1, SOCKET_ID_ANY);
	CHECK(port >= 0);
	CHECK(rte_eth_dev_configure((uint16_t)port, 1, 1, &conf) == 0);
	CHECK(rte_eth_rx_queue_setup((uint16_t)port, 0, 64, SOCKET_ID_ANY, NULL, env.pool) == 0);
	CHECK(rte_eth_tx_queue_setup((uint16_t)port, 0, 64, SOCKET_ID_ANY, NULL) == 0);
	CHECK(rte_eth_dev_start((uint16_t)port) == 0);
	return (uint16_t)port;
}

typedef bool (*trace_fn)(unsigned int i, const struct trace_env *env, struct trace_result *r);

static void
check_call(const struct trace_result *r)
{
	const uint64_t stamp = pmdscope_stamp_get(r->m);
	const struct pmdscope_site_info *info = pmdscope_site_info(PMDSCOPE_STAMP_SITE_ID(stamp));
	char expected[PMDSCOPE_TEXT_MAX];

	snprintf(expected, sizeof(expected), "%s:%u", strrchr(r->file, '/'), r->line);
	if (info == NULL || (stamp & PMDSCOPE_STAMP_CLASS) != r->stamp_class ||
			strcmp(info->operation, r->operation) != 0 ||
			strlen(info->name) < strlen(expected) ||
			strcmp(info->name + strlen(info->name) - strlen(expected), expected) != 0) {
		fprintf(stderr, "%s at %s: stamp %#" PRIx64 " of %s at %s\n", r->operation,
				expected, stamp, info == NULL ? "?" : info->operation,
				info == NULL ? "?" : info->name);
		exit(1);
	}
}

/* Provide packets to receive: the tx port of the pair is also its rx port. */
static void
feed(void)
{
	struct rte_mbuf *m = rte_pktmbuf_alloc(env.pool);

	CHECK(m != NULL);
	CHECK(rte_eth_tx_burst(env.port, 0, &m, 1) == 1);
}

static unsigned int
run(trace_fn call, bool check)
{
	struct trace_result r;
	unsigned int i;

	for (i = 0;; i++) {
		r.m = NULL;
		feed();
		if (!call(i, &env, &r))
			return i;
		CHECK(r.m != NULL);
		if (check)
			check_call(&r);
	}
}

int
main(void)
{
	struct trace_result r;
	uint64_t before;

	test_eal("0@(0,1)");
	env.pool = rte_pktmbuf_pool_create("pool", 4095, 64, 24, 2048, SOCKET_ID_ANY);
	CHECK(env.pool != NULL);
	env.port = ring_port("loop", false);
	env.full_port = ring_port("full", true);

	/* Before the library runs, and while stamps are disarmed, nothing is written. */
	CHECK(run(trace_call, false) > 20);
	CHECK(pmdscope_init(&never) == 0);
	CHECK(run(trace_call, false) > 20);
	CHECK(run(trace_call_cxx, false) > 20);
	pmdscope_fini();
	CHECK_U64(pmdscope_site_end(), 1);

	/* One source file in C, and one in C++. */
	CHECK_U64(pmdscope_traced_units, 2);

	CHECK(pmdscope_init(&always) == 0);
	WAIT_FOR(pmdscope_stamp_now() != 0);
	before = run(trace_call, true);
	CHECK_U64(run(trace_call_cxx, true), before);
	pmdscope_fini();
	CHECK_U64(pmdscope_stamp_now(), 0);
	CHECK(trace_call(0, &env, &r));
	rte_eal_cleanup();
	return 0;
}
