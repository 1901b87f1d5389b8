/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * pmdscope-kernel-reflector: like pmdscope-reflector, but with UDP sockets of the kernel.
 *
 * Each thread has a separate socket on the same port; the kernel chooses one by the flow.
 */

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rte_common.h>

#include "clock.h"
#include "counter.h"
#include "rate.h"
#include "run.h"

/* How often messages that the kernel does not take are offered before they are dropped. */
#define SEND_TRIES 100

struct worker {
	struct transport transport;
	uint64_t received_bytes; /* Of frames without FCS. */
	uint64_t dropped;	 /* Packets that could not be sent. */
	struct cpu_time cpu;
};

static struct worker *workers;

static uint64_t
frame_bytes(const struct datagram *message)
{
	return message->size + (uint64_t)datagram_packets(message) *
					       datagram_overhead(settings_ipv6(&settings.local));
}

static void
send_all(struct worker *worker, const struct datagram *messages, unsigned int nb_messages)
{
	const uint64_t before = worker->transport.stats.sent;
	unsigned int done = 0, tries = SEND_TRIES, i;
	uint64_t packets = 0;

	for (i = 0; i < nb_messages; i++)
		packets += datagram_packets(&messages[i]);
	while (done < nb_messages && tries-- > 0)
		done += transport_send(&worker->transport, &messages[done], nb_messages - done);
	counter_add(&worker->dropped, packets - (worker->transport.stats.sent - before));
}

/* Without GSO each packet of a message is sent separately. */
static void
send_split(struct worker *worker, const struct datagram *message)
{
	struct datagram single[DATAGRAM_MAX_SEGMENTS];
	const uint32_t nb_packets = datagram_packets(message);
	uint32_t i, n = 0;

	for (i = 0; i < nb_packets; i++) {
		single[n] = *message;
		single[n].data = message->data + i * message->segment;
		single[n].size = datagram_packet_size(message, i);
		if (++n < RTE_MIN((uint32_t)DATAGRAM_MAX_SEGMENTS, settings.batch) &&
				i + 1 < nb_packets)
			continue;
		send_all(worker, single, n);
		n = 0;
	}
}

static void
worker_main(unsigned int index)
{
	struct worker *worker = &workers[index];
	const struct datagram *received = worker->transport.received;
	unsigned int i, n;

	while (!run_stopping()) {
		n = transport_receive(&worker->transport, !settings.spin);
		for (i = 0; i < n; i++)
			counter_add(&worker->received_bytes, frame_bytes(&received[i]));
		if (settings.gso || !settings.gro) {
			if (n > 0)
				send_all(worker, received, n);
			continue;
		}
		for (i = 0; i < n; i++)
			send_split(worker, &received[i]);
	}
	worker->cpu = run_cpu_time();
}

struct totals {
	struct transport_stats stats;
	uint64_t received_bytes;
	uint64_t dropped;
	uint64_t drops; /* Dropped by the kernel at the receive buffers. */
	struct cpu_time cpu;
};

static struct totals
total(void)
{
	struct totals sum = { 0 };
	unsigned int i;

	for (i = 0; i < settings.threads; i++) {
		const struct worker *worker = &workers[i];

		run_add_stats(&sum.stats, &worker->transport.stats);
		sum.received_bytes += counter_read(&worker->received_bytes);
		sum.dropped += counter_read(&worker->dropped);
		sum.drops += transport_drops(&worker->transport);
		sum.cpu.user_ns += worker->cpu.user_ns;
		sum.cpu.system_ns += worker->cpu.system_ns;
	}
	return sum;
}

static void
report(uint64_t elapsed_ns, uint64_t span_ns)
{
	static struct totals last;
	const struct totals sum = total();
	const double span_s = (double)span_ns / 1e9;
	char rx[16], tx[16];

	printf("%6.1f s  rx %s pps  tx %s pps  dropped %" PRIu64 "  dropped at the socket %" PRIu64
	       "\n",
			(double)elapsed_ns / 1e9,
			rate_text((double)(sum.stats.received - last.stats.received) / span_s, rx),
			rate_text((double)(sum.stats.sent - last.stats.sent) / span_s, tx),
			sum.dropped, sum.drops);
	last = sum;
}

static void
print_summary(const struct totals *t, double duration_s)
{
	unsigned int i;

	printf("reflected %" PRIu64 " of %" PRIu64 " packets (%" PRIu64 " bytes) in %.1f s: "
	       "%" PRIu64 " dropped; before that, %" PRIu64 " %s dropped at the receive buffer\n",
			t->stats.sent, t->stats.received, t->received_bytes, duration_s, t->dropped,
			t->drops, settings.gro ? "messages (of up to 64 packets)" : "packets");
	for (i = 0; settings.threads > 1 && i < settings.threads; i++)
		printf("thread %u: %" PRIu64 " packets, %" PRIu64
		       " dropped at the receive buffer\n",
				i, workers[i].transport.stats.received,
				transport_drops(&workers[i].transport));
	run_print_kernel(&t->stats, &t->cpu, &workers[0].transport, duration_s);
}

static void
json_threads(struct json *json)
{
	unsigned int i;
	char name[16];

	json_open(json, "received_by_thread");
	for (i = 0; i < settings.threads; i++) {
		snprintf(name, sizeof(name), "%u", i);
		json_u64(json, name, workers[i].transport.stats.received);
	}
	json_close(json);
}

static int
save_summary(const struct totals *t, double duration_s)
{
	struct json json;

	if (json_begin(&json) != 0)
		return -1;
	run_json_head(&json, duration_s);
	json_u64(&json, "received", t->stats.received);
	json_u64(&json, "received_bytes", t->received_bytes);
	json_u64(&json, "sent", t->stats.sent);
	json_u64(&json, "dropped", t->dropped);
	json_threads(&json);
	run_json_kernel(&json, &t->stats, &t->cpu, &workers[0].transport, t->drops);
	return run_json_save(&json);
}

static int
open_workers(void)
{
	unsigned int i;

	address_set_port(&settings.local, (uint16_t)settings.port);
	workers = calloc(settings.threads, sizeof(*workers));
	if (workers == NULL)
		return -1;
	for (i = 0; i < settings.threads; i++)
		if (transport_open(&workers[i].transport, &settings.local, NULL) != 0)
			return -1;
	printf("listening on UDP port %u\n", settings.port);
	return 0;
}

static int
run(void)
{
	const struct moment start = clock_now();
	const int rc = run_threads(worker_main, report);
	const struct moment end = clock_now();
	const double duration_s = (double)(end.monotonic_ns - start.monotonic_ns) / 1e9;
	const struct totals totals = total();

	if (rc != 0)
		return rc;
	print_summary(&totals, duration_s);
	return settings.json != NULL ? save_summary(&totals, duration_s) : 0;
}

int
main(int argc, char **argv)
{
	unsigned int i;
	int rc = settings_parse_reflector(argc, argv);

	if (rc >= 0)
		return rc;
	run_prepare();
	rc = open_workers();
	if (rc == 0)
		rc = run();
	for (i = 0; workers != NULL && i < settings.threads; i++)
		transport_close(&workers[i].transport);
	free(workers);
	return rc == 0 ? KERNEL_EXIT_OK : KERNEL_EXIT_FAILED;
}
