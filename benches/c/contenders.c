/* The contenders in C, compiled once for each compiler and level of optimisation. */
#include "bench.h"
#include "twin.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <rdma/rdma_verbs.h>

#define NOINLINE __attribute__((noinline))

/* rdma_post_send, once a request: what rdma-core's header gives everybody. */

static void *plain_open(const struct setup *setup)
{
	struct setup *state = malloc(sizeof(*state));

	*state = *setup;
	return state;
}

static NOINLINE uint64_t post_send_run(void *opaque, uint64_t rounds)
{
	struct setup *s = opaque;
	struct ibv_wc wc[BATCH];
	uint64_t sum = 0;
	uint32_t at = s->at;

	while (rounds--) {
		struct rdma_cm_id *id = s->ids[at];
		const struct request *r = s->requests, *end = r + s->per_round;

		for (; r != end; r++) {
			if (rdma_post_send(id, (void *)(uintptr_t)r->context, (void *)(uintptr_t)r->addr,
					   r->length, s->mr, (int)r->flags))
				abort();
		}
		int polled = ibv_poll_cq(s->cq, (int)s->batch, wc);
		if (polled < 0)
			abort();
		for (int i = 0; i < polled; i++) {
			if (wc[i].status)
				abort();
			sum += wc[i].wr_id;
		}
		at = at + 1 == s->nqps ? 0 : at + 1;
	}
	s->at = at;
	return sum;
}

/* A chain linked beforehand, without a check. */

struct kept {
	uint32_t head, tail;
	uint64_t contexts[DEPTH];
};

struct chain_state {
	struct setup setup;
	struct ibv_send_wr wr[CHAIN];
	struct ibv_sge sge[CHAIN];
	/* For the variant that keeps a context a request, one for each queue pair. */
	struct kept *kept;
};

static void *chain_open(const struct setup *setup)
{
	struct chain_state *state = NULL;

	if (posix_memalign((void **)&state, 64, sizeof(*state)))
		abort();
	memset(state, 0, sizeof(*state));
	state->setup = *setup;
	for (uint32_t i = 0; i < setup->chain; i++) {
		state->wr[i].sg_list = &state->sge[i];
		state->wr[i].num_sge = 1;
		state->wr[i].opcode = IBV_WR_SEND;
		state->wr[i].next = i + 1 < setup->chain ? &state->wr[i + 1] : NULL;
	}
	state->kept = calloc(setup->nqps, sizeof(*state->kept));
	return state;
}

static void chain_close(void *opaque)
{
	struct chain_state *state = opaque;

	free(state->kept);
	free(state);
}

static NOINLINE uint64_t chain_run(void *opaque, uint64_t rounds)
{
	struct chain_state *s = opaque;
	struct ibv_wc wc[BATCH];
	struct ibv_send_wr *bad;
	uint64_t sum = 0;
	uint32_t at = s->setup.at;

	while (rounds--) {
		struct ibv_qp *qp = s->setup.qps[at];
		const struct request *r = s->setup.requests, *end = r + s->setup.per_round;

		while (r != end) {
			uint32_t n = s->setup.chain;

			for (uint32_t i = 0; i < n; i++, r++) {
				s->wr[i].wr_id = r->context;
				s->wr[i].send_flags = r->flags;
				s->sge[i].addr = r->addr;
				s->sge[i].length = r->length;
				s->sge[i].lkey = r->lkey;
			}
			if (ibv_post_send(qp, s->wr, &bad))
				abort();
		}
		int polled = ibv_poll_cq(s->setup.cq, (int)s->setup.batch, wc);
		if (polled < 0)
			abort();
		for (int i = 0; i < polled; i++) {
			if (wc[i].status)
				abort();
			sum += wc[i].wr_id;
		}
		at = at + 1 == s->setup.nqps ? 0 : at + 1;
	}
	s->setup.at = at;
	return sum;
}

static NOINLINE uint64_t chain_context_run(void *opaque, uint64_t rounds)
{
	struct chain_state *s = opaque;
	struct ibv_wc wc[BATCH];
	struct ibv_send_wr *bad;
	uint64_t sum = 0;
	uint32_t at = s->setup.at;

	while (rounds--) {
		struct ibv_qp *qp = s->setup.qps[at];
		struct kept *kept = &s->kept[at];
		const struct request *r = s->setup.requests, *end = r + s->setup.per_round;

		while (r != end) {
			uint32_t n = s->setup.chain, head = kept->head;

			for (uint32_t i = 0; i < n; i++, r++, head++) {
				kept->contexts[head % DEPTH] = r->context;
				s->wr[i].wr_id = head;
				s->wr[i].send_flags = r->flags;
				s->sge[i].addr = r->addr;
				s->sge[i].length = r->length;
				s->sge[i].lkey = r->lkey;
			}
			kept->head = head;
			if (ibv_post_send(qp, s->wr, &bad))
				abort();
		}
		int polled = ibv_poll_cq(s->setup.cq, (int)s->setup.batch, wc);
		if (polled < 0)
			abort();
		for (int i = 0; i < polled; i++) {
			if (wc[i].status)
				abort();
			uint32_t end_of = (uint32_t)wc[i].wr_id + 1, tail = kept->tail;
			for (; tail != end_of; tail++)
				sum += kept->contexts[tail % DEPTH];
			kept->tail = tail;
		}
		at = at + 1 == s->setup.nqps ? 0 : at + 1;
	}
	s->setup.at = at;
	return sum;
}

