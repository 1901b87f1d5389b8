/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include "answer.h"
#include "check.h"
#include "neighbour.h"
#include "packet.h"

static const struct rte_ether_addr asker = { { 2, 0, 0, 0, 0, 1 } };
static const struct rte_ether_addr neighbour = { { 2, 0, 0, 0, 0, 2 } };
static const struct probe_path paths[] = {
	{ .src_mac = asker, .src_ip = { 10, 0, 0, 1 } },
	{ .src_mac = asker, .src_ip = { 10, 0, 0, 1 }, .tagged = true, .tci = 0xa123 },
	{ .src_mac = asker, .src_ip = { 0xfd, [15] = 1 }, .ipv6 = true },
	{ .src_mac = asker, .src_ip = { 0xfd, [15] = 1 }, .ipv6 = true, .tagged = true },
};

static const uint8_t *
target_of(const struct probe_path *path)
{
	static const uint8_t v4[16] = { 10, 0, 0, 2 }, v6[16] = { 0xfd, [15] = 2 };

	return path->ipv6 ? v6 : v4;
}

/* Have the reflector answer. */
static enum answer_kind
answer(struct rte_mbuf *m, const struct probe_path *path)
{
	struct answer_addresses addresses = { .nb = 1 };

	addresses.address[0].ipv6 = path->ipv6;
	addresses.address[0].bits = path->ipv6 ? 128 : 32;
	memcpy(addresses.address[0].ip, target_of(path), 16);
	return answer_packet(m, &neighbour, &addresses);
}

static void
test_question_and_answer(const struct probe_path *path)
{
	const uint8_t *target = target_of(path);
	struct rte_ether_addr mac = { { 0 } };
	struct packet packet;
	struct rte_mbuf *m = packet_reset(&packet, 0);

	neighbour_ask(m, path, target);
	packet_check_guards(&packet);
	CHECK(m->pkt_len >= PROBE_MIN_FRAME);
	/* A reflector without addresses sends the request back. */
	CHECK(!neighbour_told(m, path, target, &mac));
	CHECK_EQ(answer(m, path), path->ipv6 ? ANSWER_NEIGHBOUR : ANSWER_ARP);
	CHECK(neighbour_told(m, path, target, &mac));
	CHECK(rte_is_same_ether_addr(&mac, &neighbour));
	if (path->tagged)
		CHECK_EQ(rte_pktmbuf_mtod(m, uint8_t *)[14] << 8 |
						rte_pktmbuf_mtod(m, uint8_t *)[15],
				path->tci);
}

/* An answer of or for another address, or a cut one, is not accepted. */
static void
test_other_answers(const struct probe_path *path)
{
	struct probe_path other = *path;
	struct rte_ether_addr mac;
	uint8_t target[16];
	struct packet packet;
	struct rte_mbuf *m = packet_reset(&packet, 0);
	uint16_t size, needed;

	neighbour_ask(m, path, target_of(path));
	answer(m, path);
	memcpy(target, target_of(path), sizeof(target));
	target[path->ipv6 ? 15 : 3]++;
	CHECK(!neighbour_told(m, path, target, &mac));
	other.ipv6 = !path->ipv6;
	CHECK(!neighbour_told(m, &other, target_of(path), &mac));
	needed = path->ipv6 ? 86 : 42;
	if (path->tagged)
		needed += 4;
	for (size = 0; size < needed; size++) {
		m->data_len = size;
		m->pkt_len = size;
		CHECK(!neighbour_told(m, path, target_of(path), &mac));
	}
}

static void
test_multicast_answer(void)
{
	const struct probe_path *path = &paths[0];
	struct rte_ether_addr mac = asker;
	struct packet packet;
	struct rte_mbuf *m = packet_reset(&packet, 0);

	neighbour_ask(m, path, target_of(path));
	answer(m, path);
	rte_pktmbuf_mtod(m, uint8_t *)[22] = 1;
	CHECK(!neighbour_told(m, path, target_of(path), &mac));
	CHECK(rte_is_same_ether_addr(&mac, &asker));
}

int
main(void)
{
	unsigned int i;

	for (i = 0; i < RTE_DIM(paths); i++) {
		test_question_and_answer(&paths[i]);
		test_other_answers(&paths[i]);
	}
	test_multicast_answer();
	return 0;
}
