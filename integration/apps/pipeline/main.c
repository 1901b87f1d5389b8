/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * pmdscope-pipeline: RX, software ring, worker, software ring, TX, with injected mbuf bugs of real
 * applications, and a record of the lost mbufs.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>

#include <pmdscope.h>

#include "app.h"
#include "clock.h"
#include "control.h"
#include "counter.h"
#include "faults.h"
#include "pacer.h"
#include "places.h"
#include "refuse.h"
#include "rest.h"
#include "stages.h"

#define POOL_NAME "pipeline_packets"
#define CLONES_NAME "pipeline_clones"
#define CLONES_CACHE 64
#define UNACKED_SIZE 256

struct pipeline_options {
	struct app_options app;
	struct pattern pattern;
	uint64_t faults_after_ms;
	uint64_t hold_ms;
	uint64_t rate;
	uint32_t ring;
	bool stamp;
	bool mix;
	bool places;
};

static struct pipeline_options options = {
	.app = APP_OPTIONS_DEFAULT,
	.faults_after_ms = 1000,
	.ring = 1024,
};
static struct app app = {
	.pool_name = POOL_NAME,
	.options = &options.app,
	.nb_pollers = 1,
};
static struct pipe *pipes;
static struct rte_mempool *clones;
static struct pipe_stats stats[RTE_MAX_LCORE];
static unsigned int worker_lcore;
static uint64_t tsc_hz;

static int
parse_fault(const struct option_spec *spec, const char *text)
{
	if (faults_parse(text))
		return 0;
	return option_refuse(spec, text,
			"one of the faults that --help lists, followed by nothing, :once or :1/N with "
			"N from 1 to 2147483648");
}

static int
parse_pattern(const struct option_spec *spec, const char *text)
{
	if (pattern_parse(&options.pattern, text))
		return 0;
	return option_refuse(spec, text, "steady, bursty or idle:SECONDS with 1 to 86400 seconds");
}

static int
parse_leak_mode(const struct option_spec *spec, const char *text)
{
	static const char *const names[] = {
		[PMDSCOPE_LEAK_AUTO] = "auto",
		[PMDSCOPE_LEAK_ALWAYS] = "always",
		[PMDSCOPE_LEAK_NEVER] = "never",
	};
	unsigned int mode;

	for (mode = 0; mode < RTE_DIM(names); mode++) {
		if (strcmp(text, names[mode]) != 0)
			continue;
		app.pmdscope.leak_mode = (enum pmdscope_leak_mode)mode;
		return 0;
	}
	return option_refuse(spec, text, "auto, always or never");
}

static int
parse_ring(const struct option_spec *spec, const char *text)
{
	uint32_t size;
	struct option_spec number = *spec;

	number.field = &size;
	if (option_u32(&number, text) != 0)
		return -EINVAL;
	if (!rte_is_power_of_2(size))
		return option_refuse(spec, text, "a power of 2");
	options.ring = size;
	return 0;
}

static const struct option_spec specs[] = {
	APP_OPTION_SPECS(options.app),
	{ "fault", "NAME[:WHEN]",
			"lose or misuse a packet in one of N bursts (:1/N), in every one, or "
			"once (:once); may be given several times",
			parse_fault, NULL, 0, 0 },
	{ "fault-after", "S", "let the first S seconds pass without faults (1)", option_seconds,
			&options.faults_after_ms, 0, 1000000000 },
	{ "pattern", "NAME",
			"traffic is steady, bursty (on and off at random) or idle:S (5 s on, S "
			"s off) (steady)",
			parse_pattern, NULL, 0, 0 },
	{ "rate", "PPS", "take in at most so many packets per second (no limit)", option_rate,
			&options.rate, 1, PACER_MAX_RATE },
	{ "hold", "MS", "keep one packet in 1024 for MS milliseconds, as a declared stage",
			option_u64, &options.hold_ms, 1, 3600000 },
	{ "mix", NULL, "clone, chain and drop some packets, properly", option_flag, &options.mix, 0,
			0 },
	{ "hold-places", NULL,
			"keep mbufs in every place where an app can: globals, heaps, a ring, stack, "
			"clones and so on",
			option_flag, &options.places, 0, 0 },
	{ "stamp-packets", NULL,
			"write numbered packets over those received, as net_null's are blank",
			option_flag, &options.stamp, 0, 0 },
	{ "ring", "N", "size of the software rings, a power of 2 (1024)", parse_ring, NULL, 64,
			65536 },
	{ "leak-mode", "MODE", "when mbufs are stamped: auto, always or never (auto)",
			parse_leak_mode, NULL, 0, 0 },
};

