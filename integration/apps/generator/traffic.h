/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef TRAFFIC_H
#define TRAFFIC_H

/* The packets to send, from the command line: sizes, addresses and ports, or a file. */

#include <stdint.h>

/* Addresses reserved for benchmarks: RFC 2544 and RFC 5180. */
#define SRC_IPV4 "198.18.0.1"
#define DST_IPV4 "198.19.0.1"
#define SRC_IPV6 "2001:2::1"
#define DST_IPV6 "2001:2::2"

/* As given, or NULL; valid values depend on --ipv6, which may come later. */
struct traffic_text {
	const char *size;
	const char *src_ip;
	const char *dst_ip;
	const char *src_port;
	const char *dst_port;
	const char *gateway;
	uint32_t nb_flows; /* 0: not given. */
};

extern struct traffic_text traffic_text;

/* Fill settings from the text, once all options are parsed. 0, or -EINVAL, reported. */
int traffic_read(void);

/* Bytes of all headers of a probe on the path of the settings, with the VLAN tag if there is one. */
uint16_t traffic_headers(void);

/* Load the file of --replay. -1 to continue, otherwise an exit code, reported. */
int traffic_read_replay(void);

#endif /* TRAFFIC_H */
