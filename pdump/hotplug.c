/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * An app that adds or removes a device notifies its secondary processes, and reverts the change if
 * one of them fails. Without a bus every device would fail here. This process only passes names of
 * devices to the app, so it accepts all: the EAL's own action is replaced before it can answer.
 */

#include <string.h>

#include <rte_common.h>
#include <rte_eal.h>

#define ACTION "eal_dev_mp_request"

/* Layout of struct eal_dev_mp_req in hotplug_mp.h of the EAL, which is not installed. */
struct request {
	int type;
	char devargs[128];
	int result;
};

int __wrap_eal_mp_dev_hotplug_init(void);

static int
welcome(const struct rte_mp_msg *msg, const void *peer)
{
	struct rte_mp_msg reply = { .len_param = msg->len_param };
	struct request *request = (struct request *)reply.param;

	memcpy(reply.name, msg->name, sizeof(reply.name));
	memcpy(reply.param, msg->param, sizeof(reply.param));
	/* With an unknown layout the request is returned unchanged, which means no failure. */
	if (msg->len_param == (int)sizeof(*request))
		request->result = 0;
	return rte_mp_reply(&reply, peer);
}

int
__wrap_eal_mp_dev_hotplug_init(void)
{
	return rte_mp_action_register(ACTION, welcome);
}
