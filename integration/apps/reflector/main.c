/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* pmdscope-reflector: sends every packet back to its sender. */

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#include <pmdscope.h>

#include "alarm.h"
#include "answer.h"
#include "app.h"
#include "backpressure.h"
#include "clock.h"
#include "control.h"
#include "corrupt.h"
#include "counter.h"
#include "fault.h"
#include "leak.h"
#include "periodic.h"
#include "queues.h"
#include "reflect.h"
#include "refuse.h"
#include "report.h"
#include "restart.h"
#include "schedule.h"
#include "settings.h"
#include "stall.h"
#include "work.h"

static struct app app = { .pool_name = REFLECTOR_POOL_NAME, .options = &settings.app };
static struct rte_ether_addr port_mac[RTE_MAX_ETHPORTS];
static uint64_t tsc_hz;

/* Damage every N-th packet with payload. */
static void
corrupt_burst(struct rte_mbuf **pkts, uint16_t nb_pkts, uint64_t *since, struct reflector_stats *st)
{
	uint16_t i;

	for (i = 0; i < nb_pkts; i++) {
		if (++*since < settings.corrupt_every || !corrupt_packet(pkts[i]))
			continue;
		*since = 0;
		counter_add(&st->corrupted, 1);
	}
}

/* Turn a packet into the one to send back; NULL if there is none, and the packet is freed. */
static struct rte_mbuf *
turn_round(struct rte_mbuf *m, const struct rte_ether_addr *own, struct reflector_stats *st)
{
	enum answer_kind answer = ANSWER_NONE;
	enum reflect_kind kind;

	if (settings.addresses.nb > 0)
		answer = answer_packet(m, own, &settings.addresses);
	if (unlikely(answer != ANSWER_NONE)) {
		counter_add(&st->answers[answer], 1);
		if (answer != ANSWER_IGNORED)
			return m;
		rte_pktmbuf_free(m);
		return NULL;
	}
	kind = reflect_packet(m, own);
	if (likely(kind == REFLECT_IP))
		return m;
	if (kind == REFLECT_OTHER) {
		counter_add(&st->other, 1);
		return m;
	}
	counter_add(&st->runts, 1);
	rte_pktmbuf_free(m);
	return NULL;
}

/*
 * Swap the addresses in a burst; packets that are not to be sent are removed. Returns the packets
 * to send.
 */
static uint16_t
reflect_burst(const struct lane *lane, struct rte_mbuf **pkts, uint16_t nb_pkts,
		struct reflector_stats *st)
{
	const struct rte_ether_addr *own = &port_mac[lane->port];
	const bool answers = settings.addresses.nb > 0;
	uint64_t bytes = 0;
	uint16_t i, nb_out = 0;

	/* Most bursts have nothing else, and stay as they are. */
	while (!answers && nb_out < nb_pkts && likely(reflect_plain(pkts[nb_out])))
		bytes += rte_pktmbuf_pkt_len(pkts[nb_out++]);
	for (i = nb_out; i < nb_pkts; i++) {
		struct rte_mbuf *m = pkts[i];

		bytes += rte_pktmbuf_pkt_len(m);
		if (unlikely(answers) || unlikely(!reflect_plain(m)))
			m = turn_round(m, own, st);
		pkts[nb_out] = m;
		nb_out += m != NULL;
	}
	counter_add(&st->rx, nb_pkts);
	counter_add(&st->rx_bytes, bytes);
	return nb_out;
}

/* Settings of retries: how long to offer refused packets, and when TX is made to refuse. */
struct retry {
	uint64_t cycles; /* Of the TSC; 0: no retry. */
	struct periodic pressure;
};

static struct retry
retry_start(uint64_t now)
{
	struct retry retry = {
		.cycles = settings.retry_us * tsc_hz / 1000000,
		.pressure = periodic_start(
				settings.refuse_us, settings.refuse_every_ms, tsc_hz, now),
	};

	if (settings.retry_us == 0 && settings.refuse_us != 0)
		retry.cycles = UINT64_MAX;
	return retry;
}

/* Offer packets until TX takes them, the retry times out, or the app ends. Returns those sent. */
static uint16_t
send_with_retry(const struct lane *lane, struct rte_mbuf **pkts, uint16_t nb_pkts,
		const struct retry *retry)
{
	const uint64_t start = rte_rdtsc();
	uint64_t now = start;
	uint16_t sent = 0;

	do {
		if (retry->pressure.cycles != 0)
			refuse_all = backpressure_now(&retry->pressure, now);
		sent += pmdscope_tx_burst(lane->port, lane->queue, &pkts[sent], nb_pkts - sent);
		if (likely(sent == nb_pkts))
			break;
		now = rte_rdtsc();
	} while (now - start < retry->cycles && !control_stopping());
	return sent;
}

static void
send_burst(const struct lane *lane, struct rte_mbuf **pkts, uint16_t nb_pkts, struct schedule *leak,
		const struct retry *retry, struct reflector_stats *st)
{
	uint16_t sent;

	if (unlikely(schedule_due(leak))) {
		/* The leak is in the handling of refused packets, so make TX refuse one. */
		refuse_next = true;
		sent = leak_send(lane->port, lane->queue, pkts, nb_pkts);
		counter_add(&st->leaked, 1);
		counter_add(&st->dropped, nb_pkts - sent - 1);
	} else {
		sent = retry->cycles != 0
				       ? send_with_retry(lane, pkts, nb_pkts, retry)
				       : pmdscope_tx_burst(lane->port, lane->queue, pkts, nb_pkts);
		if (unlikely(sent < nb_pkts)) {
			rte_pktmbuf_free_bulk(&pkts[sent], nb_pkts - sent);
			counter_add(&st->dropped, nb_pkts - sent);
		}
	}
	counter_add(&st->tx, sent);
}

