/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gives selected flows of one RX queue to the AF_XDP socket of that queue, the rest to the kernel.
 * `pmdscope bypass up` writes the settings into the object file; the driver net_af_xdp loads and attaches it.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define MAX_FLOWS 16
#define MAX_VLAN_TAGS 2
#define IP_FRAGMENT 0x3fff /* More Fragments, or an offset. */

struct flow {
	__u16 port; /* Of the destination, in host order. */
	__u8 protocol;
	__u8 reserved;
};

struct settings {
	__u32 queue;
	__u32 flows;
	struct flow flow[MAX_FLOWS];
};

/* Not zero, so that it is stored in the file. */
volatile struct settings bypass_settings = { .queue = 0xffffffff };

/* Verdicts on packets; pmdscope reads their counts by number. */
enum verdict {
	VERDICT_KERNEL,	     /* Not of a selected flow. */
	VERDICT_BYPASSED,    /* Given to the socket, which may have no room for them. */
	VERDICT_NO_SOCKET,   /* Of a selected flow, but no app polls the queue: to the kernel. */
	VERDICT_OTHER_QUEUE, /* Of a selected flow, but on another queue: to the kernel. */
	VERDICTS,
};

/* The driver finds the map by this name, and stores its socket at the number of the queue. */
struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, __u32);
} xsks_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, VERDICTS);
	__type(key, __u32);
	__type(value, __u64);
} bypass_counts SEC(".maps");

struct ports {
	__be16 source;
	__be16 destination;
};

struct vlan {
	__be16 tag;
	__be16 type;
};

static __always_inline int
is_selected(void *data, void *end)
{
	struct ethhdr *ethernet = data;
	struct ports *ports;
	struct ipv6hdr *ip6;
	struct iphdr *ip4;
	__u8 protocol;
	__be16 type;
	void *next;
	__u32 i;

	if ((void *)(ethernet + 1) > end)
		return 0;
	type = ethernet->h_proto;
	next = ethernet + 1;
#pragma unroll
	for (i = 0; i < MAX_VLAN_TAGS; i++) {
		struct vlan *vlan = next;

		if (type != bpf_htons(ETH_P_8021Q) && type != bpf_htons(ETH_P_8021AD))
			break;
		if ((void *)(vlan + 1) > end)
			return 0;
		type = vlan->type;
		next = vlan + 1;
	}
	if (type == bpf_htons(ETH_P_IP)) {
		ip4 = next;
		/* Fragments all go to the kernel, as only the first one has ports. */
		if ((void *)(ip4 + 1) > end || ip4->ihl < 5 ||
				ip4->frag_off & bpf_htons(IP_FRAGMENT))
			return 0;
		protocol = ip4->protocol;
		next += ip4->ihl * 4;
	} else if (type == bpf_htons(ETH_P_IPV6)) {
		ip6 = next;
		if ((void *)(ip6 + 1) > end)
			return 0;
		protocol = ip6->nexthdr;
		next = ip6 + 1;
	} else {
		return 0;
	}
	ports = next;
	if ((void *)(ports + 1) > end)
		return 0;
#pragma unroll
	for (i = 0; i < MAX_FLOWS; i++) {
		if (i >= bypass_settings.flows)
			break;
		if (bypass_settings.flow[i].protocol == protocol &&
				bypass_settings.flow[i].port == bpf_ntohs(ports->destination))
			return 1;
	}
	return 0;
}

static __always_inline void
count(__u32 verdict)
{
	__u64 *packets = bpf_map_lookup_elem(&bypass_counts, &verdict);

	if (packets)
		(*packets)++;
}

SEC("xdp")
int
pmdscope_bypass(struct xdp_md *context)
{
	void *data = (void *)(long)context->data;
	void *end = (void *)(long)context->data_end;
	__u32 queue = context->rx_queue_index;

	if (!is_selected(data, end)) {
		count(VERDICT_KERNEL);
		return XDP_PASS;
	}
	if (queue != bypass_settings.queue) {
		count(VERDICT_OTHER_QUEUE);
		return XDP_PASS;
	}
	if (!bpf_map_lookup_elem(&xsks_map, &queue)) {
		count(VERDICT_NO_SOCKET);
		return XDP_PASS;
	}
	count(VERDICT_BYPASSED);
	return bpf_redirect_map(&xsks_map, queue, XDP_PASS);
}

char bypass_license[] SEC("license") = "Dual BSD/GPL";
