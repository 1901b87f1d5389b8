/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * From DPDK 25.11 on, an app that enables or disables a capture asks its secondary processes to do
 * the same, and waits for their answers before it answers the one that wanted it. This process has
 * no ports, so there is nothing for it to do.
 */

#include <string.h>

#include <rte_common.h>
#include <rte_eal.h>
#include <rte_errno.h>

#include "attach.h"

#define ACTION "mp_pdump"

/* Beginning of request and response of rte_pdump.c. */
struct head {
	uint16_t version;
	uint16_t operation;
};

struct response {
	struct head head;
	int32_t error;
};

static int
agree(const struct rte_mp_msg *msg, const void *peer)
{
	struct response response = { 0 };
	struct rte_mp_msg reply = { .len_param = sizeof(response) };

	if (msg->len_param >= (int)sizeof(response.head))
		memcpy(&response.head, msg->param, sizeof(response.head));
	memcpy(reply.name, msg->name, sizeof(reply.name));
	memcpy(reply.param, &response, sizeof(response));
	return rte_mp_reply(&reply, peer);
}

int
pdump_action_register(struct failure *failure)
{
	if (rte_mp_action_register(ACTION, agree) == 0)
		return 0;
	return failure_set(failure, rte_errno, "cannot answer the app's requests: %s",
			rte_strerror(rte_errno));
}
