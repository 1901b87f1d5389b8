/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends UDP to ports 53 and 54 to queue 2, all else to queues 0 and 1: does at the sender what the
 * ntuple filters and the RSS table of a NIC do. For tests on veth, which has neither.
 */
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/pkt_cls.h>
#include <linux/udp.h>

#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define BYPASSED_QUEUE 2

SEC("tc")
int
steer(struct __sk_buff *packet)
{
	void *data = (void *)(long)packet->data;
	void *end = (void *)(long)packet->data_end;
	struct ethhdr *ethernet = data;
	struct iphdr *ip = (void *)(ethernet + 1);
	struct udphdr *udp = (void *)(ip + 1);
	__u32 queue = bpf_get_prandom_u32() & 1;

	if ((void *)(udp + 1) <= end && ethernet->h_proto == bpf_htons(ETH_P_IP) &&
			ip->protocol == IPPROTO_UDP &&
			(udp->dest == bpf_htons(53) || udp->dest == bpf_htons(54)))
		queue = BYPASSED_QUEUE;
	packet->queue_mapping = queue + 1;
	return TC_ACT_OK;
}

char steer_license[] SEC("license") = "Dual BSD/GPL";
