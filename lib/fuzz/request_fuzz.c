/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/* Any bytes as a message of a consumer: it is refused with a reason, or within the limits. */

#include <stdlib.h>
#include <string.h>

#include "capture_request.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void
require(bool condition)
{
	if (!condition)
		abort();
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct pmdscope_capture_spec spec;
	char why[112] = "";
	const int ret = pmdscope_capture_request_parse(data, size, &spec, why, sizeof(why));
	struct pmdscope_tee_change change;

	if (pmdscope_capture_change_parse(data, size, &change))
		require(size == sizeof(struct pmdscope_tee_change) && ret < 0);
	if (ret < 0) {
		require(why[0] != '\0' && memchr(why, '\0', sizeof(why)) != NULL);
		return 0;
	}
	require(ret == 0 && size <= PMDSCOPE_CAPTURE_REQUEST_MAX);
	require(spec.snaplen >= 1 && spec.snaplen <= 262144 && spec.sample >= 1);
	require(spec.ring_size >= PMDSCOPE_RING_MIN_SIZE &&
			spec.ring_size <= PMDSCOPE_RING_MAX_SIZE);
	require((spec.ring_size & (spec.ring_size - 1)) == 0 && spec.lease_ms >= 1);
	return 0;
}
