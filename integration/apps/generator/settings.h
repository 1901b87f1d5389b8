/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef SETTINGS_H
#define SETTINGS_H

/* The command line of the generator. */

#include <stdbool.h>
#include <stdint.h>

#include "answer.h"
#include "app.h"
#include "flows.h"
#include "pacer.h"
#include "probe.h"
#include "replay.h"
#include "sizes.h"

struct settings {
	struct app_options app;
	uint64_t rate;	     /* Packets per second over all queues; 0: as fast as possible. */
	double rate_percent; /* Of the rate of the warm-up, for --rate 90%; 0: rate is given. */
	uint64_t count;	     /* Number of packets; 0: no limit. */
	struct sizes sizes;
	uint32_t tx_burst; /* Packets per call. */
	uint32_t rx_burst;
	struct flows flows;
	uint64_t stall_us; /* Send and receive nothing for this long; 0: no stall. */
	uint64_t stall_every_ms;
	uint64_t deaf_after_ms; /* Receive nothing after this time; 0: never. */
	uint16_t hot_queue;	/* Of each port. */
	uint32_t hot_times;	/* Shares of the rate that it gets; 1: all get the same. */
	bool fill;
	bool verify;
	const char *replay_file; /* NULL: send probes. */
	struct replay replay;
	uint64_t loops;			 /* 0: without end. */
	double replay_speed;		 /* Without a rate. */
	bool resolve;			 /* Ask for dst_mac; --dst-mac auto. */
	uint8_t next_hop[16];		 /* Its MAC address is requested. */
	uint64_t resolve_ms;		 /* Timeout. */
	struct answer_addresses own_ips; /* Those of src_ip. */
	uint64_t wait_link_ms;
	uint64_t keep_link_ms; /* After the last packet; 0: leave immediately. */
	bool own_src_mac;      /* No --src-mac: each port sends from its own address. */
	struct probe_path path;
	/* Measurements. */
	enum pacer_mode pace;
	uint64_t warm_up_ms;
	bool find_rate;
	double loss_percent; /* Allowed in a trial of --find-rate. */
	uint64_t min_rate;   /* Packets per second; 0: a part of the highest. */
	uint64_t trial_ms;
	double resolution_percent; /* Of the highest rate. */
	const char *csv;	   /* File with a row for each interval; NULL: none. */
	uint64_t csv_interval_ms;  /* 0: the interval of the lines. */
	const char *hdr_log;	   /* File for the latencies of each interval; NULL: none. */
};

extern struct settings settings;

/* As app_parse(), and fills settings. */
int settings_parse(int *argc, char **argv);

/* The table entry of an option. */
const struct option_spec *settings_spec(const char *name);

/* Name of the pace, for JSON. */
const char *settings_pace(void);

#endif /* SETTINGS_H */
