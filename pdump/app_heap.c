/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

#include <stdint.h>
#include <string.h>

#include "app_heap.h"

/* Type of a request of the EAL to the app: allocate hugepages. */
#define REQUEST_ALLOC 0
/* Anything shorter is not worth it, or a header. */
#define CLEAR_MIN 65536U

struct malloc_mp_req;
int __real_request_to_primary(struct malloc_mp_req *request);
int __wrap_request_to_primary(struct malloc_mp_req *request);
void *__real_memset(void *addr, int byte, size_t len);
void *__wrap_memset(void *addr, int byte, size_t len);

static bool may_grow;

/*
 * Only of this thread: when pages are given back to the system, another one clears them, and there
 * is something in them by then.
 */
static __thread struct {
	uint8_t *addr;
	size_t len;
} cleared;

int
__wrap_request_to_primary(struct malloc_mp_req *request)
{
	int type;

	memcpy(&type, request, sizeof(type));
	return type == REQUEST_ALLOC && !may_grow ? -1 : __real_request_to_primary(request);
}

void
app_heap_may_grow(bool may)
{
	may_grow = may;
}

void *
__wrap_memset(void *addr, int byte, size_t len)
{
	uint8_t *begin = addr, *end = begin + len, *zero = cleared.addr,
		*zero_end = zero + cleared.len;

	if (cleared.len == 0 || byte != 0 || len < CLEAR_MIN || zero < begin || zero_end > end)
		return __real_memset(addr, byte, len);
	cleared.len = 0;
	__real_memset(begin, 0, (size_t)(zero - begin));
	__real_memset(zero_end, 0, (size_t)(end - zero_end));
	return addr;
}

void
app_heap_clear_early(void *addr, size_t len)
{
	__real_memset(addr, 0, len);
	cleared.addr = addr;
	cleared.len = len;
}
