/* SPDX-License-Identifier: (GPL-2.0-only OR BSD-3-Clause) */
/* Drops every packet unread: the remaining time is that of sender, wire and driver. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>

SEC("xdp")
int
drop_all(struct xdp_md *ctx)
{
	return XDP_DROP;
}

char drop_license[] SEC("license") = "Dual BSD/GPL";
