/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* pmdscope-reflector: sends every packet back to its sender. */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#include <pmdscope.h>

#include "alarm.h"
#include "app.h"
#include "backpressure.h"
#include "clock.h"
#include "control.h"
#include "corrupt.h"
#include "counter.h"
#include "leak.h"
#include "periodic.h"
#include "reflect.h"
#include "refuse.h"
#include "restart.h"
#include "schedule.h"
#include "stall.h"

#define POOL_NAME "reflector_pool"

struct reflector_options {
	struct app_options app;
	struct schedule leak;
	uint64_t corrupt_every; /* Packets of an lcore; 0: never. */
	uint64_t stall_us;
	uint64_t stall_every_ms;
	uint64_t refuse_us;
	uint64_t refuse_every_ms;
	uint64_t alarm_us;
	uint64_t alarm_every_ms;
	uint64_t restart_every_ms;
	uint64_t restart_down_ms;
};

/* Written by one lcore, read by the control thread. */
struct reflector_stats {
	uint64_t rx;
	uint64_t rx_bytes;
	uint64_t tx;
	uint64_t dropped; /* Not taken by TX, freed. */
	uint64_t other;	  /* Only MAC addresses swapped. */
	uint64_t runts;	  /* Too short to send, freed. */
	uint64_t leaked;
	uint64_t corrupted;
	uint64_t stalls;
	uint64_t restarts;
} __rte_cache_aligned;

static struct reflector_options options = { .app = APP_OPTIONS_DEFAULT };
static struct app app = { .pool_name = POOL_NAME, .options = &options.app };
static struct reflector_stats stats[RTE_MAX_LCORE];
static struct rte_ether_addr port_mac[RTE_MAX_ETHPORTS];
static uint64_t tsc_hz;

static int
parse_leak(const struct option_spec *spec, const char *text)
{
	if (!schedule_parse(&options.leak, text))
		return option_refuse(spec, text, SCHEDULE_WANTED);
	return 0;
}

/* "1/N" */
static int
parse_corruption(const struct option_spec *spec, const char *text)
{
	if (strncmp(text, "1/", 2) != 0 || !option_number(text + 2, '\0', 1, SCHEDULE_MAX,
							   &options.corrupt_every, NULL))
		return option_refuse(spec, text, "1/N with N from 1 to 2147483648");
	return 0;
}

/* "US/MS" */
static int
parse_time(const struct option_spec *spec, const char *text, uint64_t *time_us, uint64_t *every_ms)
{
	const char *every;
	uint64_t us, ms;

	if (!option_number(text, '/', 1, 10000000, &us, &every) ||
			!option_number(every, '\0', 1, 3600000, &ms, NULL) || us >= ms * 1000)
		return option_refuse(spec, text,
				"US/MS, up to 10000000 microseconds every MS milliseconds, "
				"shorter than those");
	*time_us = us;
	*every_ms = ms;
	return 0;
}

static int
parse_stall(const struct option_spec *spec, const char *text)
{
	return parse_time(spec, text, &options.stall_us, &options.stall_every_ms);
}

static int
parse_refuse(const struct option_spec *spec, const char *text)
{
	return parse_time(spec, text, &options.refuse_us, &options.refuse_every_ms);
}

static int
parse_alarm(const struct option_spec *spec, const char *text)
{
	return parse_time(spec, text, &options.alarm_us, &options.alarm_every_ms);
}

/* "MS" or "MS/DOWN" */
static int
parse_restart(const struct option_spec *spec, const char *text)
{
	const bool down = strchr(text, '/') != NULL;
	const char *rest;
	uint64_t every, ms = 0;

	if (!option_number(text, down ? '/' : '\0', 10, 3600000, &every, &rest) ||
			(down && !option_number(rest, '\0', 1, every - 1, &ms, NULL)))
		return option_refuse(spec, text,
				"MS or MS/DOWN, from 10 to 3600000 milliseconds, of which the ports are "
				"down less than all");
	options.restart_every_ms = every;
	options.restart_down_ms = ms;
	return 0;
}

static const struct option_spec specs[] = {
	APP_OPTION_SPECS(options.app),
	{ "inject-leak", SCHEDULE_VALUE, "leak one packet in every N bursts, or one per lcore",
			parse_leak, NULL, 0, 0 },
	{ "inject-corruption", "1/N",
			"invert a payload bit of one packet in every N, checksums unchanged",
			parse_corruption, NULL, 0, 0 },
	{ "inject-stall", "US/MS", "stall each lcore US microseconds every MS milliseconds",
			parse_stall, NULL, 0, 0 },
	{ "inject-refusal", "US/MS",
			"refuse all TX for US microseconds every MS milliseconds, and retry",
			parse_refuse, NULL, 0, 0 },
	{ "inject-signal", "US/MS",
			"interrupt each lcore every MS milliseconds by a signal, handled in US microseconds",
			parse_alarm, NULL, 0, 0 },
	{ "inject-restart", "MS[/DOWN]",
			"stop and start the ports every MS milliseconds, DOWN ms apart (0); one lcore only",
			parse_restart, NULL, 0, 0 },
};

