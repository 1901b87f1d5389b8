/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include <rte_common.h>

#include "settings.h"

#define MAX_WORK 10000000

struct settings settings = { .app = APP_OPTIONS_DEFAULT };

static int
parse_ip(const struct option_spec *spec, const char *text)
{
	struct answer_addresses *const all = &settings.addresses;

	if (all->nb == ANSWER_MAX_ADDRESSES)
		return option_refuse(spec, text, "one of the first %d", ANSWER_MAX_ADDRESSES);
	if (!answer_parse(text, &all->address[all->nb]))
		return option_refuse(spec, text,
				"an IPv4 or IPv6 address, or a prefix such as 10.0.0.0/24");
	all->nb++;
	return 0;
}

/* "CYCLES" for all lcores, or "CYCLES@LCORE" */
static int
parse_work(const struct option_spec *spec, const char *text)
{
	const bool one = strchr(text, '@') != NULL;
	uint64_t cycles, lcore = 0;
	unsigned int i;
	const char *rest;

	if (!option_number(text, one ? '@' : '\0', 0, MAX_WORK, &cycles, &rest) ||
			(one && !option_number(rest, '\0', 0, RTE_MAX_LCORE - 1, &lcore, NULL)))
		return option_refuse(spec, text,
				"CYCLES or CYCLES@LCORE, up to %d cycles for each packet",
				MAX_WORK);
	for (i = 0; i < RTE_MAX_LCORE; i++)
		if (!one || i == lcore)
			settings.work[i] = cycles;
	return 0;
}

static int
parse_leak(const struct option_spec *spec, const char *text)
{
	if (!schedule_parse(&settings.leak, text))
		return option_refuse(spec, text, SCHEDULE_WANTED);
	return 0;
}

/* "1/N" */
static int
parse_corruption(const struct option_spec *spec, const char *text)
{
	if (strncmp(text, "1/", 2) != 0 || !option_number(text + 2, '\0', 1, SCHEDULE_MAX,
							   &settings.corrupt_every, NULL))
		return option_refuse(spec, text, "1/N with N from 1 to 2147483648");
	return 0;
}

static int
parse_stall(const struct option_spec *spec, const char *text)
{
	return option_time_every(spec, text, &settings.stall_us, &settings.stall_every_ms);
}

static int
parse_sleep(const struct option_spec *spec, const char *text)
{
	return option_time_every(spec, text, &settings.sleep_us, &settings.sleep_every_ms);
}

static int
parse_refuse(const struct option_spec *spec, const char *text)
{
	return option_time_every(spec, text, &settings.refuse_us, &settings.refuse_every_ms);
}

static int
parse_alarm(const struct option_spec *spec, const char *text)
{
	return option_time_every(spec, text, &settings.alarm_us, &settings.alarm_every_ms);
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
	settings.restart_every_ms = every;
	settings.restart_down_ms = ms;
	return 0;
}

const struct option_spec settings_specs[] = {
	APP_OPTION_SPECS(settings.app),
	{ "ip", "ADDRESS[/N]",
			"answer ARP, neighbour discovery and ping for this address or prefix",
			parse_ip, NULL, 0, 0 },
	{ "work", "CYCLES[@LCORE]",
			"process each packet for so many TSC cycles, on one lcore or all",
			parse_work, NULL, 0, 0 },
	{ "retry", "US",
			"offer packets that TX refuses again for so many microseconds (0: drop them)",
			option_u64, &settings.retry_us, 0, 1000000 },
	{ "inject-leak", SCHEDULE_VALUE, "leak one packet in every N bursts, or one per lcore",
			parse_leak, NULL, 0, 0 },
	{ "inject-corruption", "1/N",
			"invert a payload bit of one packet in every N, checksums unchanged",
			parse_corruption, NULL, 0, 0 },
	{ "inject-stall", "US/MS", "stall each lcore US microseconds every MS milliseconds",
			parse_stall, NULL, 0, 0 },
	{ "inject-sleep", "US/MS", "let each lcore sleep US microseconds every MS milliseconds",
			parse_sleep, NULL, 0, 0 },
	{ "inject-refusal", "US/MS",
			"refuse all TX for US microseconds every MS milliseconds; retry, by default without limit",
			parse_refuse, NULL, 0, 0 },
	{ "inject-signal", "US/MS",
			"interrupt each lcore every MS milliseconds by a signal, handled in US microseconds",
			parse_alarm, NULL, 0, 0 },
	{ "inject-faults", NULL,
			"give 2 MiB of each lcore back to the kernel at each SIGUSR2, and fault on them",
			option_flag, &settings.faults, 0, 0 },
	{ "inject-restart", "MS[/DOWN]",
			"stop and start the ports every MS milliseconds, DOWN ms apart (0); one lcore only",
			parse_restart, NULL, 0, 0 },
};

const unsigned int settings_nb_specs = RTE_DIM(settings_specs);

void
settings_help(FILE *out)
{
	fputs("Usage: pmdscope-reflector [EAL options] [--pmdscope KEY=VALUE,...] -- [options]\n\n"
	      "Sends every packet back out of the port and queue it came in on, with MAC addresses,\n"
	      "IP addresses and UDP or TCP ports swapped. With --ip, which may be repeated, it also\n"
	      "answers for addresses as a host does, and sends no other ARP, ICMP and multicast\n"
	      "packets back. Ends on SIGINT or SIGTERM.\n\n"
	      "Options:\n",
			out);
	options_help(out, settings_specs, settings_nb_specs);
	fputs("\nExamples:\n"
	      "  pmdscope-reflector -l 0 --no-pci --file-prefix reflector \\\n"
	      "      --vdev net_vhost0,iface=/tmp/pmdscope.sock,queues=2 -- --queues 2\n"
	      "  pmdscope-reflector -l 1,2 -a 0000:3b:00.0 -- --queues 2 --json summary.json\n"
	      "  pmdscope-reflector -l 1 --no-pci --vdev net_af_packet0,iface=veth0 \\\n"
	      "      -- --ip 10.0.0.1 --ip fd00::1\n"
	      "  pmdscope-reflector --no-huge -m 256 --no-pci --vdev net_memif0,role=server \\\n"
	      "      -- --inject-leak 1/1000\n\n"
	      "Exit status: 0 after a clean end, 1 on failure, 2 on a usage error.\n",
			out);
}
