/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PMDSCOPE_RING_H
#define PMDSCOPE_RING_H

/**
 * @file
 * The capture ring and the messages that hand it over: the contract between a
 * packet producer (libpmdscope in the app, or pmdscope-pdump) and a consumer
 * (pmdscope capture). docs/ring.md explains it; capture/src/layout.rs mirrors it.
 *
 * All integers are in host byte order: both sides run on one machine.
 * Needs no DPDK header.
 */

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** First word of a ring header, "PMDR". */
#define PMDSCOPE_RING_MAGIC 0x52444d50U
/** First word of a socket message, "PMDT". */
#define PMDSCOPE_TEE_MAGIC 0x54444d50U
/**
 * Version of ring layout and socket messages. Raised by each change that an old reader would
 * misread.
 */
#define PMDSCOPE_RING_VERSION 1

/** Bytes of the header in front of the ring data; the data starts on the next page. */
#define PMDSCOPE_RING_HDR_SIZE 4096U
/** Alignment of every record, bytes. */
#define PMDSCOPE_RING_ALIGN 16U
/** Limits of the data size of a ring, bytes; always a power of two. */
#define PMDSCOPE_RING_MIN_SIZE (1U << 16)
#define PMDSCOPE_RING_MAX_SIZE (1U << 26)
/** Ports whose drops a ring header counts one by one (RTE_MAX_ETHPORTS of DPDK's default build). */
#define PMDSCOPE_RING_PORTS 32U

/** A (TSC, wall clock, raw monotonic clock) triple taken at one moment. */
struct pmdscope_anchor {
	uint64_t tsc;	      /**< Time-stamp counter, cycles. */
	uint64_t realtime_ns; /**< CLOCK_REALTIME, nanoseconds. */
	uint64_t raw_ns;      /**< CLOCK_MONOTONIC_RAW, nanoseconds. */
};

/**
 * Header of the data memfd, at offset 0; read-only for the consumer.
 *
 * head, records and the counters only grow. The anchors are guarded by
 * anchor_seq: odd while they are written; read it before and after.
 */
struct pmdscope_ring_hdr {
	uint32_t magic;	      /**< PMDSCOPE_RING_MAGIC. */
	uint16_t version;     /**< PMDSCOPE_RING_VERSION. */
	uint16_t hdr_size;    /**< PMDSCOPE_RING_HDR_SIZE. */
	uint32_t data_size;   /**< Bytes of data behind the header, a power of two. */
	uint16_t record_size; /**< sizeof(struct pmdscope_record). */
	uint16_t lcore;	      /**< The lcore that produces. */
	uint32_t features;    /**< PMDSCOPE_RING_F_*. */
	uint32_t snaplen;     /**< Maximum bytes copied per packet; less than half of data_size. */
	uint8_t reserved0[40];

	/* offset 64: clock, written about once a second by the control thread */
	uint32_t anchor_seq; /**< Seqlock of the two anchors. */
	uint32_t reserved1;
	struct pmdscope_anchor first; /**< Taken when the library started. */
	struct pmdscope_anchor last;  /**< The latest. */
	uint8_t reserved2[8];

	/* offset 128: written by the producer once per burst */
	uint64_t head;	      /**< Bytes ever written; store-release after whole records. */
	uint64_t records;     /**< Packet records ever written. */
	uint64_t dropped;     /**< Packets not recorded: the ring was full or not yet created. */
	uint64_t filtered;    /**< Packets that the filter refused. */
	uint64_t sampled_out; /**< Packets that passed the filter, left out by 1-in-N sampling. */
	uint32_t in_burst;    /**< Not 0 while a burst is written (PMDSCOPE_RING_F_IN_BURST). */
	uint8_t reserved3[20];

	/* offset 192 */
	uint64_t port_dropped[PMDSCOPE_RING_PORTS]; /**< dropped, by port id. */
};

/** The producer counts drops per port in port_dropped and per gap in pmdscope_record::gap. */
#define PMDSCOPE_RING_F_GAPS (1U << 0)
/** pmdscope_record::tsc is of the packet itself; otherwise of its burst. */
#define PMDSCOPE_RING_F_PACKET_TSC (1U << 1)
/** The consumer may change the sampling with struct pmdscope_tee_change. */
#define PMDSCOPE_RING_F_RESAMPLE (1U << 2)
/**
 * The producer sets in_burst before it reads the time stamp of a burst, and clears it with release
 * after the head. While it is 0, all records with earlier time stamps are published.
 */
