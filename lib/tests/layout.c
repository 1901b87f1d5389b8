/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Pins the layout that consumers are built against. capture/src/layout.rs pins the same numbers. */

#include <stddef.h>
#include <stdlib.h>

#include "pmdscope_ring.h"

#define AT(type, field, offset) \
	_Static_assert(offsetof(struct type, field) == (offset), #type "." #field " has moved")
#define SIZE(type, size) _Static_assert(sizeof(struct type) == (size), #type " has changed size")
#define VALUE(name, value) _Static_assert(name == (value), #name " has changed")

VALUE(PMDSCOPE_RING_MAGIC, 0x52444d50);
VALUE(PMDSCOPE_TEE_MAGIC, 0x54444d50);
VALUE(PMDSCOPE_RING_VERSION, 1);
VALUE(PMDSCOPE_RING_HDR_SIZE, 4096);
VALUE(PMDSCOPE_RING_ALIGN, 16);
VALUE(PMDSCOPE_RING_MIN_SIZE, 65536);
VALUE(PMDSCOPE_RING_MAX_SIZE, 67108864);
VALUE(PMDSCOPE_RING_PORTS, 32);
VALUE(PMDSCOPE_RING_F_GAPS, 1);
VALUE(PMDSCOPE_RING_F_PACKET_TSC, 2);
VALUE(PMDSCOPE_RING_F_RESAMPLE, 4);
VALUE(PMDSCOPE_RING_F_IN_BURST, 8);
VALUE(PMDSCOPE_RING_F_MAPPED, 16);
VALUE(PMDSCOPE_RECORD_PACKET, 1);
VALUE(PMDSCOPE_RECORD_SAMPLE, 3);
VALUE(PMDSCOPE_RECORD_PAD, 255);
VALUE(PMDSCOPE_RECORD_F_ATTEMPT, 1);
VALUE(PMDSCOPE_RECORD_F_VLAN, 2);
VALUE(PMDSCOPE_DIR_RX, 1);
VALUE(PMDSCOPE_DIR_TX, 2);
VALUE(PMDSCOPE_TEE_ANY, 65535);
VALUE(PMDSCOPE_TEE_MAX_SELECTS, 64);
VALUE(PMDSCOPE_TEE_MAX_INSNS, 512);
VALUE(PMDSCOPE_TEE_F_LEAKED, 1);
VALUE(PMDSCOPE_TEE_F_PACKET_TSC, 2);
VALUE(PMDSCOPE_TEE_F_HEADERS, 4);
VALUE(PMDSCOPE_TEE_SAMPLE, 16);
VALUE(PMDSCOPE_TEE_MAPPED, 17);
VALUE(PMDSCOPE_TEE_ACCEPT, 1);
VALUE(PMDSCOPE_TEE_REFUSE, 2);
VALUE(PMDSCOPE_TEE_RING, 3);
VALUE(PMDSCOPE_TEE_END, 4);

SIZE(pmdscope_anchor, 24);
AT(pmdscope_anchor, tsc, 0);
AT(pmdscope_anchor, realtime_ns, 8);
AT(pmdscope_anchor, raw_ns, 16);

SIZE(pmdscope_ring_hdr, 448);
AT(pmdscope_ring_hdr, magic, 0);
AT(pmdscope_ring_hdr, version, 4);
AT(pmdscope_ring_hdr, hdr_size, 6);
AT(pmdscope_ring_hdr, data_size, 8);
AT(pmdscope_ring_hdr, record_size, 12);
AT(pmdscope_ring_hdr, lcore, 14);
AT(pmdscope_ring_hdr, features, 16);
AT(pmdscope_ring_hdr, snaplen, 20);
AT(pmdscope_ring_hdr, anchor_seq, 64);
AT(pmdscope_ring_hdr, first, 72);
AT(pmdscope_ring_hdr, last, 96);
AT(pmdscope_ring_hdr, head, 128);
AT(pmdscope_ring_hdr, records, 136);
AT(pmdscope_ring_hdr, dropped, 144);
AT(pmdscope_ring_hdr, filtered, 152);
AT(pmdscope_ring_hdr, sampled_out, 160);
AT(pmdscope_ring_hdr, in_burst, 168);
AT(pmdscope_ring_hdr, port_dropped, 192);

SIZE(pmdscope_ring_tail, 8);
AT(pmdscope_ring_tail, tail, 0);

SIZE(pmdscope_record, 32);
AT(pmdscope_record, size, 0);
AT(pmdscope_record, type, 4);
AT(pmdscope_record, dir, 5);
AT(pmdscope_record, flags, 6);
AT(pmdscope_record, caplen, 8);
AT(pmdscope_record, len, 12);
AT(pmdscope_record, port, 16);
AT(pmdscope_record, queue, 18);
AT(pmdscope_record, gap, 20);
AT(pmdscope_record, tsc, 24);

SIZE(pmdscope_leak, 64);
AT(pmdscope_leak, mbuf, 0);
AT(pmdscope_leak, age_ms, 8);
AT(pmdscope_leak, site, 16);
AT(pmdscope_leak, kind, 20);
AT(pmdscope_leak, pool, 32);

SIZE(pmdscope_tee_select, 8);
AT(pmdscope_tee_select, port, 0);
AT(pmdscope_tee_select, queue, 2);
AT(pmdscope_tee_select, dirs, 4);
AT(pmdscope_tee_select, reserved, 6);

SIZE(pmdscope_insn, 8);
AT(pmdscope_insn, code, 0);
AT(pmdscope_insn, jt, 2);
AT(pmdscope_insn, jf, 3);
AT(pmdscope_insn, k, 4);

SIZE(pmdscope_tee_request, 32);
AT(pmdscope_tee_request, magic, 0);
AT(pmdscope_tee_request, version, 4);
AT(pmdscope_tee_request, hdr_size, 6);
AT(pmdscope_tee_request, snaplen, 8);
AT(pmdscope_tee_request, sample, 12);
AT(pmdscope_tee_request, ring_size, 16);
AT(pmdscope_tee_request, lease_ms, 20);
AT(pmdscope_tee_request, nb_selects, 24);
AT(pmdscope_tee_request, nb_insns, 26);
AT(pmdscope_tee_request, flags, 28);

SIZE(pmdscope_tee_change, 16);
AT(pmdscope_tee_change, magic, 0);
AT(pmdscope_tee_change, version, 4);
AT(pmdscope_tee_change, kind, 6);
AT(pmdscope_tee_change, value, 8);
AT(pmdscope_tee_change, reserved, 12);

SIZE(pmdscope_tee_message, 128);
AT(pmdscope_tee_message, magic, 0);
AT(pmdscope_tee_message, version, 4);
AT(pmdscope_tee_message, kind, 6);
AT(pmdscope_tee_message, value, 8);
AT(pmdscope_tee_message, ring_size, 12);
AT(pmdscope_tee_message, text, 16);

int
main(void)
{
	return EXIT_SUCCESS;
}
