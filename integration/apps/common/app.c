/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_version.h>

#include <pmdscope.h>

#include "app.h"
#include "control.h"
#include "counter.h"
#include "hugefiles.h"
#include "port.h"
#include "rate.h"

#define POOL_CACHE 256
#define POOL_MIN 8191

#define complain(...) \
	do { \
		fprintf(stderr, "%s: ", program_invocation_short_name); \
		fprintf(stderr, __VA_ARGS__); \
	} while (0)

static bool
asks_for_help(int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
			return true;
	return false;
}

int
app_parse(int *argc, char **argv, const struct option_spec *specs, unsigned int nb_specs,
		void (*help)(FILE *out))
{
	const int split = options_split(*argc, argv);
	enum options_result result;

	/* Readers of the statistics need them as they are printed, also through a pipe. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (asks_for_help(split, argv))
		result = OPTIONS_HELP;
	else
		result = options_parse(specs, nb_specs, *argc - split, argv + split);
	if (result == OPTIONS_BAD)
		return APP_EXIT_USAGE;
	if (result == OPTIONS_HELP) {
		help(stdout);
		return APP_EXIT_OK;
	}
	*argc = split;
	return -1;
}

static int
open_eal(struct app *app, int argc, char **argv)
{
	int rc;

	control_prepare();
	argc = pmdscope_parse_args(argc, argv, &app->pmdscope);
	if (argc < 0)
		return argc;
	rc = rte_eal_init(argc, argv);
	if (rc < 0) {
		complain("DPDK did not start: rte_eal_init: %s. The lines above say why: a bad EAL "
			 "argument (the application's own go after --), no hugepages (--no-huge -m 256 "
			 "does without), or a device whose peer is not there or whose socket path a "
			 "killed run left behind\n",
				rte_strerror(rte_errno));
		return -rte_errno;
	}
	if (rte_eal_process_type() != RTE_PROC_PRIMARY) {
		complain("this is no DPDK secondary process: leave out --proc-type\n");
		rte_eal_cleanup();
		return -ENOTSUP;
	}
	return 0;
}

static int
find_ports(struct app *app)
{
	uint16_t port;

	RTE_ETH_FOREACH_DEV(port)
		app->ports[app->nb_ports++] = port;
	if (app->nb_ports > 0)
		return 0;
	complain("no port to use. If a device was passed before --, its driver's message above says "
		 "why it is missing (a client wants its server to run first). If none was, pass a "
		 "virtual one such as --vdev net_vhost0,iface=/tmp/pmdscope.sock or --vdev "
		 "net_memif0,role=server, or bind a NIC to vfio-pci (dpdk-devbind.py) and pass -a "
		 "ADDRESS\n");
	return -ENODEV;
}

/* Maximum number of packets that rings, bursts and caches hold. */
static unsigned int
pool_need(const struct app *app)
{
	const struct app_options *o = app->options;

	return app->nb_ports * o->queues * 2 * (o->descriptors + o->burst) +
	       rte_lcore_count() * (POOL_CACHE + POOL_CACHE / 2);
}

static int
open_pool(struct app *app)
{
	const unsigned int need = pool_need(app);
	const unsigned int mbufs = app->options->mbufs;
	const unsigned int size = mbufs != 0 ? mbufs : RTE_MAX(need, (unsigned int)POOL_MIN);
	/* The EAL refuses a cache that could starve a small pool. */
	const unsigned int cache = RTE_MIN((unsigned int)POOL_CACHE, size * 2 / 3);

	if (size < need)
		complain("--mbufs %u may run dry: ports and lcores can hold %u packets at once\n",
				size, need);
	app->pool = rte_pktmbuf_pool_create(app->pool_name, size, cache, 0,
			RTE_MBUF_DEFAULT_BUF_SIZE, (int)rte_socket_id());
	if (app->pool != NULL)
		return 0;
	complain("rte_pktmbuf_pool_create of %u packets: %s. Pass fewer --mbufs or --descriptors, or "
		 "give the EAL more memory (-m MIB)\n",
			size, rte_strerror(rte_errno));
	return -rte_errno;
}

static int
deal_lanes(struct app *app)
{
	unsigned int lcores[RTE_MAX_LCORE], nb_lcores = 0, lcore;
	int rc;

	/* The main lcore comes first, as it always exists. */
	lcores[nb_lcores++] = rte_get_main_lcore();
	RTE_LCORE_FOREACH_WORKER(lcore)
		lcores[nb_lcores++] = lcore;
	if (app->nb_pollers != 0)
		nb_lcores = RTE_MIN(nb_lcores, app->nb_pollers);
	rc = lanes_deal(&app->lanes, app->ports, app->nb_ports, app->options->queues, lcores,
			nb_lcores);
	if (rc != 0)
		complain("no memory for the map of queues\n");
	else if (nb_lcores > app->lanes.nb_lanes)
		complain("%u of %u lcores have no queue to poll and stay idle; raise --queues\n",
				nb_lcores - app->lanes.nb_lanes, nb_lcores);
	return rc;
}

static void
close_ports(struct app *app)
{
	unsigned int i;

	for (i = 0; i < app->nb_started; i++)
		port_stop(app->ports[i]);
	/* Before the ports are closed, as the library has callbacks on them. */
	pmdscope_fini();
	for (i = 0; i < app->nb_ports; i++)
		port_close(app->ports[i]);
}

static int
start_ports(struct app *app)
{
	const struct app_options *o = app->options;
	unsigned int i;
	int rc;

	for (i = 0; i < app->nb_ports; i++) {
		rc = port_start(app->ports[i],
				(uint16_t)(o->rx_queues != 0 ? o->rx_queues : o->queues),
				(uint16_t)(o->tx_queues != 0 ? o->tx_queues : o->queues),
				(uint16_t)o->descriptors, app->pool);
		if (rc != 0)
			return rc;
		app->nb_started++;
	}
	return 0;
}

static const uint16_t *
first_port_down(const struct app *app)
{
	unsigned int i;

	for (i = 0; i < app->nb_ports; i++)
		if (!port_link_up(app->ports[i]))
			return &app->ports[i];
	return NULL;
}

static int
wait_for_links(const struct app *app)
{
	const uint64_t step_ms = 20;
	const uint16_t *down;
	uint64_t waited_ms;

	for (waited_ms = 0; (down = first_port_down(app)) != NULL; waited_ms += step_ms) {
		if (waited_ms >= app->wait_link_ms) {
			complain("port %u (%s): link still down after %g s. Is the other side running, "
				 "with as many queues? --wait-link waits longer, 0 does not wait\n",
					*down, port_name(*down), (double)app->wait_link_ms / 1e3);
			return -ETIME;
		}
		if (waited_ms == 0 && !app->options->quiet)
			printf("waiting for the link of port %u (%s)\n", *down, port_name(*down));
		if (control_sleep(step_ms)) {
			complain("stopped before the link came up\n");
			return -EINTR;
		}
	}
	return 0;
}

static void
print_layout(const struct app *app)
{
	unsigned int i;

	if (app->options->quiet)
		return;
	for (i = 0; i < app->lanes.nb_lanes; i++)
		printf("port %u (%s) queue %u on lcore %u\n", app->lanes.lane[i].port,
				port_name(app->lanes.lane[i].port), app->lanes.lane[i].queue,
				app->lanes.lane[i].lcore);
}

/* The application also works without the library. */
static void
start_pmdscope(const struct app *app)
{
	const int rc = pmdscope_init(&app->pmdscope);

	if (rc != 0)
		complain("running without pmdscope: pmdscope_init: %s\n", rte_strerror(-rc));
}

int
app_open(struct app *app, int argc, char **argv)
{
	int rc = open_eal(app, argc, argv);

	if (rc != 0)
		return rc == -EINVAL ? APP_EXIT_USAGE : APP_EXIT_FAILED;
	rc = find_ports(app);
	if (rc == 0)
		rc = open_pool(app);
	if (rc == 0)
		rc = deal_lanes(app);
	if (rc == 0)
		rc = start_ports(app);
	if (rc == 0) {
		start_pmdscope(app);
		print_layout(app);
		rc = app->wait_link_ms != 0 ? wait_for_links(app) : 0;
	}
	if (rc == 0)
		return APP_EXIT_OK;
	close_ports(app);
	app_close(app);
	return APP_EXIT_FAILED;
}

int
app_run(struct app *app, int (*lcore_main)(void *), void *arg,
		void (*report)(uint64_t elapsed_ns, uint64_t span_ns))
{
	const struct control control = {
		.interval_ms = app->options->interval_ms,
		.duration_ms = app->options->duration_ms,
		.report = report,
	};
	int rc = control_start(&control);

	if (rc != 0) {
		complain("no control thread: %s\n", rte_strerror(-rc));
		return rc;
	}
	rc = rte_eal_mp_remote_launch(lcore_main, arg, CALL_MAIN);
	if (rc != 0)
		complain("rte_eal_mp_remote_launch: %s\n", rte_strerror(-rc));
	rte_eal_mp_wait_lcore();
	control_end();
	return rc;
}

unsigned int
app_stop(struct app *app)
{
	close_ports(app);
	return rte_mempool_in_use_count(app->pool);
}

static const char *
file_prefix(void)
{
	const char *dir = rte_eal_get_runtime_dir();
	const char *slash = strrchr(dir, '/');

	return slash != NULL ? slash + 1 : dir;
}

void
app_close(struct app *app)
{
	struct hugefiles *files = hugefiles_note(file_prefix());

	lanes_free(&app->lanes);
	rte_mempool_free(app->pool);
	rte_eal_cleanup();
	hugefiles_remove(files);
}

void
app_json(struct json *json, const struct app *app, double duration_s)
{
	json_u64(json, "schema", 1);
	json_str(json, "program", program_invocation_short_name);
	json_str(json, "version", PMDSCOPE_VERSION);
	json_str(json, "dpdk", rte_version());
	json_u64(json, "pid", (uint64_t)getpid());
	json_str(json, "prefix", file_prefix());
	json_u64(json, "ports", app->nb_ports);
	json_u64(json, "queues", app->options->queues);
	json_u64(json, "lcores", rte_lcore_count());
	json_f64(json, "duration_s", duration_s);
}

int
app_json_save(struct json *json, const struct app *app)
{
	const int rc = json_save(json, app->options->json);

	if (rc != 0)
		complain("--json %s: %s\n", app->options->json, strerror(-rc));
	return rc;
}

void
app_sum(void *sum, const void *stats, size_t size)
{
	const size_t nb_counters = size / sizeof(uint64_t);
	const uint64_t *counters = (const uint64_t *)stats;
	unsigned int lcore;
	size_t i;

	RTE_LCORE_FOREACH(lcore)
		for (i = 0; i < nb_counters; i++)
			((uint64_t *)sum)[i] += counter_read(&counters[lcore * nb_counters + i]);
}

void
app_report(const struct app *app, const struct app_totals *now, const char *lost_label,
		uint64_t elapsed_ns, uint64_t span_ns)
{
	static struct app_totals last;
	const double span_s = (double)span_ns / 1e9;
	char rx[16], tx[16];

	if (!app->options->quiet)
		printf("%6.1f s  rx %s pps  tx %s pps  dropped %" PRIu64
		       "  pool %u/%u in use  %s %" PRIu64 "\n",
				(double)elapsed_ns / 1e9,
				rate_text((double)(now->rx - last.rx) / span_s, rx),
				rate_text((double)(now->tx - last.tx) / span_s, tx), now->dropped,
				rte_mempool_in_use_count(app->pool), app->pool->size, lost_label,
				now->lost);
	last = *now;
}