#define PMDSCOPE_RING_F_IN_BURST (1U << 3)
/**
 * The consumer confirms that it has mapped the ring, with PMDSCOPE_TEE_MAPPED. From then on the
 * producer reads the tail in each burst; until then it takes the tail over from time to time.
 */
#define PMDSCOPE_RING_F_MAPPED (1U << 4)

/** Content of the one-page tail memfd; the consumer writes it. */
struct pmdscope_ring_tail {
	uint64_t tail; /**< Bytes ever consumed; store-release; never above head. */
};

/** Record types. */
#define PMDSCOPE_RECORD_PACKET 1
/** A lost mbuf: struct pmdscope_leak is between header and bytes, and not part of caplen. */
#define PMDSCOPE_RECORD_LEAK 2
/** Packets behind it are sampled 1 in `len`; only size, type and len are valid. */
#define PMDSCOPE_RECORD_SAMPLE 3
/** Fills the ring up to its end; only size and type are valid. */
#define PMDSCOPE_RECORD_PAD 0xff

/** Direction of a packet as the app sees it. */
#define PMDSCOPE_DIR_RX 1
#define PMDSCOPE_DIR_TX 2

/** The app offered the packet to the NIC; whether the NIC took it is not known. */
#define PMDSCOPE_RECORD_F_ATTEMPT (1U << 0)
/** The VLAN tag was stripped by (or left to) the NIC and has been put back in the copy. */
#define PMDSCOPE_RECORD_F_VLAN (1U << 1)

/** One record; caplen bytes of packet follow, then padding up to size. */
struct pmdscope_record {
	uint32_t size;	 /**< Bytes of the record with header and padding. */
	uint8_t type;	 /**< PMDSCOPE_RECORD_*. */
	uint8_t dir;	 /**< PMDSCOPE_DIR_*. */
	uint16_t flags;	 /**< PMDSCOPE_RECORD_F_*. */
	uint32_t caplen; /**< Bytes copied. */
	uint32_t len;	 /**< Bytes of the packet on the wire, without FCS. */
	uint16_t port;	 /**< DPDK port id. */
	uint16_t queue;	 /**< Queue of that port. */
	uint32_t gap;	 /**< Packets of this port dropped since its last record in this ring. */
	uint64_t tsc; /**< TSC when the burst was seen, or copied (PMDSCOPE_RING_F_PACKET_TSC). */
};

/** How an mbuf was lost. */
#define PMDSCOPE_LEAK_LOST 1	/**< Neither held nor freed. */
#define PMDSCOPE_LEAK_TX_LOST 2 /**< Given to a NIC for sending, never freed. */
#define PMDSCOPE_LEAK_PINNED 3	/**< Kept by a lost clone. */

/** Longest name of a pool in a record, bytes with the NUL. */
#define PMDSCOPE_LEAK_POOL_SIZE 32U

/**
 * Details of a lost mbuf. The record around it has the last stamp: port, queue and dir
 * (PMDSCOPE_TEE_ANY, PMDSCOPE_TEE_ANY and 0 where the stamp has none), and tsc.
 */
struct pmdscope_leak {
	uint64_t mbuf;	 /**< Its address in the app. */
	uint64_t age_ms; /**< Time since it was last seen to move. */
	uint32_t site;	 /**< Site id, as in the telemetry table of sites. */
	uint8_t kind;	 /**< PMDSCOPE_LEAK_*. */
	uint8_t reserved[11];
	char pool[PMDSCOPE_LEAK_POOL_SIZE]; /**< Name of its pool, NUL-terminated. */
};

/** Any port, any queue in a struct pmdscope_tee_select. */
#define PMDSCOPE_TEE_ANY 0xffffU
/** Limits of a request. */
#define PMDSCOPE_TEE_MAX_SELECTS 64U
#define PMDSCOPE_TEE_MAX_INSNS 512U

/** Which queues to copy from. */
struct pmdscope_tee_select {
	uint16_t port;	   /**< Port id, or PMDSCOPE_TEE_ANY. */
	uint16_t queue;	   /**< Queue, or PMDSCOPE_TEE_ANY. */
	uint16_t dirs;	   /**< Bit set of PMDSCOPE_DIR_*. */
	uint16_t reserved; /**< 0. */
};

/** One classic BPF instruction, as libpcap's struct bpf_insn. */
struct pmdscope_insn {
	uint16_t code;
	uint8_t jt;
	uint8_t jf;
	uint32_t k;
};

