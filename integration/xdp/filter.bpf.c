/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * XDP program that drops unwanted packets before the kernel or an app processes them, and
 * counts every packet under one verdict. `pmdscope xdp` loads it; docs/xdp.md describes it.
 *
 * Always passed: ARP, IPv6 Neighbor Discovery with hop limit 255, and frames to the link control
 * addresses of IEEE 802.1 (STP, LACP, LLDP, EAPOL). A filter that drops these cuts the host off.
 *
 * Transport checksums are not verified: a sender on the same host leaves them to a NIC.
 */
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/tcp.h>
#include <linux/udp.h>

#include "filter.h"

static __always_inline bool
is_link_control(const struct ethhdr *eth)
{
	return eth->h_dest[0] == 0x01 && eth->h_dest[1] == 0x80 && eth->h_dest[2] == 0xc2 &&
	       eth->h_dest[3] == 0 && eth->h_dest[4] == 0 && eth->h_dest[5] < 0x10;
}

static __always_inline bool
same_address(const struct address *a, const struct address *b)
{
	return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] &&
	       a->word[3] == b->word[3];
}

static __always_inline bool
is_tcp_flags_valid(__u8 flags)
{
	if ((flags & TCP_FLAGS) == 0)
		return false;
	if ((flags & TCP_SYN) && (flags & (TCP_FIN | TCP_RST)))
		return false;
	/* A segment of an open connection, such as a FIN, has the ACK flag. */
	return (flags & (TCP_SYN | TCP_RST | TCP_ACK)) != 0;
}

/*
 * Checks the transport header at `l4`, of which the datagram, or its first fragment, holds
 * `length` bytes. Those bytes are in the frame.
 */
static __always_inline int
check_transport(struct packet *packet, __u8 protocol, void *l4, void *end, __u32 length,
		bool is_first_fragment)
{
	/* RFC 1858, RFC 7112: the first fragment holds the whole header. */
	const int too_short = is_first_fragment ? FRAGMENT : MALFORMED;

	if (protocol == IPPROTO_TCP) {
		struct tcphdr *tcp = l4;
		__u8 flags;

		if (length < sizeof(*tcp) || (void *)(tcp + 1) > end)
			return too_short;
		if (tcp->doff < 5)
			return MALFORMED;
		if (tcp->doff * 4U > length)
			return too_short;
		flags = ((__u8 *)tcp)[13];
		if (!is_tcp_flags_valid(flags) || tcp->source == 0 || tcp->dest == 0)
			return MALFORMED;
		packet->destination_port = tcp->dest;
		packet->is_syn = (flags & (TCP_SYN | TCP_ACK)) == TCP_SYN;
	} else if (protocol == IPPROTO_UDP) {
		struct udphdr *udp = l4;
		__u32 udp_length;

		if (length < sizeof(*udp) || (void *)(udp + 1) > end)
			return too_short;
		udp_length = bpf_ntohs(udp->len);
		if (udp_length < sizeof(*udp) || udp->dest == 0)
			return MALFORMED;
		if (!is_first_fragment && udp_length > length)
			return MALFORMED;
		packet->destination_port = udp->dest;
	} else if (protocol == IPPROTO_ICMP || protocol == IPPROTO_ICMPV6) {
		if (length < ICMP_HEADER)
			return too_short;
	}
	return UNDECIDED;
}

/*
 * Checks a fragment whose part of the datagram has `length` bytes: `offset` is its position in
 * bytes, after the headers that each fragment has.
 */
static __always_inline int
check_fragment(__u8 protocol, __u32 offset, bool more, __u32 length)
{
	if (length == 0)
		return FRAGMENT;
	if (more && length % 8 != 0)
		return FRAGMENT;
	if (offset + length > MAX_DATAGRAM)
		return FRAGMENT;
	/* RFC 1858 and RFC 3128: it would overwrite a header that was checked before. */
	if (protocol == IPPROTO_TCP && offset > 0 && offset < sizeof(struct tcphdr))
		return FRAGMENT;
	return UNDECIDED;
}

static __always_inline bool
is_ipv4_checksum_right(struct iphdr *ip, __u32 header, void *end)
{
	__u16 *words = (__u16 *)ip;
	void *option = ip + 1;
	void *options_end = (void *)ip + header;
	__u32 sum = 0;
	int i;

#pragma unroll
	for (i = 0; i < 10; i++)
		sum += words[i];
	for (i = 0; i < MAX_IP_OPTION_WORDS && option < options_end; i++) {
		/* Prevents clang from comparing offsets instead of pointers, which the
		 * verifier would not accept.
		 */
		asm volatile("" : "+r"(option));
		if (option + 2 > end)
			return false;
		sum += *(__u16 *)option;
		option += 2;
	}
	sum = (sum & 0xffff) + (sum >> 16);
	sum += sum >> 16;
	return (__u16)sum == 0xffff;
}

