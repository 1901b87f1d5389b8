/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <netinet/in.h>
#include <stddef.h>
#include <string.h>

#include <rte_ip.h>
#include <rte_udp.h>

#include "probe.h"

#define HOP_LIMIT 64

/* Of all headers: IPv4 without a VLAN tag. */
#define SMALLEST \
	(sizeof(struct rte_ether_hdr) + sizeof(struct rte_ipv4_hdr) + sizeof(struct rte_udp_hdr) + \
			sizeof(struct probe_header))

/* Of all headers: IPv6 with a VLAN tag. */
#define MAX_HEADERS \
	(SMALLEST - sizeof(struct rte_ipv4_hdr) + sizeof(struct rte_ipv6_hdr) + \
			sizeof(struct rte_vlan_hdr))

static uint32_t
ip_size(bool ipv6)
{
	return ipv6 ? sizeof(struct rte_ipv6_hdr) : sizeof(struct rte_ipv4_hdr);
}

static uint32_t
udp_offset(bool ipv6)
{
	return sizeof(struct rte_ether_hdr) + ip_size(ipv6);
}

uint16_t
probe_min_frame(bool ipv6)
{
	return (uint16_t)(udp_offset(ipv6) + sizeof(struct rte_udp_hdr) +
			  sizeof(struct probe_header));
}

/* Sum of 16-bit words in memory order; size is even. */
static uint32_t
sum_words(const void *data, size_t size)
{
	const uint8_t *bytes = data;
	uint32_t sum = 0;
	uint16_t word;
	size_t i;

	for (i = 0; i < size; i += sizeof(word)) {
		memcpy(&word, bytes + i, sizeof(word));
		sum += word;
	}
	return sum;
}

static uint16_t
fold(uint32_t sum)
{
	sum = (sum & 0xffff) + (sum >> 16);
	sum = (sum & 0xffff) + (sum >> 16);
	return (uint16_t)~sum;
}

static void
write_ip(uint8_t *at, const struct probe_path *path)
{
	struct rte_ipv4_hdr v4 = {
		.version_ihl = RTE_IPV4_VHL_DEF,
		.fragment_offset = rte_cpu_to_be_16(RTE_IPV4_HDR_DF_FLAG),
		.time_to_live = HOP_LIMIT,
		.next_proto_id = IPPROTO_UDP,
	};
	struct rte_ipv6_hdr v6 = {
		.vtc_flow = rte_cpu_to_be_32(UINT32_C(6) << 28),
		.proto = IPPROTO_UDP,
		.hop_limits = HOP_LIMIT,
	};

	if (path->ipv6) {
		memcpy(&v6.src_addr, path->src_ip, sizeof(v6.src_addr));
		memcpy(&v6.dst_addr, path->dst_ip, sizeof(v6.dst_addr));
		memcpy(at, &v6, sizeof(v6));
	} else {
		memcpy(&v4.src_addr, path->src_ip, sizeof(v4.src_addr));
		memcpy(&v4.dst_addr, path->dst_ip, sizeof(v4.dst_addr));
		memcpy(at, &v4, sizeof(v4));
	}
}

/* Ethernet header, with the VLAN tag if there is one. Returns its size. */
static uint16_t
write_ethernet(uint8_t *at, const struct probe_path *path)
{
	const rte_be16_t type =
			rte_cpu_to_be_16(path->ipv6 ? RTE_ETHER_TYPE_IPV6 : RTE_ETHER_TYPE_IPV4);
	const struct rte_ether_hdr eth = {
		.src_addr = path->src_mac,
		.dst_addr = path->dst_mac,
		.ether_type = path->tagged ? rte_cpu_to_be_16(RTE_ETHER_TYPE_VLAN) : type,
	};
	const struct rte_vlan_hdr vlan = {
		.vlan_tci = rte_cpu_to_be_16(path->tci),
		.eth_proto = type,
	};

	memcpy(at, &eth, sizeof(eth));
	if (!path->tagged)
		return sizeof(eth);
	memcpy(at + sizeof(eth), &vlan, sizeof(vlan));
	return sizeof(eth) + sizeof(vlan);
}

/* Remove the last 32 bits of an address from the template: packets add their own. */
static uint32_t
take_tail(uint8_t *at)
{
	rte_be32_t tail;

	memcpy(&tail, at, sizeof(tail));
	memset(at, 0, sizeof(tail));
	return rte_be_to_cpu_32(tail);
}

