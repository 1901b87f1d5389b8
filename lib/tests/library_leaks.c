/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * The leak ledger and DPDK's libraries: a lost mbuf of a library is named by the call that returned
 * it; if that call is not traced, no line is named.
 */

#include <rte_gro.h>
#include <rte_launch.h>
#include <rte_lcore.h>

#include "leak_bed.h"
#include "library_app.h"
#include "library_state.h"
#include "test.h"

#define LOST 5
#define NOT_PROVEN "not proven, after "

struct library_state library_state;

static enum library_kind kind;
static bool opaque;
static volatile bool worker_stop;

static uint16_t
poll_library(struct leak_app *a, bool lose)
{
	return (opaque ? library_opaque_poll : library_traced_poll)(a, kind, lose);
}

static int
work_library(void *arg __rte_unused)
{
	(opaque ? library_opaque_work : library_traced_work)(&worker_stop);
	return 0;
}

static void
prepare(void)
{
	const struct rte_gro_param gro = {
		.gro_types = RTE_GRO_TCP_IPV4,
		.max_flow_num = 4,
		.max_item_per_flow = 64,
	};
	struct library_state *state = &library_state;

	state->table = rte_ip_frag_table_create(64, 4, 256, 3600 * rte_get_tsc_hz(), SOCKET_ID_ANY);
	state->reorder = rte_reorder_create("reorder", rte_socket_id(), 64);
	state->distributor = rte_distributor_create(
			"distributor", rte_socket_id(), 1, RTE_DIST_ALG_BURST);
	state->gro = rte_gro_ctx_create(&gro);
	CHECK(state->table != NULL && state->reorder != NULL && state->distributor != NULL &&
			state->gro != NULL);
}

static const char *
line_of_library(unsigned int line)
{
	static char name[64];

	snprintf(name, sizeof(name), "lib/tests/library_app.c:%u", line);
	return name;
}

/* Mbufs of the packet pool per loss. */
static unsigned int
lost_each(enum library_kind k)
{
	switch (k) {
	case LIBRARY_FRAGMENT_ALWAYS:
	case LIBRARY_MULTICAST_COPY:
	case LIBRARY_REASSEMBLE:
		return LIBRARY_FRAGMENTS;
	case LIBRARY_GRO:
		return LIBRARY_MERGED;
	default:
		return 1;
	}
}

static void
start(enum library_kind k, bool with_opaque)
{
	kind = k;
	opaque = with_opaque;
	if (k == LIBRARY_DISTRIBUTE)
		CHECK(rte_eal_remote_launch(work_library, NULL, rte_get_next_lcore(worker, 1, 0)) ==
				0);
	orders.poll = poll_library;
	restart(&always);
	expect_no_leak(1500);
	await_walks(5);
	orders.kind = LEAK_RX;
	orders.nb_leaks = LOST;
	WAIT_FOR(orders.nb_leaks == 0);
}

static void
blamed(const char *sites, const char *guilty)
{
	fprintf(stderr, "not (only) %s is blamed: %s\n", guilty, sites);
	exit(1);
}

/* Only this site has losses, and of its kind; mbufs kept by lost clones are extra. */
static void
expect_site(const char *pool, const char *name, uint64_t nb)
{
	const char *body;
	unsigned int i;

	WAIT_FOR(has_site(pool, name, "leak", nb));
	await_walks(15);
	body = ask("sites");
	for (i = 0; i < tel_u64(body, "total"); i++)
		if (!tel_cell_is(body, "kind", i, "pinned") && !tel_cell_is(body, "site", i, name))
			blamed(body, name);
	if (!has_site(pool, name, "leak", nb))
		blamed(ask("sites"), name);
}

/* No line is named for the losses. */
static void
expect_no_line(void)
{
	const char *body, *names;
	unsigned int i;

	WAIT_FOR(all_leaked() >= LOST);
	await_walks(15);
	body = ask("sites");
	names = json_get(body, "site");
	for (i = 0; i < json_len(names); i++)
		if (!tel_cell_is(body, "kind", i, "pinned") &&
				!tel_cell_is(body, "site", i, "untraced code") &&
				strncmp(json_at(names, i) + 1, NOT_PROVEN, strlen(NOT_PROVEN)) != 0)
			blamed(body, "untraced code");
}

/* Tests whose losses are packets that a library returned to the app. */
static void
test_traced(enum library_kind k)
{
	const char *pool = k == LIBRARY_MULTICAST ? "clones" : "pool";

	start(k, false);
	expect_site(pool, line_of_library(library_traced_line(k)), LOST * lost_each(k));
}

static void
test_opaque(enum library_kind k)
{
	start(k, true);
	if (k == LIBRARY_MULTICAST)
		expect_site("clones", line_of_library(library_opaque_line(k)), LOST);
	else if (k == LIBRARY_REORDER || k == LIBRARY_DISTRIBUTE || k == LIBRARY_GRO)
		expect_site("pool", line_of_library(library_opaque_rx_line()), LOST * lost_each(k));
	else
		expect_no_line();
}

static const char *const kinds[] = {
	[LIBRARY_FRAGMENT] = "fragment",
	[LIBRARY_FRAGMENT_ALWAYS] = "fragment_always",
	[LIBRARY_REASSEMBLE] = "reassemble",
	[LIBRARY_REORDER] = "reorder",
	[LIBRARY_DISTRIBUTE] = "distribute",
	[LIBRARY_GRO] = "gro",
	[LIBRARY_GSO] = "gso",
	[LIBRARY_MULTICAST] = "multicast",
	[LIBRARY_MULTICAST_COPY] = "multicast_copy",
};

/* One test per process, as mbufs lost by one would be found by the next. */
int
main(int argc, char **argv)
{
	unsigned int k;

	CHECK(argc == 3);
	for (k = 0; k < RTE_DIM(kinds) && strcmp(argv[2], kinds[k]) != 0; k++)
		;
	CHECK(k < RTE_DIM(kinds));
	test_eal_mb("0@(0,1),1@(0,1),2@(0,1)", "512");
	CHECK(pmdscope_init(&always) == 0);
	prepare();
	start_app();
	(strcmp(argv[1], "opaque") == 0 ? test_opaque : test_traced)((enum library_kind)k);
	library_state.stopping = true;
	await_bursts(2);
	worker_stop = true;
	rte_eal_wait_lcore(rte_get_next_lcore(worker, 1, 0));
	stop_app();
	pmdscope_fini();
	rte_eal_cleanup();
	return 0;
}
