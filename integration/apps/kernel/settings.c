/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_common.h>

#include "datagram.h"
#include "options.h"
#include "pacer.h"
#include "settings.h"

struct kernel_settings settings = {
	.interval_ms = 1000,
	.drain_ms = 1000,
	.size = 128,
	.threads = 1,
	.batch = 32,
	.port = PROBE_DST_PORT,
	.buffer = 4 << 20,
};

/* An IPv4 or IPv6 address. */
static int
parse_address(const struct option_spec *spec, const char *text)
{
	union address *address = spec->field;

	memset(address, 0, sizeof(*address));
	if (inet_pton(AF_INET, text, &address->v4.sin_addr) == 1)
		address->any.sa_family = AF_INET;
	else if (inet_pton(AF_INET6, text, &address->v6.sin6_addr) == 1)
		address->any.sa_family = AF_INET6;
	else
		return option_refuse(spec, text, "an IPv4 or IPv6 address");
	return 0;
}

static int
parse_io(const struct option_spec *spec, const char *text)
{
	if (strcmp(text, "mmsg") == 0)
		settings.io = KERNEL_IO_MMSG;
	else if (strcmp(text, "uring") == 0)
		settings.io = KERNEL_IO_URING;
	else
		return option_refuse(spec, text, "mmsg or uring");
	return 0;
}

#define COMMON_SPECS \
	{ "port", "N", "UDP port of the reflector (7)", option_u32, &settings.port, 1, \
		UINT16_MAX }, \
			{ "io", "HOW", "mmsg: sendmmsg and recvmmsg, uring: io_uring (mmsg)", \
				parse_io, NULL, 0, 0 }, \
			{ "batch", "N", "packets or messages per system call (32)", option_u32, \
				&settings.batch, 1, KERNEL_MAX_BATCH }, \
			{ "gso", NULL, "send several packets as one message (UDP_SEGMENT)", \
				option_flag, &settings.gso, 0, 0 }, \
			{ "gro", NULL, "receive several packets as one message (UDP_GRO)", \
				option_flag, &settings.gro, 0, 0 }, \
			{ "buffer", "BYTES", "socket buffers to ask for (4194304)", option_u64, \
				&settings.buffer, 4096, INT32_MAX / 2 }, \
			{ "duration", "S", "end after S seconds (run until a signal)", \
				option_seconds, &settings.duration_ms, 1, 1000000000 }, \
			{ "interval", "S", "seconds between statistics (1)", option_seconds, \
				&settings.interval_ms, 10, 3600000 }, \
			{ "json", "FILE", "write the final summary to FILE as JSON", \
				option_output, &settings.json, 0, 0 }, \
	{ \
		"quiet", NULL, "print only the summary and errors", option_flag, &settings.quiet, \
				0, 0 \
	}

static const struct option_spec generator_specs[] = {
	{ "dst-ip", "ADDRESS", "where the reflector listens (127.0.0.1)", parse_address,
			&settings.remote, 0, 0 },
	{ "src-ip", "ADDRESS", "own address (the kernel's choice)", parse_address, &settings.local,
			0, 0 },
	{ "rate", "PPS", "packets per second in all, 200k and 2M too; 0: fastest (0)", option_rate,
			&settings.rate, 0, PACER_MAX_RATE },
	{ "count", "N", "end after N packets have been sent (no limit)", option_u64,
			&settings.count, 1, UINT64_C(1) << 62 },
	{ "size", "BYTES", "frame size without FCS (128)", option_u32, &settings.size, 0,
			UINT16_MAX },
	{ "flows", "N", "number of sockets, each with its own UDP source port (as threads)",
			option_u32, &settings.flows, 1, KERNEL_MAX_FLOWS },
	{ "threads", "N", "threads, which share the flows (1)", option_u32, &settings.threads, 1,
			KERNEL_MAX_THREADS },
	{ "drain", "S", "at the end, wait for packets until none came for so long (1)",
			option_seconds, &settings.drain_ms, 0, 3600000 },
	COMMON_SPECS,
};

static const struct option_spec reflector_specs[] = {
	{ "listen", "ADDRESS", "own address (0.0.0.0)", parse_address, &settings.local, 0, 0 },
	{ "threads", "N", "threads, each with a socket on the same port: SO_REUSEPORT (1)",
			option_u32, &settings.threads, 1, KERNEL_MAX_THREADS },
	{ "spin", NULL, "poll the socket, do not sleep in the kernel until packets come",
			option_flag, &settings.spin, 0, 0 },
	COMMON_SPECS,
};