static void
help(FILE *out)
{
	unsigned int i;

	fprintf(out,
			"Usage: %s [EAL options] [--pmdscope KEY=VALUE,...] -- [options]\n\n"
			"Takes packets in, passes them through a worker and sends them back out of the\n"
			"queue they came from, turned round as pmdscope-reflector does. The main lcore\n"
			"polls the ports; the worker has the other lcore if there is one. Ends on SIGINT\n"
			"or SIGTERM. The summary of --json says what the faults really did. At SIGUSR1 it\n"
			"comes to rest and prints what it lost and holds, at SIGUSR2 it goes on.\n\n"
			"Options:\n",
			program_invocation_short_name);
	options_help(out, specs, RTE_DIM(specs));
	fputs("\nFaults:", out);
	for (i = 0; i < NB_FAULTS; i++)
		fprintf(out, " %s", faults[i].name);
	fputs("\n\nExamples:\n"
	      "  pmdscope-pipeline -l 0,1 --no-pci --vdev net_null0 -- --stamp-packets \\\n"
	      "      --fault clone:1/4096 --json truth.json\n"
	      "  pmdscope-pipeline -l 0 --no-pci --vdev net_null0 -- --mix --pattern bursty --hold "
	      "200\n"
	      "  pmdscope-pipeline -l 0 --no-pci --file-prefix pipeline \\\n"
	      "      --vdev net_vhost0,iface=/tmp/pmdscope.sock -- --fault early-return:once\n\n"
	      "Exit status: 0 after a clean end, 1 on failure, 2 on a usage error.\n",
			out);
}

static int
lcore_main(void *arg)
{
	const unsigned int lcore = rte_lcore_id();
	const bool polls = lcore == rte_get_main_lcore(), works = lcore == worker_lcore;
	struct rte_mbuf *volatile on_stack[PLACES_STACK] = { NULL };
	const bool holds = works && options.places;
	struct pipe_stats *st = &stats[lcore];
	struct rest_lcore rest = { 0 };
	unsigned int i, nb_in;
	uint64_t now;

	(void)arg;
	if (holds && places_fill_thread(app.pool, on_stack) != 0)
		fprintf(stderr, "%s: --hold-places: the pool is too small\n",
				program_invocation_short_name);
	while (!control_stopping()) {
		rest_poll(&rest);
		nb_in = 0;
		now = rte_rdtsc();
		for (i = 0; i < app.lanes.nb_lanes; i++) {
			if (polls)
				nb_in += stage_rx(&pipes[i], st, now);
			if (works)
				nb_in += stage_work(&pipes[i], st, now);
			if (polls)
				nb_in += stage_tx(&pipes[i], st, now);
		}
		pmdscope_poll_tsc((uint16_t)nb_in, now);
	}
	if (holds)
		places_drain_thread(on_stack);
	return 0;
}

static struct pipe_stats
total(void)
{
	struct pipe_stats sum = { 0 };

	app_sum(&sum, stats, sizeof(sum));
	return sum;
}

static uint64_t
dropped(const struct pipe_stats *sum)
{
	return sum->rx_dropped + sum->work_dropped + sum->tx_dropped;
}

static void
report(uint64_t elapsed_ns, uint64_t span_ns)
{
	const struct pipe_stats now = total();
	const struct app_totals totals = {
		.rx = now.rx, .tx = now.tx, .dropped = dropped(&now), .lost = faults_lost_packets()
	};

	app_report(&app, &totals, "lost", elapsed_ns, span_ns);
}

static void
print_summary(const struct pipe_stats *sum, double duration_s, unsigned int in_use)
{
	printf("sent %" PRIu64 " of %" PRIu64 " packets in %.1f s: %" PRIu64 " dropped, %" PRIu64
	       " runts; lost %" PRIu64 " packets and %" PRIu64
	       " clones, missing from the pools %u and %u\n",
			sum->tx, sum->rx, duration_s, dropped(sum), sum->runts,
			faults_lost_packets(), faults_lost_clones(), in_use,
			rte_mempool_in_use_count(clones));
}