static void
help(FILE *out)
{
	fputs("Usage: pmdscope-reflector [EAL options] [--pmdscope KEY=VALUE,...] -- [options]\n\n"
	      "Sends every packet back out of the port and queue it came in on, with MAC addresses,\n"
	      "IP addresses and UDP or TCP ports swapped. Ends on SIGINT or SIGTERM.\n\n"
	      "Options:\n",
			out);
	options_help(out, specs, RTE_DIM(specs));
	fputs("\nExamples:\n"
	      "  pmdscope-reflector -l 0 --no-pci --file-prefix reflector \\\n"
	      "      --vdev net_vhost0,iface=/tmp/pmdscope.sock,queues=2 -- --queues 2\n"
	      "  pmdscope-reflector -l 1,2 -a 0000:3b:00.0 -- --queues 2 --json summary.json\n"
	      "  pmdscope-reflector --no-huge -m 256 --no-pci --vdev net_memif0,role=server \\\n"
	      "      -- --inject-leak 1/1000\n\n"
	      "Exit status: 0 after a clean end, 1 on failure, 2 on a usage error.\n",
			out);
}

/* Damage each N-th packet with payload. */
static void
corrupt_burst(struct rte_mbuf **pkts, uint16_t nb_pkts, uint64_t *since, struct reflector_stats *st)
{
	uint16_t i;

	for (i = 0; i < nb_pkts; i++) {
		if (++*since < options.corrupt_every || !corrupt_packet(pkts[i]))
			continue;
		*since = 0;
		counter_add(&st->corrupted, 1);
	}
}

/* Turn a burst round; runts are freed and left out. Returns the packets to send. */
static uint16_t
reflect_burst(const struct lane *lane, struct rte_mbuf **pkts, uint16_t nb_pkts,
		struct reflector_stats *st)
{
	uint64_t bytes = 0, other = 0;
	uint16_t i, nb_out = 0;
	enum reflect_kind kind;

	for (i = 0; i < nb_pkts; i++) {
		bytes += rte_pktmbuf_pkt_len(pkts[i]);
		kind = reflect_packet(pkts[i], &port_mac[lane->port]);
		if (unlikely(kind == REFLECT_RUNT)) {
			rte_pktmbuf_free(pkts[i]);
			continue;
		}
		other += kind == REFLECT_OTHER;
		pkts[nb_out++] = pkts[i];
	}
	counter_add(&st->rx, nb_pkts);
	counter_add(&st->rx_bytes, bytes);
	counter_add(&st->other, other);
	counter_add(&st->runts, nb_pkts - nb_out);
	return nb_out;
}

/* Offer the packets again until TX takes them, or the app ends. Returns the packets sent. */
static uint16_t
send_all(const struct lane *lane, struct rte_mbuf **pkts, uint16_t nb_pkts,
		const struct periodic *pressure)
{
	uint16_t sent = 0;

	while (sent < nb_pkts && !control_stopping()) {
		refuse_all = backpressure_now(pressure, rte_rdtsc());
		sent += pmdscope_tx_burst(lane->port, lane->queue, &pkts[sent], nb_pkts - sent);
	}
	return sent;
}

static void
send_burst(const struct lane *lane, struct rte_mbuf **pkts, uint16_t nb_pkts, struct schedule *leak,
		const struct periodic *pressure, struct reflector_stats *st)
{
	uint16_t sent;

	if (unlikely(schedule_due(leak))) {
		/* The leak is in the handling of what TX refuses, so make sure that there is some. */
		refuse_next = true;
		sent = leak_send(lane->port, lane->queue, pkts, nb_pkts);
		counter_add(&st->leaked, 1);
		counter_add(&st->dropped, nb_pkts - sent - 1);
	} else {
		sent = pressure->cycles != 0
				       ? send_all(lane, pkts, nb_pkts, pressure)
				       : pmdscope_tx_burst(lane->port, lane->queue, pkts, nb_pkts);
		if (unlikely(sent < nb_pkts)) {
			rte_pktmbuf_free_bulk(&pkts[sent], nb_pkts - sent);
			counter_add(&st->dropped, nb_pkts - sent);
		}
	}
	counter_add(&st->tx, sent);
}