void
probe_template(struct probe_template *template, const struct probe_path *path)
{
	const rte_be16_t proto = rte_cpu_to_be_16(IPPROTO_UDP);
	const rte_be16_t magic = rte_cpu_to_be_16(PROBE_MAGIC);
	const uint16_t addresses = path->ipv6 ? offsetof(struct rte_ipv6_hdr, src_addr)
					      : offsetof(struct rte_ipv4_hdr, src_addr);
	const uint16_t address = path->ipv6 ? 16 : 4;
	uint8_t *ip, *l4;

	memset(template, 0, sizeof(*template));
	template->ipv6 = path->ipv6;
	template->l3 = write_ethernet(template->frame, path);
	template->l4 = (uint16_t)(template->l3 + ip_size(path->ipv6));
	template->src_tail = (uint16_t)(template->l3 + addresses + address - sizeof(rte_be32_t));
	template->dst_tail = template->src_tail + address;
	ip = template->frame + template->l3;
	l4 = template->frame + template->l4;
	write_ip(ip, path);
	memcpy(l4 + sizeof(struct rte_udp_hdr), &magic, sizeof(magic));

	template->first.value[FLOW_SRC_PORT] = PROBE_SRC_PORT;
	template->first.value[FLOW_DST_PORT] = PROBE_DST_PORT;
	template->first.value[FLOW_SRC_IP] = take_tail(template->frame + template->src_tail);
	template->first.value[FLOW_DST_IP] = take_tail(template->frame + template->dst_tail);
	template->ip_sum = sum_words(ip, ip_size(path->ipv6));
	template->udp_sum = sum_words(ip + addresses, 2 * address) + proto +
			    sum_words(&magic, sizeof(magic));
}

void
probe_fill(uint8_t *at, uint32_t size, const struct probe *probe)
{
	uint64_t state = (uint64_t)probe->lane << 48 | probe->seq;
	rte_le64_t word;
	uint32_t done;

	for (done = 0; done < size; done += sizeof(word)) {
		uint64_t z = state += UINT64_C(0x9e3779b97f4a7c15);

		z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
		z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
		word = rte_cpu_to_le_64(z ^ (z >> 31));
		memcpy(at + done, &word, RTE_MIN(sizeof(word), (size_t)(size - done)));
	}
}

/*
 * Fill the part after the probe header. Returns the sum of its words; an odd byte counts as even.
 */
static uint32_t
finish_payload(uint8_t *at, uint32_t size, const struct probe *probe)
{
	uint8_t last[2] = { 0 };

	probe_fill(at, size, probe);
	if (size % 2 == 0)
		return sum_words(at, size);
	last[0] = at[size - 1];
	return sum_words(at, size - 1) + sum_words(last, sizeof(last));
}

static uint32_t
sum_halves(uint32_t value)
{
	return (value & 0xffff) + (value >> 16);
}

/* With sizes known to the compiler no call is needed, which would take too long per packet. */
static inline void
copy_headers(uint8_t *to, const uint8_t *from, uint32_t size)
{
	if (size == SMALLEST)
		memcpy(to, from, SMALLEST);
	else
		memcpy(to, from, size);
}

/* Sums over the headers of a packet, for its checksums. */
struct sums {
	uint32_t ip;
	uint32_t udp;
};

/* Write the values that packets of one flow, run and time stamp share to a copy of the template. */
static struct sums
write_common(const struct probe_template *template, uint8_t *frame, const struct flow *flow,
		const struct probe *probe)
{
	const rte_be32_t src = rte_cpu_to_be_32(flow->value[FLOW_SRC_IP]);
	const rte_be32_t dst = rte_cpu_to_be_32(flow->value[FLOW_DST_IP]);
	const rte_be16_t src_port = rte_cpu_to_be_16((uint16_t)flow->value[FLOW_SRC_PORT]);
	const rte_be16_t dst_port = rte_cpu_to_be_16((uint16_t)flow->value[FLOW_DST_PORT]);
	const rte_be16_t run = rte_cpu_to_be_16(probe->run);
	const rte_be16_t tsc_high = rte_cpu_to_be_16((uint16_t)(probe->tsc >> 32));
	const rte_be32_t tsc_low = rte_cpu_to_be_32((uint32_t)probe->tsc);
	const uint32_t tails = sum_halves(src) + sum_halves(dst);
	struct rte_udp_hdr *udp = (struct rte_udp_hdr *)(frame + template->l4);
	struct probe_header *header = (struct probe_header *)(udp + 1);

	memcpy(frame + template->src_tail, &src, sizeof(src));
	memcpy(frame + template->dst_tail, &dst, sizeof(dst));
	udp->src_port = src_port;
	udp->dst_port = dst_port;
	header->run = run;
	header->tsc_high = tsc_high;
	header->tsc_low = tsc_low;
	return (struct sums){
		.ip = template->ip_sum + tails,
		.udp = template->udp_sum + tails + src_port + dst_port + run + tsc_high +
		       sum_halves(tsc_low),
	};
}