/* Hosts without an address use 0.0.0.0 to request one, and some switches to query groups. */
static __always_inline bool
are_ipv4_addresses_valid(const struct iphdr *ip, bool may_be_unspecified)
{
	__u32 source = bpf_ntohl(ip->saddr), destination = bpf_ntohl(ip->daddr);

	if (source >> 24 == 0)
		return source == 0 && may_be_unspecified;
	if (source >> 28 == 0xe || source == 0xffffffff || source >> 24 == 127)
		return false;
	return destination >> 24 != 127 && destination != 0 && source != destination;
}

static __always_inline int
parse_ipv4(struct packet *packet, struct iphdr *ip, void *end, bool drop_fragments)
{
	__u32 header, total, length, offset;
	__u16 fragment;
	bool more, unspecified;
	void *l4;
	int verdict = UNDECIDED;

	if ((void *)(ip + 1) > end)
		return MALFORMED;
	packet->is_ipv4 = true;
	packet->has_source = true;
	packet->source.word[2] = MAPPED_IPV4;
	packet->source.word[3] = ip->saddr;
	packet->destination.word[2] = MAPPED_IPV4;
	packet->destination.word[3] = ip->daddr;

	header = ip->ihl * 4;
	total = bpf_ntohs(ip->tot_len);
	l4 = (void *)ip + header;
	if (ip->version != 4 || header < sizeof(*ip) || l4 > end)
		return MALFORMED;
	if (total < header || (void *)ip + total > end)
		return MALFORMED;
	if (ip->ttl == 0 || !is_ipv4_checksum_right(ip, header, end))
		return MALFORMED;

	length = total - header;
	fragment = bpf_ntohs(ip->frag_off);
	offset = (fragment & IP_OFFSET_MASK) * 8;
	more = fragment & IP_MORE_FRAGMENTS;
	if (fragment & IP_RESERVED_FLAG)
		return MALFORMED;
	if (more || offset > 0) {
		if (drop_fragments)
			return FRAGMENT;
		verdict = check_fragment(ip->protocol, offset, more, length);
		if (verdict != UNDECIDED)
			return verdict;
	}
	if (offset == 0)
		verdict = check_transport(packet, ip->protocol, l4, end, length, more);
	unspecified = ip->protocol == IPPROTO_IGMP ||
		      packet->destination_port == bpf_htons(DHCP_SERVER_PORT);
	if (verdict == UNDECIDED && !are_ipv4_addresses_valid(ip, unspecified))
		return MALFORMED;
	return verdict;
}

static __always_inline bool
are_ipv6_addresses_valid(const struct address *source, const struct address *destination)
{
	const struct address loopback = { { 0, 0, 0, bpf_htonl(1) } };
	const struct address unspecified = {};

	if (source->word[0] == 0 && source->word[1] == 0 && source->word[2] == MAPPED_IPV4)
		return false;
	return (bpf_ntohl(source->word[0]) >> 24) != 0xff && !same_address(source, &loopback) &&
	       !same_address(destination, &loopback) && !same_address(destination, &unspecified) &&
	       !same_address(source, destination);
}

/* Result of parsing the headers of an IPv6 packet. */
struct header_chain {
	__u32 offset; /* of the transport header, from the IPv6 header */
	__u32 fragment_offset;
	__u8 protocol;
	bool is_fragment;
	bool more;
};