static int
lcore_main(void *arg)
{
	const unsigned int lcore = rte_lcore_id();
	const struct lane *lane = &app.lanes.lane[app.lanes.first[lcore]];
	const struct lane *const end = lane + app.lanes.count[lcore];
	const uint16_t burst = (uint16_t)options.app.burst;
	struct reflector_stats *st = &stats[lcore];
	struct periodic stall = periodic_start(
			options.stall_us, options.stall_every_ms, tsc_hz, rte_rdtsc());
	const struct periodic pressure = periodic_start(
			options.refuse_us, options.refuse_every_ms, tsc_hz, rte_rdtsc());
	struct restart restart = restart_start(
			options.restart_every_ms, options.restart_down_ms, tsc_hz, rte_rdtsc());
	struct schedule leak = options.leak;
	struct rte_mbuf *pkts[APP_MAX_BURST];
	uint64_t intact = 0; /* Packets since the last damaged one. */
	uint16_t nb_rx, nb_out, polled;
	const struct lane *l;

	(void)arg;
	if (lane == end)
		return 0;
	if (alarm_start(options.alarm_us, options.alarm_every_ms) != 0)
		fprintf(stderr, "%s: --inject-signal: %s\n", program_invocation_short_name,
				strerror(errno));
	while (!control_stopping()) {
		polled = 0;
		for (l = lane; l < end; l++) {
			nb_rx = rte_eth_rx_burst(l->port, l->queue, pkts, burst);
			if (nb_rx == 0)
				continue;
			polled += nb_rx;
			nb_out = reflect_burst(l, pkts, nb_rx, st);
			if (options.corrupt_every != 0)
				corrupt_burst(pkts, nb_out, &intact, st);
			if (likely(nb_out > 0))
				send_burst(l, pkts, nb_out, &leak, &pressure, st);
		}
		pmdscope_poll(polled);
		if (unlikely(stall_when_due(&stall)))
			counter_add(&st->stalls, 1);
		if (restart.period != 0 && restart_when_due(&restart, lane, end))
			counter_add(&st->restarts, 1);
	}
	return 0;
}

static struct reflector_stats
total(void)
{
	struct reflector_stats sum = { 0 };

	app_sum(&sum, stats, sizeof(sum));
	return sum;
}

static void
report(uint64_t elapsed_ns, uint64_t span_ns)
{
	const struct reflector_stats now = total();
	const struct app_totals totals = {
		.rx = now.rx, .tx = now.tx, .dropped = now.dropped, .lost = now.leaked
	};

	app_report(&app, &totals, "leaked", elapsed_ns, span_ns);
}

static void
print_summary(const struct reflector_stats *sum, double duration_s, unsigned int in_use)
{
	printf("reflected %" PRIu64 " of %" PRIu64 " packets (%" PRIu64 " bytes) in %.1f s: "
	       "%" PRIu64 " dropped, %" PRIu64 " runts, %" PRIu64 " not IP, %" PRIu64 " stalls; "
	       "%" PRIu64 " leaked, %u missing from the pool\n",
			sum->tx, sum->rx, sum->rx_bytes, duration_s, sum->dropped, sum->runts,
			sum->other, sum->stalls, sum->leaked, in_use);
}

static int
save_summary(const struct reflector_stats *sum, double duration_s, unsigned int in_use)
{
	struct json json;

	if (json_begin(&json) != 0)
		return -1;
	app_json(&json, &app, duration_s);
	json_u64(&json, "received", sum->rx);
	json_u64(&json, "received_bytes", sum->rx_bytes);
	json_u64(&json, "sent", sum->tx);
	json_u64(&json, "dropped", sum->dropped);
	json_u64(&json, "runts", sum->runts);
	json_u64(&json, "not_ip", sum->other);
	json_u64(&json, "corrupted", sum->corrupted);
	json_u64(&json, "stalls", sum->stalls);
	json_u64(&json, "restarts", sum->restarts);
	json_u64(&json, "leaked", sum->leaked);
	json_open(&json, "pool");
	json_str(&json, "name", POOL_NAME);
	json_u64(&json, "size", app.pool->size);
	json_u64(&json, "in_use_end", in_use);
	json_close(&json);
	return app_json_save(&json, &app);
}

static int
prepare_refusal(void)
{
	const bool needed = options.leak.every != 0 || options.refuse_us != 0;
	const int rc = needed ? refuse_install(&app.lanes) : 0;

	if (rc != 0)
		fprintf(stderr, "%s: --inject-leak or --inject-refusal: no TX callback: %s\n",
				program_invocation_short_name, strerror(-rc));
	return rc;
}

/* Ports are stopped by the lcore that polls them, so there must be no other. */
static int
check_restart(void)
{
	const unsigned int lcore = rte_lcore_id();

	if (options.restart_every_ms == 0 || app.lanes.count[lcore] == app.lanes.nb_lanes)
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

	rc = app_parse(&argc, argv, specs, RTE_DIM(specs), help);
	if (rc >= 0)
		return rc;
	rc = app_open(&app, argc, argv);
	if (rc != 0)
		return rc;
	read_port_macs();
	tsc_hz = clock_measure_hz();

	rc = check_restart();
	if (rc == 0)
		rc = prepare_refusal();
	start = clock_now();
	if (rc == 0)
		rc = app_run(&app, lcore_main, NULL, report);
	end = clock_now();

	in_use = app_stop(&app);
	sum = total();
	duration_s = (double)(end.monotonic_ns - start.monotonic_ns) / 1e9;
	print_summary(&sum, duration_s, in_use);
	if (options.app.json != NULL && save_summary(&sum, duration_s, in_use) != 0)
		rc = -1;
	app_close(&app);
	return rc == 0 ? APP_EXIT_OK : APP_EXIT_FAILED;
}