static void
put_pool(struct json *json, const struct rte_mempool *pool, uint64_t lost, unsigned int in_use)
{
	json_open(json, pool->name);
	json_u64(json, "size", pool->size);
	json_u64(json, "lost", lost);
	json_u64(json, "in_use_end", in_use);
	json_close(json);
}

static int
save_summary(const struct pipe_stats *sum, double duration_s, unsigned int in_use,
		const struct moment *end)
{
	struct json json;
	unsigned int i;

	if (json_begin(&json) != 0)
		return -1;
	app_json(&json, &app, duration_s);
	json_u64(&json, "received", sum->rx);
	json_u64(&json, "sent", sum->tx);
	json_u64(&json, "rx_dropped", sum->rx_dropped);
	json_u64(&json, "work_dropped", sum->work_dropped);
	json_u64(&json, "tx_dropped", sum->tx_dropped);
	json_u64(&json, "runts", sum->runts);
	json_u64(&json, "clones", sum->clones);
	json_u64(&json, "chains", sum->chains);
	json_u64(&json, "held", sum->held);
	json_open(&json, "pools");
	put_pool(&json, app.pool, faults_lost_packets(), in_use);
	put_pool(&json, clones, faults_lost_clones(), rte_mempool_in_use_count(clones));
	json_close(&json);
	json_open(&json, "faults");
	for (i = 0; i < NB_FAULTS; i++)
		truth_json(&faults[i].truth, &json, faults[i].name, end, tsc_hz);
	json_close(&json);
	return app_json_save(&json, &app);
}

static void
print_held(const char *kind, const char *name, const char *pool, unsigned int mbufs)
{
	if (mbufs != 0)
		printf("at rest: held %s %s %s %u\n", kind, name, pool, mbufs);
}

static void
print_ring(const struct rte_ring *ring)
{
	if (ring != NULL)
		print_held("ring", ring->name, POOL_NAME, rte_ring_count(ring));
}

/* Called while packets do not move: each mbuf in use is lost, or held in one of these places. */
static void
print_truth(void)
{
	const struct place *places;
	const unsigned int nb_places = places_list(&places);
	unsigned int i;

	for (i = 0; i < nb_places; i++)
		print_held(places[i].kind, places[i].name, places[i].pool->name, places[i].mbufs);
	for (i = 0; i < app.lanes.nb_lanes; i++) {
		print_ring(pipes[i].in);
		print_ring(pipes[i].out);
		print_ring(pipes[i].stuck);
		print_ring(pipes[i].unacked);
	}
	printf("at rest: pool " POOL_NAME " in use %u lost %" PRIu64 "\n",
			rte_mempool_in_use_count(app.pool), faults_lost_packets());
	printf("at rest: pool " CLONES_NAME " in use %u lost %" PRIu64 "\n",
			rte_mempool_in_use_count(clones), faults_lost_clones());
	printf("at rest: until SIGUSR2\n");
}

static struct rte_ring *
open_ring(const char *what, unsigned int number, unsigned int size)
{
	char name[RTE_RING_NAMESIZE];

	snprintf(name, sizeof(name), "%s_%u", what, number);
	return rte_ring_create(name, size, (int)rte_socket_id(), RING_F_SP_ENQ | RING_F_SC_DEQ);
}

/* One packet is in the ring of the hanging consumer, which has no more room. */
static int
open_stuck(struct pipe *pipe)
{
	struct rte_mbuf *m;

	if (faults[FAULT_RING_OVERFLOW].schedule.every == 0)
		return 0;
	pipe->stuck = open_ring("stuck", pipe->number, 2);
	m = rte_pktmbuf_alloc(app.pool);
	if (pipe->stuck == NULL || m == NULL)
		return -rte_errno;
	return rte_ring_sp_enqueue(pipe->stuck, m);
}

static int
open_pipe(struct pipe *pipe, unsigned int number)
{
	const struct lane *lane = &app.lanes.lane[number];
	const uint64_t now = rte_rdtsc();

	*pipe = (struct pipe){
		.port = lane->port,
		.queue = lane->queue,
		.number = (uint16_t)number,
		.packets = app.pool,
		.clones = clones,
		.in = open_ring("rx_to_worker", number, options.ring),
		.out = open_ring("worker_to_tx", number, options.ring),
		.unacked = open_ring("unacked", number, UNACKED_SIZE),
		.pattern = options.pattern,
	};
	if (pipe->in == NULL || pipe->out == NULL || pipe->unacked == NULL)
		return -rte_errno;
	if (rte_eth_macaddr_get(pipe->port, &pipe->mac) != 0)
		rte_eth_random_addr(pipe->mac.addr_bytes);
	pattern_start(&pipe->pattern, tsc_hz, now, 1);
	if (options.rate != 0)
		pacer_start(&pipe->pacer, PACER_DUE, options.rate, app.lanes.nb_lanes,
				options.app.burst, tsc_hz, now);
	pipe->hold.cycles = options.hold_ms * tsc_hz / 1000;
	return open_stuck(pipe);
}

