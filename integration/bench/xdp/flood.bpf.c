/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/*
 * Sends each packet that it is run on out of an interface: with BPF_F_TEST_XDP_LIVE_FRAMES the
 * kernel runs it on any number of packets, which makes it a generator at the speed of the
 * kernel.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/ip.h>
#include <bpf/bpf_helpers.h>

/* In this order, as the loader writes both. */
volatile const __u32 interface_index = 0;
volatile const __u32 is_forged = 0;

/* A different source in the same /16 for each packet; the id keeps the checksum right. */
static __always_inline void
forge_source(struct iphdr *ip)
{
	__u16 random = bpf_get_prandom_u32();

	((__u16 *)&ip->saddr)[1] = random;
	ip->id = ~random;
}

SEC("xdp")
int
flood(struct xdp_md *ctx)
{
	void *data = (void *)(long)ctx->data, *end = (void *)(long)ctx->data_end;
	struct iphdr *ip = data + sizeof(struct ethhdr);

	if (is_forged && (void *)(ip + 1) <= end)
		forge_source(ip);
	return bpf_redirect(interface_index, 0);
}

char flood_license[] SEC("license") = "Dual BSD/GPL";
