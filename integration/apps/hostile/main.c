/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright(c) 2026 The pmdscope authors
 */

/*
 * pmdscope-hostile-app [EAL options] -- MODE [MS]: an app without libpmdscope that loses no mbuf
 * and makes it hard to prove that: it overwrites its own structures with garbage and restores them,
 * moves mbufs, changes its mappings, destroys a pool, keeps mbufs in the places that drivers use,
 * or ends. It always holds NB_HELD mbufs.
 */

#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <rte_cycles.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_memzone.h>
#include <rte_ring.h>

#define NB_MBUFS 4095
#define NB_HELD 200
#define NB_MAPS 16
#define MAP_BYTES (1 << 20)
#define ROUND_US 500

static struct rte_mempool *pool;
static struct rte_mbuf *held[NB_HELD];
/* The same number moves between this array and the pool. */
static struct rte_mbuf *moving[NB_HELD];
static unsigned int after_ms;
static uint64_t seed = 88172645463325252;
static volatile sig_atomic_t stopped;

static void
stop(int signal)
{
	(void)signal;
	stopped = 1;
}

static uint64_t
random64(void)
{
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* Never a plausible value: pointers to unmapped memory, excessive numbers. */
static uint64_t
garbage(void)
{
	switch (random64() % 3) {
	case 0:
		return UINT64_MAX;
	case 1:
		return random64() | UINT64_C(0x8000000080000000);
	default:
		return UINT64_C(0xdead0000dead0000) + random64() % 4096;
	}
}

/* Overwrite a field temporarily. */
static void
spoil(void *field, size_t bytes)
{
	const uint64_t wrong = garbage();
	char right[sizeof(wrong)];

	memcpy(right, field, bytes);
	memcpy(field, &wrong, bytes);
	rte_compiler_barrier();
	rte_delay_us_block(random64() % ROUND_US);
	memcpy(field, right, bytes);
	rte_compiler_barrier();
	rte_delay_us_block(random64() % ROUND_US);
}

#define SPOIL(field) spoil((void *)(uintptr_t) & (field), sizeof(field))

static void
spoil_numbers(void)
{
	SPOIL(pool->size);
	SPOIL(pool->populated_size);
	SPOIL(pool->elt_size);
	SPOIL(pool->header_size);
	SPOIL(pool->trailer_size);
	SPOIL(pool->nb_mem_chunks);
}

static void
spoil_names(void)
{
	spoil(pool->name, 8);
}

/* Lists that end at unmapped addresses, and circular ones. */
static void
spoil_lists(void)
{
	struct rte_mempool_memhdr *chunk = STAILQ_FIRST(&pool->mem_list);

	SPOIL(STAILQ_FIRST(&pool->mem_list));
	SPOIL(STAILQ_FIRST(&pool->elt_list));
	SPOIL(chunk->len);
	STAILQ_NEXT(chunk, next) = chunk;
	rte_delay_us_block(random64() % ROUND_US);
	STAILQ_NEXT(chunk, next) = NULL;
}

static void
spoil_ring(void)
{
	struct rte_ring *ring = pool->pool_data;

	SPOIL(ring->prod.tail);
	SPOIL(ring->cons.tail);
	SPOIL(ring->size);
	SPOIL(ring->mask);
	SPOIL(ring->capacity);
}

static void
spoil_caches(void)
{
	SPOIL(pool->local_cache[0].len);
	SPOIL(pool->local_cache[1].len);
	SPOIL(pool->local_cache[0].objs[0]);
}

/* Mbufs that it holds: endless chains, and data at unmapped addresses. */
static void
spoil_mbufs(void)
{
	struct rte_mbuf *m = held[random64() % NB_HELD], *other = held[random64() % NB_HELD];

	SPOIL(m->next);
	SPOIL(m->buf_addr);
	SPOIL(m->refcnt);
	SPOIL(m->nb_segs);
	SPOIL(m->shinfo);
	SPOIL(m->pool);
	SPOIL(rte_mempool_get_header(m)->mp);
	m->next = other;
	other->next = m;
	rte_delay_us_block(random64() % ROUND_US);
	m->next = NULL;
	other->next = NULL;
}

/* Mappings are created and removed, full of pointers to mbufs. */
static void
change_maps(void)
{
	static uint64_t *maps[NB_MAPS];
	uint64_t **map = &maps[random64() % NB_MAPS];
	unsigned int i;

	if (*map != NULL) {
		munmap(*map, MAP_BYTES);
		*map = NULL;
		return;
	}
	*map = mmap(NULL, MAP_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (*map == MAP_FAILED)
		rte_exit(1, "mmap\n");
	for (i = 0; i < MAP_BYTES / sizeof(uint64_t); i += 64)
		(*map)[i] = (uintptr_t)held[i % NB_HELD];
}

/* Mbufs move from one table to the other and through the pool, a few at a time. */
static void
move_mbufs(void)
{
	unsigned int i;

	for (i = 0; i < NB_HELD; i++) {
		struct rte_mbuf *m = held[i];

		held[i] = moving[i];
		moving[i] = m;
		if (i % 4 != 0)
			continue;
		rte_pktmbuf_free(moving[i]);
		moving[i] = rte_pktmbuf_alloc(pool);
	}
}

/* A second pool, from which it holds mbufs, is created and destroyed repeatedly. */
static void
renew_pool(void)
{
	struct rte_mbuf *few[NB_HELD / 4];
	struct rte_mempool *second = rte_pktmbuf_pool_create("second", NB_MBUFS / 4, 64, 0,
			RTE_MBUF_DEFAULT_BUF_SIZE, (int)rte_socket_id());

	if (second == NULL || rte_pktmbuf_alloc_bulk(second, few, RTE_DIM(few)) != 0)
		rte_exit(1, "second pool: %s\n", rte_strerror(rte_errno));
	rte_delay_us_sleep(random64() % (20 * ROUND_US));
	rte_pktmbuf_free_bulk(few, RTE_DIM(few));
	rte_mempool_free(second);
}

static void
end_soon(void)
{
	rte_delay_us_sleep(after_ms * 1000);
	_exit(0);
}

/* Like a private driver: structure of the queue and table of mbufs from malloc(). */
struct own_queue {
	uint64_t counters[8];
	struct rte_mbuf **table;
};

/* Beginning of `struct rte_eth_dev_data` in all releases; it is not public. */
struct port_data {
	char name[RTE_ETH_NAME_MAX_LEN];
	void **rx_queues;
	void **tx_queues;
};

static struct rte_mbuf **
new_table(void)
{
	struct rte_mbuf **table = calloc(NB_HELD, sizeof(*table));

	if (table == NULL)
		rte_exit(1, "no memory\n");
	memcpy(table, moving, sizeof(moving));
	memset(moving, 0, sizeof(moving));
	return table;
}

/* Put a queue in malloc() memory in place of the RX queue of port 0, which is not started. */
static void
replace_queue(void)
{
	static const struct rte_eth_conf conf;
	const struct rte_memzone *zone = rte_memzone_lookup("rte_eth_dev_data");
	struct own_queue *queue = calloc(1, sizeof(*queue));
	struct port_data *port = NULL;
	uint16_t at;

	if (zone == NULL || queue == NULL || rte_eth_dev_configure(0, 1, 1, &conf) != 0 ||
			rte_eth_rx_queue_setup(0, 0, 64, SOCKET_ID_ANY, NULL, pool) != 0)
		rte_exit(1, "port 0: %s\n", rte_strerror(rte_errno));
	/* After the part that all ports share. */
	for (at = 0; at < 128 && port == NULL; at += sizeof(uint64_t))
		if (strcmp((char *)zone->addr + at, "net_null0") == 0)
			port = (struct port_data *)((char *)zone->addr + at);
	if (port == NULL)
		rte_exit(1, "port 0 is not net_null0\n");
	queue->table = new_table();
	port->rx_queues[0] = queue;
}

static void
keep_in_queue(void)
{
	static bool done;

	if (!done)
		replace_queue();
	done = true;
	rte_delay_us_sleep(ROUND_US);
}

/* Continues as another program, with the same process id. */
static void
become_another(void)
{
	rte_delay_us_sleep(after_ms * 1000);
	execlp("sleep", "sleep", "60", NULL);
	rte_exit(1, "exec\n");
}

static const struct {
	const char *name;
	void (*round)(void);
} modes[] = {
	{ "caches", spoil_caches },
	{ "end", end_soon },
	{ "exec", become_another },
	{ "lists", spoil_lists },
	{ "maps", change_maps },
	{ "mbufs", spoil_mbufs },
	{ "move", move_mbufs },
	{ "names", spoil_names },
	{ "numbers", spoil_numbers },
	{ "pools", renew_pool },
	{ "queue", keep_in_queue },
	{ "ring", spoil_ring },
};

int
main(int argc, char **argv)
{
	const int used = rte_eal_init(argc, argv);
	unsigned int mode;

	if (used < 0)
		rte_exit(1, "rte_eal_init: %s\n", rte_strerror(rte_errno));
	if (argc - used < 2)
		rte_exit(2, "give a mode\n");
	for (mode = 0; mode < RTE_DIM(modes); mode++)
		if (strcmp(modes[mode].name, argv[used + 1]) == 0)
			break;
	if (mode == RTE_DIM(modes))
		rte_exit(2, "no mode %s\n", argv[used + 1]);
	if (argc - used > 2)
		after_ms = (unsigned int)atoi(argv[used + 2]);
	signal(SIGTERM, stop);
	signal(SIGINT, stop);
	pool = rte_pktmbuf_pool_create("hostile", NB_MBUFS, 64, 0, RTE_MBUF_DEFAULT_BUF_SIZE,
			(int)rte_socket_id());
	if (pool == NULL || rte_pktmbuf_alloc_bulk(pool, held, NB_HELD) != 0 ||
			rte_pktmbuf_alloc_bulk(pool, moving, NB_HELD) != 0)
		rte_exit(1, "mbufs: %s\n", rte_strerror(rte_errno));
	puts("hostile from now on");
	fflush(stdout);
	while (!stopped)
		modes[mode].round();
	/* Inconsistent structures must not be cleaned up. */
	_exit(0);
}