/* A page fault if one was requested. */
static void
fault_when_asked(volatile char *memory, int *faulted)
{
	unsigned int at;

	if (*faulted == fault_requests)
		return;
	*faulted = fault_requests;
	at = __atomic_fetch_add(&report_nb_faults, 1, __ATOMIC_RELAXED);
	if (at < REPORT_MAX_FAULTS && memory != NULL)
		report_faults[at] = fault_inject(memory);
}

static int
lcore_main(void *arg)
{
	const unsigned int lcore = rte_lcore_id();
	const struct lane *lane = &app.lanes.lane[app.lanes.first[lcore]];
	const struct lane *const end = lane + app.lanes.count[lcore];
	const uint16_t burst = (uint16_t)settings.app.burst;
	const uint64_t work = settings.work[lcore];
	struct reflector_stats *st = &stats[lcore];
	struct periodic stall = periodic_start(
			settings.stall_us, settings.stall_every_ms, tsc_hz, rte_rdtsc());
	struct periodic sleeping = periodic_start(
			settings.sleep_us, settings.sleep_every_ms, tsc_hz, rte_rdtsc());
	const struct retry retry = retry_start(rte_rdtsc());
	struct restart restart = restart_start(
			settings.restart_every_ms, settings.restart_down_ms, tsc_hz, rte_rdtsc());
	struct schedule leak = settings.leak;
	struct rte_mbuf *pkts[APP_MAX_BURST];
	volatile char *const memory = settings.faults ? fault_memory() : NULL;
	int faulted = 0;
	uint64_t intact = 0; /* Packets since the last damaged one. */
	uint16_t nb_rx, nb_out, polled;
	const struct lane *l;

	(void)arg;
	if (lane == end)
		return 0;
	if (alarm_start(settings.alarm_us, settings.alarm_every_ms) != 0)
		fprintf(stderr, "%s: --inject-signal: %s\n", program_invocation_short_name,
				strerror(errno));
	while (!control_stopping()) {
		polled = 0;
		for (l = lane; l < end; l++) {
			nb_rx = rte_eth_rx_burst(l->port, l->queue, pkts, burst);
			if (nb_rx == 0)
				continue;
			polled += nb_rx;
			counter_add(&queue_stats[l - app.lanes.lane].rx, nb_rx);
			if (work != 0)
				process_packets(work * nb_rx);
			nb_out = reflect_burst(l, pkts, nb_rx, st);
			if (settings.corrupt_every != 0)
				corrupt_burst(pkts, nb_out, &intact, st);
			if (likely(nb_out > 0))
				send_burst(l, pkts, nb_out, &leak, &retry, st);
		}
		pmdscope_poll(polled);
		if (unlikely(stall_when_due(&stall)))
			counter_add(&st->stalls, 1);
		if (unlikely(sleep_when_due(&sleeping, settings.sleep_us)))
			counter_add(&st->stalls, 1);
		if (settings.faults)
			fault_when_asked(memory, &faulted);
		if (restart.period != 0 && restart_when_due(&restart, lane, end))
			counter_add(&st->restarts, 1);
	}
	return 0;
}

static int
prepare_refusal(void)
{
	const bool needed = settings.leak.every != 0 || settings.refuse_us != 0;
	const int rc = needed ? refuse_install(&app.lanes) : 0;

	if (rc != 0)
		fprintf(stderr, "%s: --inject-leak or --inject-refusal: no TX callback: %s\n",
				program_invocation_short_name, strerror(-rc));
	return rc;
}

/* Ports are stopped by the lcore that polls them, so there must be only one. */
static int
check_restart(void)
{
	const unsigned int lcore = rte_lcore_id();

	if (settings.restart_every_ms == 0 || app.lanes.count[lcore] == app.lanes.nb_lanes)
		return 0;
	fprintf(stderr, "%s: --inject-restart needs all queues on one lcore: give the EAL one\n",
			program_invocation_short_name);
	return -1;
}

static void
read_port_macs(void)
{
	unsigned int i;

	for (i = 0; i < app.nb_ports; i++)
		if (rte_eth_macaddr_get(app.ports[i], &port_mac[app.ports[i]]) != 0)
			rte_eth_random_addr(port_mac[app.ports[i]].addr_bytes);
}

int
main(int argc, char **argv)
{
	struct reflector_stats sum;
	struct moment start, end;
	unsigned int in_use;
	double duration_s;
	int rc;

	rc = app_parse(&argc, argv, settings_specs, settings_nb_specs, settings_help);
	if (rc >= 0)
		return rc;
	/* A process that finds the app may request faults immediately. */
	if (settings.faults && fault_prepare() != 0)
		return APP_EXIT_FAILED;
	rc = app_open(&app, argc, argv);
	if (rc != 0)
		return rc;
	if (queues_create(&app) != 0) {
		app_stop(&app);
		app_close(&app);
		return APP_EXIT_FAILED;
	}
	report_start(&app);
	read_port_macs();
	tsc_hz = clock_measure_hz();

	rc = check_restart();
	if (rc == 0)
		rc = prepare_refusal();
	start = clock_now();
	if (rc == 0)
		rc = app_run(&app, lcore_main, NULL, report_interval);
	end = clock_now();

	in_use = app_stop(&app);
	sum = report_total();
	duration_s = (double)(end.monotonic_ns - start.monotonic_ns) / 1e9;
	report_summary(&sum, duration_s, in_use);
	if (settings.app.json != NULL && report_save(&sum, duration_s, in_use) != 0)
		rc = -1;
	queues_destroy();
	app_close(&app);
	return rc == 0 ? APP_EXIT_OK : APP_EXIT_FAILED;
}