/**
 * The first message of a consumer: one SOCK_SEQPACKET datagram of
 * this header, nb_selects struct pmdscope_tee_select, nb_insns struct pmdscope_insn.
 */
struct pmdscope_tee_request {
	uint32_t magic;	     /**< PMDSCOPE_TEE_MAGIC. */
	uint16_t version;    /**< PMDSCOPE_RING_VERSION. */
	uint16_t hdr_size;   /**< sizeof(struct pmdscope_tee_request). */
	uint32_t snaplen;    /**< 1 to 262144; 0 means 262144. */
	uint32_t sample;     /**< Keep 1 packet in this many, at random; 0 and 1 keep all. */
	uint32_t ring_size;  /**< Bytes per ring, a power of two; 0 means 1 MiB. */
	uint32_t lease_ms;   /**< Disarm if a full ring is not read for this long; 0 means 5000. */
	uint16_t nb_selects; /**< 1 to PMDSCOPE_TEE_MAX_SELECTS. */
	uint16_t nb_insns;   /**< 0 (everything) to PMDSCOPE_TEE_MAX_INSNS. */
	uint32_t flags;	     /**< One of PMDSCOPE_TEE_F_*, or 0. */
};

/** Send lost mbufs instead of traffic: at most `sample` (0 means 8) for each site, then END. */
#define PMDSCOPE_TEE_F_LEAKED (1U << 0)
/** Read the TSC for every packet and not once per burst; of traffic only. */
#define PMDSCOPE_TEE_F_PACKET_TSC (1U << 1)
/**
 * Keep only the headers that name the conversation of a packet: 96 bytes or a few more, and all
 * bytes up to `snaplen` of a packet that may be a tunnel.
 */
#define PMDSCOPE_TEE_F_HEADERS (1U << 2)

/** Kind of a message of a consumer: keep 1 packet in `value` from now on; 0 and 1 keep all. */
#define PMDSCOPE_TEE_SAMPLE 16

/**
 * Kind of a message of a consumer: it has mapped the ring of lcore `value`, tail included. Once for
 * each ring with PMDSCOPE_RING_F_MAPPED. The producer then seals the tail memfd against holes and
 * new writable mappings.
 */
#define PMDSCOPE_TEE_MAPPED 17

/**
 * Any later message of a consumer. PMDSCOPE_TEE_SAMPLE only if every ring has
 * PMDSCOPE_RING_F_RESAMPLE: each lcore applies it from its next burst on, and writes a record of
 * type PMDSCOPE_RECORD_SAMPLE before the first packet that it keeps by the new rule.
 */
struct pmdscope_tee_change {
	uint32_t magic;	   /**< PMDSCOPE_TEE_MAGIC. */
	uint16_t version;  /**< PMDSCOPE_RING_VERSION. */
	uint16_t kind;	   /**< PMDSCOPE_TEE_SAMPLE or PMDSCOPE_TEE_MAPPED. */
	uint32_t value;	   /**< Depends on kind. */
	uint32_t reserved; /**< 0. */
};

/** Kinds of messages to a consumer. */
#define PMDSCOPE_TEE_ACCEPT 1 /**< The capture is armed; value is the session id. */
#define PMDSCOPE_TEE_REFUSE 2 /**< The request was refused; value is a positive errno. */
#define PMDSCOPE_TEE_RING 3   /**< One ring: value is its lcore; carries the data and tail fds. */
#define PMDSCOPE_TEE_END 4    /**< The session was ended by the producer; value as in REFUSE. */

/**
 * Message to the consumer: one datagram.
 *
 * The answer to a request is ACCEPT or REFUSE. RING messages follow ACCEPT, one for every lcore
 * that polls; another one follows whenever a further lcore starts to poll. END, or end-of-file when
 * the app has ended, closes the session.
 */
struct pmdscope_tee_message {
	uint32_t magic;	  /**< PMDSCOPE_TEE_MAGIC. */
	uint16_t version; /**< PMDSCOPE_RING_VERSION. */
	uint16_t kind;	  /**< PMDSCOPE_TEE_*. */
	uint32_t value;	  /**< Depends on kind. */
	/**
	 * Of REFUSE with ENOMEM: the largest ring_size for which the app has memory, bytes, or 0 if
	 * there is none. Otherwise 0.
	 */
	uint32_t ring_size;
	char text[112]; /**< Human-readable reason, NUL-terminated, may be empty. */
};

#ifdef __cplusplus
}
#endif

#endif /* PMDSCOPE_RING_H */