static void
close_pipes(void)
{
	unsigned int i;

	for (i = 0; pipes != NULL && i < app.lanes.nb_lanes; i++) {
		stages_drain(&pipes[i]);
		rte_ring_free(pipes[i].in);
		rte_ring_free(pipes[i].out);
		rte_ring_free(pipes[i].stuck);
		rte_ring_free(pipes[i].unacked);
	}
	free(pipes);
	pipes = NULL;
}

static int
open_pipes(void)
{
	unsigned int i;
	int rc = 0;

	clones = rte_pktmbuf_pool_create(
			CLONES_NAME, app.pool->size / 2, CLONES_CACHE, 0, 0, (int)rte_socket_id());
	if (clones == NULL)
		return -rte_errno;
	pipes = calloc(app.lanes.nb_lanes, sizeof(*pipes));
	if (pipes == NULL)
		return -ENOMEM;
	for (i = 0; i < app.lanes.nb_lanes && rc == 0; i++)
		rc = open_pipe(&pipes[i], i);
	if (rc == 0 && (faults[FAULT_TX_REJECT].schedule.every != 0 ||
				       faults[FAULT_USE_AFTER_FREE].schedule.every != 0))
		rc = refuse_install(&app.lanes);
	if (rc == 0 && options.places)
		rc = places_fill(app.pool, clones);
	return rc;
}

static int
open_stages(void)
{
	int rc;

	if (rte_lcore_count() > 2) {
		fprintf(stderr,
				"%s: %u lcores: one polls and one works, the others would idle. Pass two "
				"with -l, or one for both\n",
				program_invocation_short_name, rte_lcore_count());
		return -EINVAL;
	}
	worker_lcore = rte_get_next_lcore(-1, true, false);
	if (worker_lcore == RTE_MAX_LCORE)
		worker_lcore = rte_get_main_lcore();
	tsc_hz = clock_measure_hz();
	stages_prepare();
	stages_options = (struct stages_options){
		.burst = (uint16_t)options.app.burst,
		.stamp = options.stamp,
		.mix = options.mix,
		.paced = options.rate != 0,
		.faults_from = rte_rdtsc() + options.faults_after_ms * tsc_hz / 1000,
		.worker_stage = pmdscope_stage("worker"),
		.hold_stage = pmdscope_stage("hold"),
	};
	pmdscope_stage_hold(stages_options.hold_stage);
	rc = open_pipes();
	if (rc != 0)
		fprintf(stderr,
				"%s: stages of the pipeline: %s. Pass fewer --queues, a smaller --ring or "
				"fewer --mbufs, or give the EAL more memory (-m MIB)\n",
				program_invocation_short_name, rte_strerror(-rc));
	return rc;
}

int
main(int argc, char **argv)
{
	struct pipe_stats sum;
	struct moment start, end;
	unsigned int in_use;
	double duration_s;
	int rc;

	rc = app_parse(&argc, argv, specs, RTE_DIM(specs), help);
	if (rc >= 0)
		return rc;
	rest_prepare();
	rc = app_open(&app, argc, argv);
	if (rc != 0)
		return rc;
	rc = open_stages();
	if (rc == 0)
		rc = rest_start(rte_lcore_count(), print_truth);

	start = clock_now();
	if (rc == 0)
		rc = app_run(&app, lcore_main, NULL, report);
	end = clock_now();

	rest_end();
	if (options.places)
		places_drain();
	close_pipes();
	in_use = app_stop(&app);
	sum = total();
	duration_s = (double)(end.monotonic_ns - start.monotonic_ns) / 1e9;
	if (clones != NULL) {
		print_summary(&sum, duration_s, in_use);
		if (options.app.json != NULL && save_summary(&sum, duration_s, in_use, &end) != 0)
			rc = -1;
	}
	rte_mempool_free(clones);
	app_close(&app);
	return rc == 0 ? APP_EXIT_OK : APP_EXIT_FAILED;
}