/* The twin: our own algorithm, the same checks, a context a request. */

struct twin_state {
	struct setup setup;
	struct twin **queues;
	struct twin_staging *staging;
};

static void *twin_open(const struct setup *setup)
{
	struct twin_state *state = malloc(sizeof(*state));

	state->setup = *setup;
	state->queues = calloc(setup->nqps, sizeof(*state->queues));
	for (uint32_t i = 0; i < setup->nqps; i++)
		state->queues[i] = twin_create(setup->qps[i], setup->domain);
	state->staging = twin_staging();
	return state;
}

static void twin_close(void *opaque)
{
	struct twin_state *state = opaque;

	for (uint32_t i = 0; i < state->setup.nqps; i++)
		twin_destroy(state->queues[i]);
	free(state->staging);
	free(state->queues);
	free(state);
}

static inline uint64_t twin_consume(struct twin_state *s, struct twin *queue, struct ibv_wc *wc)
{
	uint64_t sum = 0, context;
	enum twin_outcome outcome;
	int polled = ibv_poll_cq(s->setup.cq, (int)s->setup.batch, wc);

	if (polled < 0)
		abort();
	for (int i = 0; i < polled; i++) {
		if (!twin_retire(queue, &wc[i]))
			abort();
		while (twin_take(queue, &context, &outcome)) {
			if (outcome != TWIN_DONE)
				abort();
			sum += context;
		}
	}
	return sum;
}

static NOINLINE uint64_t twin_single_run(void *opaque, uint64_t rounds)
{
	struct twin_state *s = opaque;
	struct ibv_wc wc[BATCH];
	uint64_t sum = 0;
	uint32_t at = s->setup.at;

	while (rounds--) {
		struct twin *queue = s->queues[at];
		const struct request *r = s->setup.requests, *end = r + s->setup.per_round;

		for (; r != end; r++) {
			struct twin_chain chain;

			if (!twin_reserve(queue, s->staging, 1, &chain) || !twin_push_send(&chain, r) ||
			    twin_submit(&chain))
				abort();
		}
		sum += twin_consume(s, queue, wc);
		at = at + 1 == s->setup.nqps ? 0 : at + 1;
	}
	s->setup.at = at;
	return sum;
}

static NOINLINE uint64_t twin_chain_run(void *opaque, uint64_t rounds)
{
	struct twin_state *s = opaque;
	struct ibv_wc wc[BATCH];
	uint64_t sum = 0;
	uint32_t at = s->setup.at;

	while (rounds--) {
		struct twin *queue = s->queues[at];
		const struct request *r = s->setup.requests, *end = r + s->setup.per_round;

		while (r != end) {
			struct twin_chain chain;
			uint32_t n = s->setup.chain;

			if (!twin_reserve(queue, s->staging, n, &chain))
				abort();
			for (; n; n--, r++) {
				if (!twin_push_send(&chain, r))
					abort();
			}
			if (twin_submit(&chain))
				abort();
		}
		sum += twin_consume(s, queue, wc);
		at = at + 1 == s->setup.nqps ? 0 : at + 1;
	}
	s->setup.at = at;
	return sum;
}

/* Receives, without a check but with a context a request: rdma_post_recv, once a request, and a chain linked
 * beforehand. */

struct recv_state {
	struct setup setup;
	struct ibv_recv_wr wr[CHAIN];
	struct ibv_sge sge[CHAIN];
	struct kept *kept;
};

static void *recv_open(const struct setup *setup)
{
	struct recv_state *state = NULL;

	if (posix_memalign((void **)&state, 64, sizeof(*state)))
		abort();
	memset(state, 0, sizeof(*state));
	state->setup = *setup;
	for (uint32_t i = 0; i < setup->chain; i++) {
		state->wr[i].sg_list = &state->sge[i];
		state->wr[i].num_sge = 1;
		state->wr[i].next = i + 1 < setup->chain ? &state->wr[i + 1] : NULL;
	}
	state->kept = calloc(setup->nqps, sizeof(*state->kept));
	return state;
}

static void recv_close(void *opaque)
{
	struct recv_state *state = opaque;

	free(state->kept);
	free(state);
}

static uint64_t recv_take(const struct setup *s, struct kept *kept, struct ibv_wc *wc)
{
	uint64_t sum = 0;
	int polled = ibv_poll_cq(s->cq, (int)s->batch, wc);

	if (polled < 0)
		abort();
	for (int i = 0; i < polled; i++) {
		if (wc[i].status)
			abort();
		sum += kept->contexts[wc[i].wr_id % DEPTH];
	}
	return sum;
}

