/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <rte_common.h>

#include "capture_request.h"

#define SNAPLEN_MAX 262144U
#define RING_SIZE_DEFAULT (1U << 20)
#define LEASE_MS_DEFAULT 5000U
/* Lost mbufs per site. */
#define LEAKED_DEFAULT 8

struct reason {
	char *text;
	size_t size;
};

static __rte_format_printf(3, 4) int refuse(
		const struct reason *why, int error, const char *format, ...)
{
	va_list ap;

	va_start(ap, format);
	vsnprintf(why->text, why->size, format, ap);
	va_end(ap);
	return error;
}

static int
check_frame(const struct pmdscope_tee_request *req, size_t len, const struct reason *why)
{
	size_t expected;

	if (req->magic != PMDSCOPE_TEE_MAGIC)
		return refuse(why, -EINVAL, "magic: %#x, expected %#x", req->magic,
				PMDSCOPE_TEE_MAGIC);
	if (req->version != PMDSCOPE_RING_VERSION)
		return refuse(why, -EPROTONOSUPPORT, "version: %u, the app speaks %u", req->version,
				PMDSCOPE_RING_VERSION);
	if (req->hdr_size != sizeof(*req))
		return refuse(why, -EINVAL, "hdr_size: %u, expected %zu", req->hdr_size,
				sizeof(*req));
	if (req->nb_selects == 0 || req->nb_selects > PMDSCOPE_TEE_MAX_SELECTS)
		return refuse(why, -EINVAL, "nb_selects: %u, must be 1 to %u", req->nb_selects,
				PMDSCOPE_TEE_MAX_SELECTS);
	if (req->nb_insns > PMDSCOPE_TEE_MAX_INSNS)
		return refuse(why, -EINVAL, "nb_insns: %u, at most %u", req->nb_insns,
				PMDSCOPE_TEE_MAX_INSNS);
	expected = sizeof(*req) + req->nb_selects * sizeof(struct pmdscope_tee_select) +
		   req->nb_insns * sizeof(struct pmdscope_insn);
	if (len != expected)
		return refuse(why, -EMSGSIZE, "%zu bytes, %zu by nb_selects and nb_insns", len,
				expected);
	return 0;
}

static int
check_settings(const struct pmdscope_tee_request *req, const struct reason *why)
{
	if (req->snaplen > SNAPLEN_MAX)
		return refuse(why, -EINVAL, "snaplen: %u, at most %u", req->snaplen, SNAPLEN_MAX);
	if (req->ring_size != 0 && (!rte_is_power_of_2(req->ring_size) ||
						   req->ring_size < PMDSCOPE_RING_MIN_SIZE ||
						   req->ring_size > PMDSCOPE_RING_MAX_SIZE))
		return refuse(why, -EINVAL, "ring_size: %u, must be a power of two, %u to %u",
				req->ring_size, PMDSCOPE_RING_MIN_SIZE, PMDSCOPE_RING_MAX_SIZE);
	if (req->flags != 0 && req->flags != PMDSCOPE_TEE_F_LEAKED &&
			req->flags != PMDSCOPE_TEE_F_PACKET_TSC &&
			req->flags != PMDSCOPE_TEE_F_HEADERS)
		return refuse(why, -EINVAL, "flags: %#x, not known", req->flags);
	return 0;
}

static int
check_select(const struct pmdscope_tee_select *select, unsigned int i, const struct reason *why)
{
	if (select->port != PMDSCOPE_TEE_ANY && select->port >= RTE_MAX_ETHPORTS)
		return refuse(why, -EINVAL, "selects[%u].port: %u, the app's limit is %u", i,
				select->port, RTE_MAX_ETHPORTS - 1);
	if (select->queue != PMDSCOPE_TEE_ANY && select->queue >= RTE_MAX_QUEUES_PER_PORT)
		return refuse(why, -EINVAL, "selects[%u].queue: %u, the app's limit is %u", i,
				select->queue, RTE_MAX_QUEUES_PER_PORT - 1);
	if (select->dirs == 0 || (select->dirs & ~(PMDSCOPE_DIR_RX | PMDSCOPE_DIR_TX)) != 0)
		return refuse(why, -EINVAL, "selects[%u].dirs: %#x, must be 1 to 3", i,
				select->dirs);
	if (select->reserved != 0)
		return refuse(why, -EINVAL, "selects[%u].reserved: %u, must be 0", i,
				select->reserved);
	return 0;
}

/* Includes ports and queues that do not exist yet. */
static void
apply_select(const struct pmdscope_tee_select *select, struct pmdscope_capture_spec *spec)
{
	const bool any_port = select->port == PMDSCOPE_TEE_ANY;
	const bool any_queue = select->queue == PMDSCOPE_TEE_ANY;
	const unsigned int port_end = any_port ? RTE_MAX_ETHPORTS : select->port + 1U;
	const unsigned int queue_end = any_queue ? RTE_MAX_QUEUES_PER_PORT : select->queue + 1U;
	unsigned int port, queue;

	for (port = any_port ? 0 : select->port; port < port_end; port++)
		for (queue = any_queue ? 0 : select->queue; queue < queue_end; queue++)
			spec->dirs[port][queue] |= (uint8_t)select->dirs;
}

int
pmdscope_capture_request_parse(const void *buf, size_t len, struct pmdscope_capture_spec *spec,
		char *text, size_t text_size)
{
	const struct reason why = { .text = text, .size = text_size };
	const uint8_t *p = buf;
	struct pmdscope_tee_select select;
	struct pmdscope_tee_request req;
	unsigned int i;
	int ret;

	if (len < sizeof(req))
		return refuse(&why, -EMSGSIZE, "%zu bytes, a request has at least %zu", len,
				sizeof(req));
	memcpy(&req, p, sizeof(req));
	ret = check_frame(&req, len, &why);
	if (ret == 0)
		ret = check_settings(&req, &why);
	if (ret < 0)
		return ret;
	p += sizeof(req);

	memset(spec->dirs, 0, sizeof(spec->dirs));
	for (i = 0; i < req.nb_selects; i++, p += sizeof(select)) {
		memcpy(&select, p, sizeof(select));
		ret = check_select(&select, i, &why);
		if (ret < 0)
			return ret;
		apply_select(&select, spec);
	}
	spec->snaplen = req.snaplen != 0 ? req.snaplen : SNAPLEN_MAX;
	spec->leaked = (req.flags & PMDSCOPE_TEE_F_LEAKED) != 0;
	spec->packet_tsc = (req.flags & PMDSCOPE_TEE_F_PACKET_TSC) != 0;
	spec->headers = (req.flags & PMDSCOPE_TEE_F_HEADERS) != 0;
	spec->sample = RTE_MAX(req.sample, 1U);
	if (spec->leaked && req.sample == 0)
		spec->sample = LEAKED_DEFAULT;
	spec->ring_size = req.ring_size != 0 ? req.ring_size : RING_SIZE_DEFAULT;
	spec->lease_ms = req.lease_ms != 0 ? req.lease_ms : LEASE_MS_DEFAULT;
	return pmdscope_filter_load(&spec->filter, p, req.nb_insns, text, text_size);
}

bool
pmdscope_capture_change_parse(const void *buf, size_t len, struct pmdscope_tee_change *change)
{
	if (len != sizeof(*change))
		return false;
	memcpy(change, buf, sizeof(*change));
	return change->magic == PMDSCOPE_TEE_MAGIC && change->version == PMDSCOPE_RING_VERSION &&
	       (change->kind == PMDSCOPE_TEE_SAMPLE || change->kind == PMDSCOPE_TEE_MAPPED) &&
	       change->reserved == 0;
}