static void
help_generator(FILE *out)
{
	fputs("Usage: pmdscope-kernel-generator [options]\n\n"
	      "Sends the packets of pmdscope-generator through UDP sockets of the kernel, and counts\n"
	      "what comes back: loss, copies, reordering, latency, and what the kernel dropped at the\n"
	      "socket. It never sleeps. On SIGINT or SIGTERM it stops sending, waits for the last\n"
	      "packets and prints a summary.\n\n"
	      "Options:\n",
			out);
	options_help(out, generator_specs, RTE_DIM(generator_specs));
	fputs("\nExamples:\n"
	      "  pmdscope-kernel-generator --rate 200k --duration 10\n"
	      "  pmdscope-kernel-generator --dst-ip 198.18.0.2 --size 1514 --gso --gro\n"
	      "  pmdscope-kernel-generator --threads 2 --flows 64 --io uring --json summary.json\n\n"
	      "Exit status: 0 if packets came back, 1 if none did or on failure, 2 on a usage error.\n",
			out);
}

static void
help_reflector(FILE *out)
{
	fputs("Usage: pmdscope-kernel-reflector [options]\n\n"
	      "Sends each UDP packet back to where it came from, through sockets of the kernel. Ends\n"
	      "on SIGINT or SIGTERM.\n\n"
	      "Options:\n",
			out);
	options_help(out, reflector_specs, RTE_DIM(reflector_specs));
	fputs("\nExamples:\n"
	      "  pmdscope-kernel-reflector\n"
	      "  pmdscope-kernel-reflector --listen 198.18.0.2 --gso --gro --batch 64\n"
	      "  pmdscope-kernel-reflector --threads 2 --io uring --json summary.json\n\n"
	      "Exit status: 0 after a clean end, 1 on failure, 2 on a usage error.\n",
			out);
}

static int
parse(const struct option_spec *specs, unsigned int nb_specs, int argc, char **argv,
		void (*help)(FILE *out))
{
	/* Readers of the statistics need them as they are printed, also through a pipe. */
	setvbuf(stdout, NULL, _IOLBF, 0);
	switch (options_parse(specs, nb_specs, argc, argv)) {
	case OPTIONS_HELP:
		help(stdout);
		return KERNEL_EXIT_OK;
	case OPTIONS_BAD:
		return KERNEL_EXIT_USAGE;
	default:
		return -1;
	}
}

static int
check_generator(void)
{
	const bool ipv6 = settings_ipv6(&settings.remote);
	const uint32_t overhead = datagram_overhead(ipv6);
	const uint32_t least = RTE_MAX(overhead + (uint32_t)sizeof(struct probe_header),
			(uint32_t)PROBE_MIN_FRAME);

	if (settings.size < least || settings.size > PROBE_MAX_FRAME) {
		fprintf(stderr,
				"%s: --size: %u is not within %u (the headers of %s, UDP and probe) "
				"to %u; see --help\n",
				program_invocation_short_name, settings.size, least,
				ipv6 ? "IPv6" : "IPv4", PROBE_MAX_FRAME);
		return KERNEL_EXIT_USAGE;
	}
	if (settings.local.any.sa_family != AF_UNSPEC && settings_ipv6(&settings.local) != ipv6) {
		fprintf(stderr, "%s: --src-ip and --dst-ip: one is IPv4, the other IPv6\n",
				program_invocation_short_name);
		return KERNEL_EXIT_USAGE;
	}
	if (settings.flows < settings.threads) {
		fprintf(stderr, "%s: --flows %u: each of %u threads needs one\n",
				program_invocation_short_name, settings.flows, settings.threads);
		return KERNEL_EXIT_USAGE;
	}
	return -1;
}

int
settings_parse_generator(int argc, char **argv)
{
	int rc;

	settings.remote.v4 = (struct sockaddr_in){ .sin_family = AF_INET,
		.sin_addr = { htonl(INADDR_LOOPBACK) } };
	rc = parse(generator_specs, RTE_DIM(generator_specs), argc, argv, help_generator);
	if (rc >= 0)
		return rc;
	if (settings.flows == 0)
		settings.flows = settings.threads;
	return check_generator();
}

int
settings_parse_reflector(int argc, char **argv)
{
	settings.local.v4 = (struct sockaddr_in){ .sin_family = AF_INET };
	return parse(reflector_specs, RTE_DIM(reflector_specs), argc, argv, help_reflector);
}