static NOINLINE uint64_t recv_single_run(void *opaque, uint64_t rounds)
{
	struct recv_state *s = opaque;
	struct ibv_wc wc[BATCH];
	uint64_t sum = 0;
	uint32_t at = s->setup.at;

	while (rounds--) {
		struct rdma_cm_id *id = s->setup.ids[at];
		struct kept *kept = &s->kept[at];
		const struct request *r = s->setup.requests, *end = r + s->setup.per_round;

		for (; r != end; r++, kept->head++) {
			kept->contexts[kept->head % DEPTH] = r->context;
			if (rdma_post_recv(id, (void *)(uintptr_t)kept->head, (void *)(uintptr_t)r->addr,
					   r->length, s->setup.mr))
				abort();
		}
		sum += recv_take(&s->setup, kept, wc);
		at = at + 1 == s->setup.nqps ? 0 : at + 1;
	}
	s->setup.at = at;
	return sum;
}

static NOINLINE uint64_t recv_chain_run(void *opaque, uint64_t rounds)
{
	struct recv_state *s = opaque;
	struct ibv_wc wc[BATCH];
	struct ibv_recv_wr *bad;
	uint64_t sum = 0;
	uint32_t at = s->setup.at;

	while (rounds--) {
		struct ibv_qp *qp = s->setup.qps[at];
		struct kept *kept = &s->kept[at];
		const struct request *r = s->setup.requests, *end = r + s->setup.per_round;

		while (r != end) {
			for (uint32_t i = 0; i < s->setup.chain; i++, r++, kept->head++) {
				kept->contexts[kept->head % DEPTH] = r->context;
				s->wr[i].wr_id = kept->head;
				s->sge[i].addr = r->addr;
				s->sge[i].length = r->length;
				s->sge[i].lkey = r->lkey;
			}
			if (ibv_post_recv(qp, s->wr, &bad))
				abort();
		}
		sum += recv_take(&s->setup, kept, wc);
		at = at + 1 == s->setup.nqps ? 0 : at + 1;
	}
	s->setup.at = at;
	return sum;
}

/* Consuming alone, between two calls of fp_section: posts as c_twin_chain does, uncounted. */

static NOINLINE uint64_t poll_run(void *opaque, uint64_t rounds)
{
	struct chain_state *s = opaque;
	struct ibv_wc wc[BATCH];
	struct ibv_send_wr *bad;
	uint64_t sum = 0;

	while (rounds--) {
		const struct request *r = s->setup.requests;

		for (uint32_t i = 0; i < s->setup.chain; i++, r++) {
			s->wr[i].wr_id = r->context;
			s->wr[i].send_flags = r->flags;
			s->sge[i].addr = r->addr;
			s->sge[i].length = r->length;
			s->sge[i].lkey = r->lkey;
		}
		if (ibv_post_send(s->setup.qps[0], s->wr, &bad))
			abort();
		s->setup.section();
		int polled = ibv_poll_cq(s->setup.cq, (int)s->setup.batch, wc);
		if (polled < 0)
			abort();
		for (int i = 0; i < polled; i++) {
			if (wc[i].status)
				abort();
			sum += wc[i].wr_id;
		}
		s->setup.section();
	}
	return sum;
}

static NOINLINE uint64_t twin_poll_run(void *opaque, uint64_t rounds)
{
	struct twin_state *s = opaque;
	struct ibv_wc wc[BATCH];
	uint64_t sum = 0;

	while (rounds--) {
		struct twin_chain chain;
		struct twin *queue = s->queues[0];
		const struct request *r = s->setup.requests;

		if (!twin_reserve(queue, s->staging, s->setup.chain, &chain))
			abort();
		for (uint32_t n = s->setup.chain; n; n--, r++) {
			if (!twin_push_send(&chain, r))
				abort();
		}
		if (twin_submit(&chain))
			abort();
		s->setup.section();
		sum += twin_consume(s, queue, wc);
		s->setup.section();
	}
	return sum;
}

/* A poll that finds nothing. */
static NOINLINE uint64_t empty_run(void *opaque, uint64_t rounds)
{
	struct setup *s = opaque;
	struct ibv_wc wc[BATCH];
	uint64_t sum = 0;

	while (rounds--) {
		int polled = ibv_poll_cq(s->cq, (int)s->batch, wc);
		if (polled < 0)
			abort();
		for (int i = 0; i < polled; i++) {
			if (wc[i].status)
				abort();
			sum += wc[i].wr_id;
		}
	}
	return sum;
}

const struct contender *contenders(size_t *count);
const struct contender *contenders(size_t *count)
{
	static const struct contender all[] = {
		{ "post_send", plain_open, post_send_run, free },
		{ "chain_bare", chain_open, chain_run, chain_close },
		{ "chain_context", chain_open, chain_context_run, chain_close },
		{ "twin_single", twin_open, twin_single_run, twin_close },
		{ "twin_chain", twin_open, twin_chain_run, twin_close },
		{ "poll", chain_open, poll_run, chain_close },
		{ "twin_poll", twin_open, twin_poll_run, twin_close },
		{ "empty_poll", plain_open, empty_run, free },
		{ "recv_single", recv_open, recv_single_run, recv_close },
		{ "recv_chain", recv_open, recv_chain_run, recv_close },
	};

	*count = sizeof(all) / sizeof(*all);
	return all;
}