/* The lengths, and the checksum of IPv4. Returns what they add to the sum for UDP. */
static inline uint32_t
write_size(const struct probe_template *template, uint8_t *frame, uint16_t size, uint32_t ip_sum)
{
	const uint16_t udp_size = (uint16_t)(size - template->l4);
	const rte_be16_t udp_length = rte_cpu_to_be_16(udp_size);
	struct rte_ipv4_hdr *v4 = (struct rte_ipv4_hdr *)(frame + template->l3);
	struct rte_ipv6_hdr *v6 = (struct rte_ipv6_hdr *)(frame + template->l3);
	rte_be16_t total;

	if (template->ipv6) {
		v6->payload_len = udp_length;
	} else {
		total = rte_cpu_to_be_16((uint16_t)(udp_size + sizeof(*v4)));
		v4->total_length = total;
		v4->hdr_checksum = fold(ip_sum + total);
	}
	((struct rte_udp_hdr *)(frame + template->l4))->dgram_len = udp_length;
	/* It counts twice: in the UDP header and in the pseudo-header. */
	return 2 * (uint32_t)udp_length;
}

/* The rest: lane and number in one store, and the checksum over the sum of all else. */
static inline void
write_number(uint8_t *l4, uint16_t lane, uint64_t seq, uint32_t sum)
{
	const rte_be64_t number =
			rte_cpu_to_be_64((uint64_t)lane << 48 | (seq & PROBE_NUMBER_MASK));
	struct rte_udp_hdr *udp = (struct rte_udp_hdr *)l4;
	uint16_t checksum;

	memcpy(l4 + sizeof(*udp) + offsetof(struct probe_header, lane), &number, sizeof(number));
	checksum = fold(sum + sum_halves((uint32_t)number) + sum_halves((uint32_t)(number >> 32)));
	udp->dgram_cksum = checksum != 0 ? checksum : 0xffff;
}

static uint32_t
headers_of(const struct probe_template *template)
{
	return template->l4 + sizeof(struct rte_udp_hdr) + sizeof(struct probe_header);
}

void
probe_write_flow(const struct probe_template *template, struct rte_mbuf *m, uint16_t size,
		const struct flow *flow, const struct probe *probe)
{
	const uint32_t headers = headers_of(template);
	uint8_t *frame = rte_pktmbuf_mtod(m, uint8_t *);
	struct sums sums;

	copy_headers(frame, template->frame, template->only_headers ? headers : size);
	m->data_len = size;
	m->pkt_len = size;
	sums = write_common(template, frame, flow, probe);
	sums.udp += write_size(template, frame, size, sums.ip);
	if (template->fill)
		sums.udp += finish_payload(frame + headers, size - headers, probe);
	write_number(frame + template->l4, probe->lane, probe->seq, sums.udp);
}

void
probe_write_burst(const struct probe_template *template, struct rte_mbuf *const *pkts, uint32_t n,
		const uint16_t *sizes, const struct flow *flow, const struct probe *first)
{
	const uint32_t headers = headers_of(template);
	uint8_t common[MAX_HEADERS];
	struct sums sums;
	uint32_t i, sum;

	memcpy(common, template->frame, headers);
	sums = write_common(template, common, flow, first);
	for (i = 0; i < n; i++) {
		uint8_t *frame = rte_pktmbuf_mtod(pkts[i], uint8_t *);

		copy_headers(frame, common, headers);
		pkts[i]->data_len = sizes[i];
		pkts[i]->pkt_len = sizes[i];
		sum = sums.udp + write_size(template, frame, sizes[i], sums.ip);
		write_number(frame + template->l4, first->lane, first->seq + i, sum);
	}
}

void
probe_write(const struct probe_template *template, struct rte_mbuf *m, uint16_t size, uint16_t flow,
		const struct probe *probe)
{
	struct flow own = template->first;

	own.value[FLOW_SRC_PORT] += flow;
	probe_write_flow(template, m, size, &own, probe);
}

static bool
is_udp(const uint8_t *ip, bool ipv6)
{
	const struct rte_ipv4_hdr *v4 = (const struct rte_ipv4_hdr *)ip;
	const struct rte_ipv6_hdr *v6 = (const struct rte_ipv6_hdr *)ip;

	if (ipv6)
		return v6->proto == IPPROTO_UDP;
	return v4->version_ihl == RTE_IPV4_VHL_DEF && v4->next_proto_id == IPPROTO_UDP;
}

/* Start of the IP header, after a VLAN tag if there is one; *type is that of the header. */
static uint32_t
find_ip(const uint8_t *frame, rte_be16_t *type)
{
	uint32_t l3 = sizeof(struct rte_ether_hdr);

	memcpy(type, frame + l3 - sizeof(*type), sizeof(*type));
	if (*type == rte_cpu_to_be_16(RTE_ETHER_TYPE_VLAN)) {
		l3 += sizeof(struct rte_vlan_hdr);
		memcpy(type, frame + l3 - sizeof(*type), sizeof(*type));
	}
	return l3;
}

