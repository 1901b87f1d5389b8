/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_mbuf.h>
#include <rte_ring.h>

#include "leak_bed.h"
#include "test.h"

#define TEXT_MAX 128

/* Print the last data of the library, at the end of a failed test. */
static void
print_tables(int status, void *arg __rte_unused)
{
	static const char *const tables[] = { "leaks", "pools", "sites", "queues" };
	unsigned int i;

	for (i = 0; status != 0 && i < RTE_DIM(tables); i++) {
		const char *body = ask(tables[i]);

		fprintf(stderr, "%s: %s\n", tables[i], body == NULL ? "none" : body);
	}
}

const struct pmdscope_conf always = {
	.sample_ms = 50,
	.leak_mode = PMDSCOPE_LEAK_ALWAYS,
	.leak_hold_ms = 500,
	.leak_walk_ms = 100,
};

struct leak_app app;
unsigned int worker;
volatile struct leak_orders orders = { .every = 64 };

/* The traced app's source, as in /pmdscope/sites. */
static const char *leak_file;

static uint16_t
poll_once(enum leak_kind now)
{
	if (orders.poll != NULL)
		return orders.poll(&app, now != LEAK_NONE);
	return orders.plain ? leak_plain_poll(&app, now) : leak_traced_poll(&app, now);
}

/* The next leak is due. Leaks that a busy machine delays are made later. */
static bool
is_due(void)
{
	static unsigned int bursts;
	static uint64_t next;

	if (orders.nb_leaks == 0) {
		next = 0;
		return false;
	}
	if (orders.per_second == 0)
		return ++bursts % orders.every == 0;
	if (next == 0)
		next = rte_rdtsc();
	if (rte_rdtsc() < next)
		return false;
	next += rte_get_tsc_hz() / orders.per_second;
	return true;
}