/* Follows extension headers; returns a verdict, or UNDECIDED and the transport header. */
static __always_inline int
follow_headers(struct header_chain *chain, void *ip, void *end, __u32 total, bool drop_fragments)
{
	int i, verdict;

	for (i = 0; i < MAX_EXTENSION_HEADERS; i++) {
		struct extension_header *extension = ip + chain->offset;
		struct fragment_header *fragment = ip + chain->offset;
		__u8 protocol = chain->protocol;
		__u32 size = 8;

		if (protocol != IPPROTO_HOPOPTS && protocol != IPPROTO_ROUTING &&
				protocol != IPPROTO_FRAGMENT && protocol != IPPROTO_DSTOPTS &&
				protocol != IPPROTO_AH)
			return UNDECIDED;
		if (protocol == IPPROTO_HOPOPTS && i > 0)
			return MALFORMED;
		if ((void *)(fragment + 1) > end || chain->offset + size > total)
			return chain->is_fragment ? FRAGMENT : MALFORMED;
		chain->protocol = extension->next;
		if (protocol == IPPROTO_FRAGMENT) {
			__u16 value = bpf_ntohs(fragment->offset_and_flags);

			if (chain->is_fragment)
				return FRAGMENT;
			chain->fragment_offset = value & IP6_OFFSET_MASK;
			chain->more = value & IP6_MORE_FRAGMENTS;
			/* RFC 6946: a whole datagram does not count as a fragment. */
			chain->is_fragment = chain->more || chain->fragment_offset > 0;
			if (chain->is_fragment && drop_fragments)
				return FRAGMENT;
			if (chain->is_fragment) {
				verdict = check_fragment(chain->protocol, chain->fragment_offset,
						chain->more, total - chain->offset - size);
				if (verdict != UNDECIDED)
					return verdict;
			}
		} else {
			/* Type 0 allowed a sender to loop packets between routers (RFC 5095). */
			if (protocol == IPPROTO_ROUTING && extension->routing_type == 0)
				return MALFORMED;
			size = protocol == IPPROTO_AH ? (extension->length + 2U) * 4
						      : (extension->length + 1U) * 8;
		}
		chain->offset += size;
		if (chain->offset > MAX_HEADERS || chain->offset > total)
			return chain->is_fragment ? FRAGMENT : MALFORMED;
		/* The following bytes are from another position of the datagram. */
		if (chain->fragment_offset > 0)
			return UNDECIDED;
	}
	return MALFORMED;
}

static __always_inline int
parse_ipv6(struct packet *packet, struct ipv6hdr *ip, void *end, bool drop_fragments)
{
	struct header_chain chain = { .offset = sizeof(*ip) };
	__u32 total;
	void *l4;
	int verdict;

	if ((void *)(ip + 1) > end)
		return MALFORMED;
	packet->has_source = true;
	__builtin_memcpy(&packet->source, &ip->saddr, sizeof(packet->source));
	__builtin_memcpy(&packet->destination, &ip->daddr, sizeof(packet->destination));

	total = sizeof(*ip) + bpf_ntohs(ip->payload_len);
	if (ip->version != 6 || ip->hop_limit == 0 || (void *)ip + total > end)
		return MALFORMED;
	if (!are_ipv6_addresses_valid(&packet->source, &packet->destination))
		return MALFORMED;
	chain.protocol = ip->nexthdr;
	verdict = follow_headers(&chain, ip, end, total, drop_fragments);
	if (verdict != UNDECIDED)
		return verdict;
	if (chain.fragment_offset > 0)
		return UNDECIDED;
	if (chain.offset > MAX_HEADERS)
		return MALFORMED;
	l4 = (void *)ip + chain.offset;
	verdict = check_transport(
			packet, chain.protocol, l4, end, total - chain.offset, chain.is_fragment);
	if (verdict != UNDECIDED)
		return verdict;
	if (chain.protocol == IPPROTO_ICMPV6 && ip->hop_limit == ND_HOP_LIMIT && l4 + 1 <= end) {
		__u8 type = *(__u8 *)l4;

		/* RFC 6980: Neighbor Discovery is never fragmented. */
		if (type >= ND_ROUTER_SOLICITATION && type <= ND_REDIRECT)
			return chain.is_fragment ? FRAGMENT : PASSED;
	}
	return UNDECIDED;
}

/* Looks up the lists: DENY, ALLOW, or 0 if no prefix covers the source. */
static __always_inline __u32
action_of_prefix(const struct packet *packet)
{
	__u32 *action;

	if (packet->is_ipv4) {
		struct prefix4 key = { .length = 32, .address = packet->source.word[3] };

		action = bpf_map_lookup_elem(&prefixes4, &key);
	} else {
		struct prefix6 key = { .length = 128, .address = packet->source };

		action = bpf_map_lookup_elem(&prefixes6, &key);
	}
	return action != NULL ? *action : 0;
}

/*
 * Takes a token from the bucket of `key`; true if it has none. A bucket is stored as the time at
 * which it would be full again, so that one compare-and-swap changes it (GCRA).
 */
