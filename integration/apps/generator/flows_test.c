/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <string.h>

#include "check.h"
#include "flows.h"

static void
test_ports(void)
{
	static const char *const bad[] = { "", "0", "65536", "5-4", "1-", "-1", "1-65536", "7,8",
		"1-2-3", " 7", "7 ", "+7" };
	struct flows flows = { 0 };
	unsigned int i;

	CHECK(flows_parse_ports(&flows, FLOW_DST_PORT, "53"));
	CHECK_EQ(flows.first.value[FLOW_DST_PORT], 53);
	CHECK_EQ(flows.last.value[FLOW_DST_PORT], 53);
	CHECK(flows_parse_ports(&flows, FLOW_DST_PORT, "1-65535"));
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(!flows_parse_ports(&flows, FLOW_DST_PORT, bad[i]));
	CHECK_EQ(flows.first.value[FLOW_DST_PORT], 1);
	CHECK_EQ(flows.last.value[FLOW_DST_PORT], 65535);
}

static void
check_ips(const char *text, bool ipv6, uint8_t last_byte, uint32_t first, uint32_t last)
{
	struct flows flows = { 0 };
	uint8_t address[16];

	CHECK(flows_parse_ips(&flows, FLOW_SRC_IP, text, ipv6, address));
	CHECK_EQ(address[ipv6 ? 15 : 3], last_byte);
	CHECK_EQ(flows.first.value[FLOW_SRC_IP], first);
	CHECK_EQ(flows.last.value[FLOW_SRC_IP], last);
}

static void
test_ips(void)
{
	static const struct {
		const char *text;
		bool ipv6;
	} bad[] = {
		{ "", false },
		{ "10.0.0", false },
		{ "10.0.0.2-10.0.0.1", false },
		{ "10.0.0.1-", false },
		{ "10.0.0.1-9", false },
		{ "10.0.0.1/33", false },
		{ "10.0.0.1/", false },
		{ "10.0.0.1-10.0.0.2/24", false },
		{ "2001:2::1", false },
		{ "10.0.0.1", true },
		{ "2001:2::/95", true },
		{ "2001:2::1-2001:2:0:1::2", true },
		{ "2001:2::1/129", true },
		{ "1111:1111:1111:1111:1111:1111:1111:1111-1111:1111:1111:1111:1111:1111:1111:1112"
		  "1111:1111:1111:1111",
				true },
	};
	struct flows flows = { 0 };
	uint8_t address[16] = { 77 };
	unsigned int i;

	check_ips("198.18.0.1", false, 1, 0xc6120001, 0xc6120001);
	check_ips("10.0.0.250-10.0.1.5", false, 250, 0x0a0000fa, 0x0a000105);
	check_ips("10.1.2.3/24", false, 0, 0x0a010200, 0x0a0102ff);
	check_ips("10.1.2.3/32", false, 3, 0x0a010203, 0x0a010203);
	check_ips("10.1.2.3/0", false, 0, 0, UINT32_MAX);
	check_ips("2001:2::1", true, 1, 1, 1);
	check_ips("2001:2::1-2001:2::1:0", true, 1, 1, 0x10000);
	check_ips("2001:2::ff/96", true, 0, 0, UINT32_MAX);
	check_ips("2001:2::ff/127", true, 0xfe, 0xfe, 0xff);
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		CHECK(!flows_parse_ips(&flows, FLOW_SRC_IP, bad[i].text, bad[i].ipv6, address));
	CHECK_EQ(address[0], 77);
	CHECK_EQ(flows.last.value[FLOW_SRC_IP], 0);
}

/* All combinations occur before one is repeated. */
static void
test_order(void)
{
	struct flows flows = { 0 };
	uint8_t address[16];
	struct flow flow;
	uint32_t i;

	CHECK(flows_parse_ports(&flows, FLOW_SRC_PORT, "100-102"));
	CHECK(flows_parse_ports(&flows, FLOW_DST_PORT, "7"));
	CHECK(flows_parse_ips(&flows, FLOW_SRC_IP, "10.0.0.0/30", false, address));
	CHECK(flows_parse_ips(&flows, FLOW_DST_IP, "10.0.1.1-10.0.1.2", false, address));
	flows_prepare(&flows);
	CHECK_EQ(flows.nb_varying, 3);
	flow = flows.first;
	for (i = 0; i < 48; i++) {
		CHECK_EQ(flow.value[FLOW_SRC_PORT], 100 + i % 3);
		CHECK_EQ(flow.value[FLOW_DST_PORT], 7);
		CHECK_EQ(flow.value[FLOW_SRC_IP], 0x0a000000 + i / 3 % 4);
		CHECK_EQ(flow.value[FLOW_DST_IP], 0x0a000101 + i / 12 % 2);
		flows_next(&flows, &flow);
	}
	CHECK(memcmp(&flow, &flows.first, sizeof(flow)) == 0);
}

/* The whole range of 32 bits, which wraps around at its end. */
static void
test_all_addresses(void)
{
	struct flows flows = { 0 };
	uint8_t address[16];
	struct flow flow;

	CHECK(flows_parse_ips(&flows, FLOW_DST_IP, "0.0.0.0/0", false, address));
	flows_prepare(&flows);
	flow = flows.last;
	flows_next(&flows, &flow);
	CHECK_EQ(flow.value[FLOW_DST_IP], 0);
	flows_next(&flows, &flow);
	CHECK_EQ(flow.value[FLOW_DST_IP], 1);
}

int
main(void)
{
	test_ports();
	test_ips();
	test_order();
	test_all_addresses();
	return 0;
}
