/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef PDUMP_TEST_NUMBERED_H
#define PDUMP_TEST_NUMBERED_H

/* Packets that can be distinguished by each byte. */

#include <stdint.h>

/* Some are longer than the room in an mbuf. */
static inline uint16_t
numbered_len(uint64_t seq)
{
	return 60 + seq * 37 % 5000;
}

/* The number, little endian, then bytes derived from it. */
static inline uint8_t
numbered_byte(uint64_t seq, uint16_t i)
{
	return i < 8 ? (uint8_t)(seq >> 8 * i) : (uint8_t)(seq * 31 + i);
}

#endif /* PDUMP_TEST_NUMBERED_H */