/* Start of the probe header; 0 if it is not a probe of this address family. */
static uint32_t
find_header(const struct rte_mbuf *m, bool ipv6)
{
	const rte_be16_t wanted =
			rte_cpu_to_be_16(ipv6 ? RTE_ETHER_TYPE_IPV6 : RTE_ETHER_TYPE_IPV4);
	const uint32_t headers = ip_size(ipv6) + sizeof(struct rte_udp_hdr);
	const uint8_t *frame = rte_pktmbuf_mtod(m, const uint8_t *);
	const struct probe_header *header;
	rte_be16_t type;
	uint32_t l3;

	if (rte_pktmbuf_data_len(m) < probe_min_frame(ipv6))
		return 0;
	l3 = find_ip(frame, &type);
	if (rte_pktmbuf_data_len(m) < l3 + headers + sizeof(*header) || type != wanted ||
			!is_udp(frame + l3, ipv6))
		return 0;
	header = (const struct probe_header *)(frame + l3 + headers);
	return header->magic == rte_cpu_to_be_16(PROBE_MAGIC) ? l3 + headers : 0;
}

static void
read_header(const struct probe_header *header, struct probe *probe)
{
	probe->run = rte_be_to_cpu_16(header->run);
	probe->lane = rte_be_to_cpu_16(header->lane);
	probe->seq = (uint64_t)rte_be_to_cpu_16(header->seq_high) << 32 |
		     rte_be_to_cpu_32(header->seq_low);
	probe->tsc = (uint64_t)rte_be_to_cpu_16(header->tsc_high) << 32 |
		     rte_be_to_cpu_32(header->tsc_low);
}

bool
probe_read(const struct rte_mbuf *m, bool ipv6, struct probe *probe)
{
	const uint32_t offset = find_header(m, ipv6);

	if (offset == 0)
		return false;
	read_header(rte_pktmbuf_mtod_offset(m, const struct probe_header *, offset), probe);
	return true;
}

/* A probe header as three numbers that overlap: magic and run, lane and number, stamp. */
struct words {
	uint32_t start;
	uint64_t number;
	uint64_t stamp;
};

static inline struct words
read_words(const uint8_t *header)
{
	struct words words;

	memcpy(&words.start, header, sizeof(words.start));
	memcpy(&words.number, header + offsetof(struct probe_header, lane), sizeof(words.number));
	memcpy(&words.stamp, header + sizeof(struct probe_header) - sizeof(words.stamp),
			sizeof(words.stamp));
	words.number = rte_be_to_cpu_64(words.number);
	words.stamp = rte_be_to_cpu_64(words.stamp) & PROBE_NUMBER_MASK;
	return words;
}

void
probe_read_run(struct rte_mbuf *const *pkts, uint16_t n, bool ipv6, struct probe_run *run)
{
	const uint32_t offset = find_header(pkts[0], ipv6);
	struct words first, words;
	const uint8_t *header;

	run->n = 0;
	if (offset == 0)
		return;
	header = rte_pktmbuf_mtod_offset(pkts[0], const uint8_t *, offset);
	read_header((const struct probe_header *)header, &run->first);
	first = read_words(header);
	run->bytes = rte_pktmbuf_pkt_len(pkts[0]);
	for (run->n = 1; run->n < n; run->n++) {
		const struct rte_mbuf *m = pkts[run->n];

		/*
		 * Packets with so many expected values are ours: the headers before need not be
		 * checked.
		 */
		if (rte_pktmbuf_data_len(m) < offset + sizeof(struct probe_header))
			break;
		words = read_words(rte_pktmbuf_mtod_offset(m, const uint8_t *, offset));
		if (words.start != first.start || words.number != first.number + run->n ||
				words.stamp != first.stamp)
			break;
		run->bytes += rte_pktmbuf_pkt_len(m);
	}
}

bool
probe_intact(const struct probe_template *template, const struct rte_mbuf *m, uint16_t size,
		const struct probe *probe)
{
	const uint32_t headers = ip_size(template->ipv6) + sizeof(struct rte_udp_hdr) +
				 sizeof(struct probe_header);
	const uint32_t payload = size - template->l3 - headers;
	uint8_t wanted[PROBE_MAX_FRAME], copy[PROBE_MAX_FRAME];
	const void *seen;
	rte_be16_t type;
	uint32_t l3;

	l3 = find_ip(rte_pktmbuf_mtod(m, const uint8_t *), &type);
	seen = rte_pktmbuf_read(m, l3 + headers, payload, copy);
	if (seen == NULL)
		return false;
	probe_fill(wanted, payload, probe);
	return memcmp(seen, wanted, payload) == 0;
}
