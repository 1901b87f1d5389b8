/* SPDX-License-Identifier: BSD-3-Clause */

/*
 * Lists the offsets of the fields of DPDK's structures. It is compiled to assembly and never run,
 * so that a cross-compiler can be used; each line of the list is a comment in the assembly:
 * 	@ STRUCTURE MEMBER OFFSET
 * generate.sh makes table.txt of it. With PUBLIC_HEADERS_ONLY, structures whose headers DPDK does
 * not install are left out.
 */

#include <stddef.h>

#include <rte_config.h>
#include <rte_version.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_memzone.h>
#include <rte_ring.h>
#include <rte_stack.h>
#include <rte_tailq.h>
#include <rte_ethdev.h>

#ifndef PUBLIC_HEADERS_ONLY
#include <ethdev_driver.h>
#include <ethdev_private.h>
#include <eal_private.h>
#include <eal_memcfg.h>
#include <malloc_elem.h>
#include <malloc_heap.h>
#endif

#define VALUE(structure, member, value) \
	__asm__ volatile("\n@ " #structure " " #member " %c0" : : "i"(value))
#define FIELD(structure, member) VALUE(structure, member, offsetof(struct structure, member))
#define SIZE(structure) VALUE(structure, sizeof, sizeof(struct structure))
/* Identifies the build of an installed DPDK, for the test that compares it with the table. */
#ifdef PUBLIC_HEADERS_ONLY
#define BUILD() VALUE(rte_config, cache_line, RTE_CACHE_LINE_SIZE)
#else
#define BUILD()
#endif
#define ELEMENTS(structure, member) \
	VALUE(structure, member.len, RTE_DIM(((struct structure *)NULL)->member))

void
pools(void)
{
	BUILD();
	FIELD(rte_mempool, name);
	FIELD(rte_mempool, pool_data);
	FIELD(rte_mempool, pool_config);
	FIELD(rte_mempool, mz);
	FIELD(rte_mempool, flags);
	FIELD(rte_mempool, socket_id);
	FIELD(rte_mempool, size);
	FIELD(rte_mempool, cache_size);
	FIELD(rte_mempool, elt_size);
	FIELD(rte_mempool, header_size);
	FIELD(rte_mempool, trailer_size);
	FIELD(rte_mempool, private_data_size);
	FIELD(rte_mempool, ops_index);
	FIELD(rte_mempool, local_cache);
	FIELD(rte_mempool, populated_size);
	FIELD(rte_mempool, elt_list);
	FIELD(rte_mempool, nb_mem_chunks);
	FIELD(rte_mempool, mem_list);
#ifdef HAVE_MEMPOOL_STATS
	/* The length of this array depends on RTE_MAX_LCORE: the structure ends after it. */
	VALUE(rte_mempool, sizeof, offsetof(struct rte_mempool, stats));
	VALUE(rte_mempool, stats.each, sizeof(((struct rte_mempool *)NULL)->stats[0]));
	VALUE(rte_mempool, stats.more,
			RTE_DIM(((struct rte_mempool *)NULL)->stats) - RTE_MAX_LCORE);
#else
	SIZE(rte_mempool);
	VALUE(rte_mempool, stats.each, 0);
	VALUE(rte_mempool, stats.more, 0);
#endif

	FIELD(rte_mempool_cache, size);
	FIELD(rte_mempool_cache, len);
	FIELD(rte_mempool_cache, objs);
	SIZE(rte_mempool_cache);

	FIELD(rte_mempool_memhdr, next);
	FIELD(rte_mempool_memhdr, mp);
	FIELD(rte_mempool_memhdr, addr);
	FIELD(rte_mempool_memhdr, iova);
	FIELD(rte_mempool_memhdr, len);
	SIZE(rte_mempool_memhdr);

	FIELD(rte_mempool_objhdr, next);
	FIELD(rte_mempool_objhdr, mp);
	FIELD(rte_mempool_objhdr, iova);
	SIZE(rte_mempool_objhdr);

	FIELD(rte_mempool_ops, name);
	SIZE(rte_mempool_ops);
	FIELD(rte_mempool_ops_table, num_ops);
	FIELD(rte_mempool_ops_table, ops);
	ELEMENTS(rte_mempool_ops_table, ops);
	SIZE(rte_mempool_ops_table);
}

void
rings(void)
{
	FIELD(rte_ring, name);
	FIELD(rte_ring, flags);
	FIELD(rte_ring, memzone);
	FIELD(rte_ring, size);
	FIELD(rte_ring, mask);
	FIELD(rte_ring, capacity);
	FIELD(rte_ring, prod.head);
	FIELD(rte_ring, prod.tail);
	FIELD(rte_ring, prod.sync_type);
	FIELD(rte_ring, cons.head);
	FIELD(rte_ring, cons.tail);
	FIELD(rte_ring, cons.sync_type);
	SIZE(rte_ring);

	FIELD(rte_stack, name);
	FIELD(rte_stack, memzone);
	FIELD(rte_stack, capacity);
	FIELD(rte_stack, flags);
	FIELD(rte_stack, stack_std.len);
	FIELD(rte_stack, stack_std.objs);
	FIELD(rte_stack, stack_lf.used.head.top);
	FIELD(rte_stack, stack_lf.used.head.cnt);
	FIELD(rte_stack, stack_lf.used.len);
	FIELD(rte_stack, stack_lf.elems);
	FIELD(rte_stack_lf_elem, data);
	FIELD(rte_stack_lf_elem, next);
	SIZE(rte_stack_lf_elem);
}

void
mbufs(void)
{
	FIELD(rte_mbuf, buf_addr);
	FIELD(rte_mbuf, data_off);
	FIELD(rte_mbuf, refcnt);
	FIELD(rte_mbuf, nb_segs);
	FIELD(rte_mbuf, port);
	FIELD(rte_mbuf, ol_flags);
	FIELD(rte_mbuf, packet_type);
	FIELD(rte_mbuf, pkt_len);
	FIELD(rte_mbuf, data_len);
	FIELD(rte_mbuf, buf_len);
	FIELD(rte_mbuf, pool);
	FIELD(rte_mbuf, next);
	FIELD(rte_mbuf, shinfo);
	FIELD(rte_mbuf, priv_size);
	SIZE(rte_mbuf);

	FIELD(rte_mbuf_ext_shared_info, free_cb);
	FIELD(rte_mbuf_ext_shared_info, fcb_opaque);
	FIELD(rte_mbuf_ext_shared_info, refcnt);
	SIZE(rte_mbuf_ext_shared_info);

	FIELD(rte_pktmbuf_pool_private, mbuf_data_room_size);
	FIELD(rte_pktmbuf_pool_private, mbuf_priv_size);
	FIELD(rte_pktmbuf_pool_private, flags);
	SIZE(rte_pktmbuf_pool_private);
}

void
memory(void)
{
	FIELD(rte_memzone, name);
	FIELD(rte_memzone, iova);
	FIELD(rte_memzone, addr);
	FIELD(rte_memzone, len);
	FIELD(rte_memzone, hugepage_sz);
	FIELD(rte_memzone, socket_id);
	FIELD(rte_memzone, flags);
	SIZE(rte_memzone);

	FIELD(rte_fbarray, name);
	FIELD(rte_fbarray, count);
	FIELD(rte_fbarray, len);
	FIELD(rte_fbarray, elt_sz);
	FIELD(rte_fbarray, data);
	SIZE(rte_fbarray);

	FIELD(rte_tailq_entry, next);
	FIELD(rte_tailq_entry, data);
	FIELD(rte_tailq_head, tailq_head);
	FIELD(rte_tailq_head, name);
	SIZE(rte_tailq_head);

#ifndef PUBLIC_HEADERS_ONLY
	FIELD(malloc_elem, heap);
	FIELD(malloc_elem, prev);
	FIELD(malloc_elem, next);
	FIELD(malloc_elem, msl);
	/* A bit field in most releases; it begins behind msl. */
	VALUE(malloc_elem, state, offsetof(struct malloc_elem, pad) - sizeof(uint32_t));
	FIELD(malloc_elem, pad);
	FIELD(malloc_elem, size);
	SIZE(malloc_elem);

	FIELD(malloc_heap, first);
	FIELD(malloc_heap, last);
	FIELD(malloc_heap, alloc_count);
	FIELD(malloc_heap, socket_id);
	FIELD(malloc_heap, total_size);
	FIELD(malloc_heap, name);
	SIZE(malloc_heap);

	FIELD(rte_memseg_list, base_va);
	FIELD(rte_memseg_list, page_sz);
	FIELD(rte_memseg_list, socket_id);
	FIELD(rte_memseg_list, len);
	FIELD(rte_memseg_list, external);
	SIZE(rte_memseg_list);

	FIELD(rte_mem_config, magic);
	FIELD(rte_mem_config, version);
	FIELD(rte_mem_config, memzones);
	FIELD(rte_mem_config, memsegs);
	ELEMENTS(rte_mem_config, memsegs);
	FIELD(rte_mem_config, tailq_head);
	ELEMENTS(rte_mem_config, tailq_head);
	FIELD(rte_mem_config, malloc_heaps);
	ELEMENTS(rte_mem_config, malloc_heaps);
	FIELD(rte_mem_config, mem_cfg_addr);
	SIZE(rte_mem_config);

	FIELD(lcore_config, thread_id);
	FIELD(lcore_config, core_id);
	FIELD(lcore_config, core_role);
	FIELD(lcore_config, cpuset);
	SIZE(lcore_config);
#endif
}

void
ports(void)
{
	FIELD(rte_eth_fp_ops, rx_pkt_burst);
	FIELD(rte_eth_fp_ops, rxq.data);
	FIELD(rte_eth_fp_ops, tx_pkt_burst);
	FIELD(rte_eth_fp_ops, txq.data);
	SIZE(rte_eth_fp_ops);

#ifndef PUBLIC_HEADERS_ONLY
	FIELD(rte_eth_dev, data);
	FIELD(rte_eth_dev, process_private);
	FIELD(rte_eth_dev, post_rx_burst_cbs);
	FIELD(rte_eth_dev, state);
	SIZE(rte_eth_dev);

	FIELD(rte_eth_dev_data, name);
	FIELD(rte_eth_dev_data, rx_queues);
	FIELD(rte_eth_dev_data, tx_queues);
	FIELD(rte_eth_dev_data, nb_rx_queues);
	FIELD(rte_eth_dev_data, nb_tx_queues);
	FIELD(rte_eth_dev_data, dev_private);
	FIELD(rte_eth_dev_data, port_id);
	FIELD(rte_eth_dev_data, rx_queue_state);
	FIELD(rte_eth_dev_data, tx_queue_state);
	ELEMENTS(rte_eth_dev_data, rx_queue_state);
	SIZE(rte_eth_dev_data);

	/*
	 * The type has a name since 22.11. The data in front of the array is shorter than a cache
	 * line, to which the elements are aligned.
	 */
#if RTE_VERSION < RTE_VERSION_NUM(22, 11, 0, 0)
	VALUE(eth_dev_shared, data, RTE_CACHE_LINE_SIZE);
#else
	FIELD(eth_dev_shared, data);
#endif
#endif
}
