/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#ifndef MESSAGE_H
#define MESSAGE_H

/* The struct msghdr of a message with its control data: the sizes of GSO and GRO. */

#include <netinet/in.h>
#include <netinet/udp.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#include "datagram.h"

/* Room for one number, with the alignment that the macros of cmsg(3) require. */
union message_control {
	struct cmsghdr header;
	uint8_t bytes[CMSG_SPACE(sizeof(int))];
};

/* Describe a message to sendmsg() and the like. The data that it refers to must remain valid. */
static inline void
message_describe(struct msghdr *msg, struct iovec *iov, union message_control *control,
		const struct datagram *datagram)
{
	const uint16_t segment = (uint16_t)datagram->segment;

	*iov = (struct iovec){ .iov_base = datagram->data, .iov_len = datagram->size };
	*msg = (struct msghdr){
		.msg_name = datagram->peer,
		.msg_namelen = datagram->peer_size,
		.msg_iov = iov,
		.msg_iovlen = 1,
	};
	if (datagram->size <= datagram->segment)
		return;
	msg->msg_control = control;
	msg->msg_controllen = CMSG_SPACE(sizeof(segment));
	control->header.cmsg_level = SOL_UDP;
	control->header.cmsg_type = UDP_SEGMENT;
	control->header.cmsg_len = CMSG_LEN(sizeof(segment));
	memcpy(CMSG_DATA(&control->header), &segment, sizeof(segment));
}

/* Payload bytes per packet of a received message, from its control data. */
static inline uint32_t
message_segment(const struct cmsghdr *header, uint32_t size)
{
	int segment;

	if (header == NULL || header->cmsg_level != SOL_UDP || header->cmsg_type != UDP_GRO)
		return size > 0 ? size : 1;
	memcpy(&segment, CMSG_DATA(header), sizeof(segment));
	return segment > 0 ? (uint32_t)segment : size;
}

#endif /* MESSAGE_H */