static __always_inline bool
is_over_limit(void *buckets, const void *key, __u64 interval, __u64 burst)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 *full_at = bpf_map_lookup_elem(buckets, key);
	int i;

	if (full_at == NULL) {
		__u64 first = now + interval;

		bpf_map_update_elem(buckets, key, &first, BPF_NOEXIST);
		return false;
	}
	for (i = 0; i < BUCKET_TRIES; i++) {
		__u64 old = *(volatile __u64 *)full_at;
		__u64 next = (old > now ? old : now) + interval;

		if (next - now > burst)
			return true;
		if (__sync_val_compare_and_swap(full_at, old, next) == old)
			return false;
	}
	return false;
}

static __always_inline int
check_limits(const struct packet *packet, const struct settings *current)
{
	__u64 interval = current->rate_interval_ns;

	if (interval != 0) {
		struct address source = packet->source;

		/* A sender owns the whole /64 of its address. */
		if (!packet->is_ipv4) {
			source.word[2] = 0;
			source.word[3] = 0;
		}
		if (is_over_limit(&rates, &source, interval, current->rate_burst_ns))
			return RATE_LIMIT;
	}
	interval = current->syn_interval_ns;
	if (interval != 0 && packet->is_syn) {
		struct server server = {
			.address = packet->destination,
			.port = packet->destination_port,
		};

		if (is_over_limit(&syns, &server, interval, current->syn_burst_ns))
			return SYN_FLOOD;
	}
	return PASSED;
}

static __always_inline int
judge(struct packet *packet, void *data, void *end, const struct settings *current)
{
	struct ethhdr *eth = data;
	void *network = eth + 1;
	__be16 ethertype;
	__u32 action;
	int i, verdict;

	if (network > end)
		return MALFORMED;
	if (is_link_control(eth))
		return PASSED;
	ethertype = eth->h_proto;
#pragma unroll
	for (i = 0; i < MAX_VLAN_TAGS; i++) {
		struct vlan_tag *tag = network;

		if (ethertype != bpf_htons(ETH_P_8021Q) && ethertype != bpf_htons(ETH_P_8021AD))
			break;
		network = tag + 1;
		if (network > end)
			return MALFORMED;
		ethertype = tag->ethertype;
	}
	if (ethertype == bpf_htons(ETH_P_IP))
		verdict = parse_ipv4(packet, network, end, current->drop_fragments);
	else if (ethertype == bpf_htons(ETH_P_IPV6))
		verdict = parse_ipv6(packet, network, end, current->drop_fragments);
	else if (ethertype == bpf_htons(ETH_P_ARP) || current->pass_non_ip)
		verdict = PASSED;
	else
		verdict = NOT_IP;
	if (verdict != UNDECIDED)
		return verdict;
	action = action_of_prefix(packet);
	if (action == PREFIX_DENY)
		return DENIED;
	if (action == PREFIX_ALLOW)
		return PASSED;
	return check_limits(packet, current);
}

static __always_inline void
count(__u32 entry, __u64 bytes)
{
	struct counter *counter = bpf_map_lookup_elem(&counters, &entry);

	if (counter != NULL) {
		counter->packets++;
		counter->bytes += bytes;
	}
}

static __always_inline bool
may_list_source(void)
{
	__u64 tick = bpf_ktime_get_coarse_ns();
	__u32 first = 0;
	struct insertions *now = bpf_map_lookup_elem(&insertions, &first);

	if (now == NULL)
		return false;
	if (now->tick != tick) {
		now->tick = tick;
		now->number = 0;
	}
	return now->number++ < NEW_SOURCES;
}

static __always_inline void
count_source(const struct packet *packet, __u64 bytes)
{
	__u64 *packets, one = 1;

	count(WITH_SOURCE, bytes);
	packets = bpf_map_lookup_elem(&sources, &packet->source);
	if (packets != NULL)
		__sync_fetch_and_add(packets, 1);
	else if (may_list_source())
		bpf_map_update_elem(&sources, &packet->source, &one, BPF_NOEXIST);
}

SEC("xdp")
int
pmdscope_xdp(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	const struct settings *current;
	struct packet packet = {};
	__u64 bytes = end - data;
	__u32 first = 0;
	int verdict;

	current = bpf_map_lookup_elem(&settings, &first);
	if (current == NULL)
		return XDP_PASS;
	verdict = judge(&packet, data, end, current);
	count(verdict, bytes);
	if (verdict == PASSED)
		return XDP_PASS;
	if (packet.has_source)
		count_source(&packet, bytes);
	return XDP_DROP;
}

char filter_license[] SEC("license") = "Dual BSD/GPL";
