/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Takes the CPU from a thread for a time that it measures itself: as the function of an IPI, and in the
 * NET_RX softirq of a packet. For tests of what traces them.
 */
#include <linux/bpf.h>

#include <bpf/bpf_helpers.h>

/* More calls of the clock than fit into the longest time. */
#define MOST_STEPS (1 << 20)

struct spin {
	__u64 tid;     /* Only while this thread has the CPU. */
	__u64 ns;      /* How long each time. */
	__u64 count;   /* How often it has taken the CPU, */
	__u64 took_ns; /* and for how long altogether. */
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct spin);
} spins SEC(".maps");

static long
is_over(__u32 step, __u64 *end)
{
	(void)step;
	return bpf_ktime_get_ns() >= *end;
}

static __always_inline void
spin(void)
{
	const __u32 first = 0;
	struct spin *spin = bpf_map_lookup_elem(&spins, &first);
	__u64 begin, end;

	if (!spin || (__u32)bpf_get_current_pid_tgid() != spin->tid)
		return;
	begin = bpf_ktime_get_ns();
	end = begin + spin->ns;
	bpf_loop(MOST_STEPS, is_over, &end, 0);
	spin->took_ns += bpf_ktime_get_ns() - begin;
	spin->count++;
}

SEC("raw_tp")
int
spin_in_ipi(void *context)
{
	(void)context;
	spin();
	return 0;
}

SEC("xdp")
int
spin_in_softirq(struct xdp_md *packet)
{
	(void)packet;
	spin();
	return XDP_DROP;
}

char spin_license[] SEC("license") = "Dual BSD/GPL";