/* The leak is made. The orders may have changed meanwhile. */
static void
note_leak(void)
{
	unsigned int left = __atomic_load_n(&orders.nb_leaks, __ATOMIC_RELAXED);

	if (left != 0)
		__atomic_compare_exchange_n(&orders.nb_leaks, &left, left - 1, false,
				__ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

static int
work(void *arg __rte_unused)
{
	while (!orders.stop) {
		const enum leak_kind now = is_due() ? orders.kind : LEAK_NONE;
		uint16_t nb = 0;

		while (orders.paused && !orders.stop)
			;
		if (!orders.idle)
			nb = poll_once(now);
		if (nb > 0 && now != LEAK_NONE)
			note_leak();
		pmdscope_poll(nb);
		__atomic_store_n(&orders.bursts, orders.bursts + 1, __ATOMIC_RELEASE);
	}
	return 0;
}

static void
start_port(uint16_t port, uint16_t nb_rx)
{
	const struct rte_eth_conf conf = { 0 };

	CHECK(rte_eth_dev_configure(port, nb_rx, 1, &conf) == 0);
	CHECK(nb_rx == 0 ||
			rte_eth_rx_queue_setup(port, 0, 256, SOCKET_ID_ANY, NULL, app.pool) == 0);
	CHECK(rte_eth_tx_queue_setup(port, 0, 256, SOCKET_ID_ANY, NULL) == 0);
	CHECK(rte_eth_dev_start(port) == 0);
}

void
start_app(void)
{
	struct rte_ring *full = rte_ring_create("full_tx", 64, SOCKET_ID_ANY, 0);
	int port;

	app.pool = rte_pktmbuf_pool_create("pool", POOL_SIZE, 128, 64, 2048, SOCKET_ID_ANY);
	app.clones = rte_pktmbuf_pool_create("clones", 1023, 32, 0, 0, SOCKET_ID_ANY);
	app.ring = rte_ring_create("full", 64, SOCKET_ID_ANY, 0);
	CHECK(on_exit(print_tables, NULL) == 0);
	CHECK(app.pool != NULL && app.clones != NULL && app.ring != NULL && full != NULL);
	while (rte_ring_enqueue(app.ring, full) == 0)
		;
	while (rte_ring_enqueue(full, app.ring) == 0)
		;
	CHECK(rte_eal_hotplug_add("vdev", "net_null0", "size=64") == 0);
	CHECK(rte_eth_dev_get_port_by_name("net_null0", &app.port) == 0);
	port = rte_eth_from_rings("full", &full, 1, &full, 1, SOCKET_ID_ANY);
	CHECK(port >= 0);
	app.full_port = (uint16_t)port;
	app.stage = pmdscope_stage("reassembly");
	CHECK(app.stage > 0);
	leak_file = leak_traced_file();
	start_port(app.port, 1);
	start_port(app.full_port, 0);
	worker = rte_get_next_lcore(-1, 1, 0);
	CHECK(rte_eal_remote_launch(work, NULL, worker) == 0);
}

void
stop_app(void)
{
	orders.stop = true;
	rte_eal_mp_wait_lcore();
}

const char *
ask(const char *table)
{
	char cmd[64];

	snprintf(cmd, sizeof(cmd), "/pmdscope/%s", table);
	return tel_ask(cmd, "");
}

uint64_t
ledger(const char *pool, const char *column)
{
	const char *body = ask("leaks");
	const int row = tel_find(body, "name", pool);

	CHECK(row >= 0);
	return tel_cell(body, column, (unsigned int)row);
}

static uint64_t
lost_in(const char *body, unsigned int row)
{
	const uint64_t nb = tel_cell(body, "leaked", row) + tel_cell(body, "lost_at_least", row);

	CHECK(nb <= tel_cell(body, "size", row));
	return nb;
}

void
check_sum(const char *pool)
{
	static const char *const parts[] = { "common", "cached", "rx_posted", "tx_pending", "rings",
		"held", "leaked", "unplaced" };
	const char *body = ask("leaks");
	const int row = tel_find(body, "name", pool);
	uint64_t sum = 0;
	unsigned int i;

	CHECK(row >= 0);
	for (i = 0; i < RTE_DIM(parts); i++)
		sum += tel_cell(body, parts[i], (unsigned int)row);
	CHECK_U64(sum, tel_cell(body, "size", (unsigned int)row));
	lost_in(body, (unsigned int)row);
}

uint64_t
lost(void)
{
	const char *body = ask("leaks");

	return lost_in(body, (unsigned int)tel_find(body, "name", "pool"));
}

uint64_t
site(const char *pool, const char *name, const char *what, const char *column)
{
	const char *body = ask("sites");
	const char *names = json_get(body, "site");
	unsigned int i;

	for (i = 0; i < json_len(names); i++)
		if (tel_cell_is(body, "site", i, name) && tel_cell_is(body, "pool", i, pool) &&
				tel_cell_is(body, "kind", i, what))
			return tel_cell(body, column, i);
	return 0;
}

uint64_t
all_leaked(void)
{
	return ledger("pool", "leaked") + ledger("clones", "leaked");
}

bool
has_site(const char *pool, const char *name, const char *what, uint64_t nb)
{
	return site(pool, name, what, "count") == nb;
}

const char *
line_of(enum leak_kind k)
{
	static char name[TEXT_MAX];

	snprintf(name, sizeof(name), "%s:%u", leak_file, leak_traced_line(k));
	return name;
}

void
lose(enum leak_kind k, unsigned int nb)
{
	orders.kind = k;
	orders.nb_leaks = nb;
	WAIT_FOR(orders.nb_leaks == 0);
}

void
lose_all(void)
{
	orders.every = 1;
	orders.kind = LEAK_RX;
	orders.nb_leaks = UINT32_MAX;
	WAIT_FOR(rte_mempool_avail_count(app.pool) < 2 * LEAK_BURST);
}

void
restart(const struct pmdscope_conf *conf)
{
	pmdscope_fini();
	CHECK(pmdscope_init(conf) == 0);
	WAIT_FOR(tel_find(ask("leaks"), "name", "clones") >= 0);
}

void
await_walks(unsigned int nb)
{
	const uint64_t before = ledger("pool", "walks");

	WAIT_FOR(ledger("pool", "walks") >= before + nb);
}

void
await_bursts(unsigned int nb)
{
	const uint64_t before = __atomic_load_n(&orders.bursts, __ATOMIC_ACQUIRE);

	WAIT_FOR(__atomic_load_n(&orders.bursts, __ATOMIC_ACQUIRE) >= before + nb);
}

void
expect_no_leak(unsigned int ms)
{
	unsigned int i;

	for (i = 0; i < ms; i += 50) {
		rte_delay_us_sleep(50000);
		check_sum("pool");
	}
	CHECK_U64(all_leaked(), 0);
	CHECK_U64(tel_u64(ask("sites"), "total"), 0);
}
