/* nanoverbs' send queue as an expert would write it in C: the same state, the same checks, a context
 * a request. Functions are inline, as those of rdma_verbs.h are; the state is behind a pointer. */
#ifndef NANOVERBS_TWIN_H
#define NANOVERBS_TWIN_H

#include "bench.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define INLINE static inline __attribute__((always_inline))
#define COLD __attribute__((cold, noinline))

enum twin_outcome { TWIN_DONE, TWIN_FAILED, TWIN_FLUSHED, TWIN_ABANDONED };
enum twin_error {
	TWIN_OK, TWIN_CHAIN_FULL, TWIN_TOO_MANY_SGES, TWIN_TOO_LONG, TWIN_WRONG_DOMAIN,
	TWIN_FULL, TWIN_NOT_CONNECTED, TWIN_CLOSED, TWIN_CHAIN_TOO_LONG
};

struct twin_meta {
	uint32_t len;
	uint8_t operation, end, credit, spare;
};

struct twin_slot {
	struct twin_meta meta;
	uint64_t context;
};

struct twin {
	/* One line. */
	struct ibv_qp *qp;
	int (*post)(struct ibv_qp *, struct ibv_send_wr *, struct ibv_send_wr **);
	struct twin_slot *slots;
	uint32_t head, taken, ended, limit;
	uint32_t serial, domain, max_message;
	uint16_t silent, period, chain, max_inline;
	uint8_t max_sges, max_read_sges, reads, max_reads;
	/* Cold. */
	uint32_t depth;
	enum twin_error error;
	bool closed, failed;
	uint32_t first_failure, status, vendor;
} __attribute__((aligned(64)));

struct twin_staging {
	struct ibv_send_wr wr[CHAIN];
	struct ibv_sge sge[CHAIN][1];
} __attribute__((aligned(64)));

struct twin_chain {
	struct twin *queue;
	struct twin_staging *staging;
	uint32_t next, sequence, silent, reads, last_read;
};

static inline struct twin_staging *twin_staging(void)
{
	struct twin_staging *staging = NULL;

	if (posix_memalign((void **)&staging, 64, sizeof(*staging)))
		abort();
	memset(staging, 0, sizeof(*staging));
	for (int i = 0; i < CHAIN; i++) {
		staging->wr[i].sg_list = staging->sge[i];
		staging->wr[i].next = i + 1 < CHAIN ? &staging->wr[i + 1] : NULL;
	}
	return staging;
}

static inline struct twin *twin_create(struct ibv_qp *qp, uint32_t domain)
{
	static uint32_t serials;
	struct twin *queue = NULL;

	if (posix_memalign((void **)&queue, 64, sizeof(*queue)))
		abort();
	memset(queue, 0, sizeof(*queue));
	if (posix_memalign((void **)&queue->slots, 64, DEPTH * sizeof(*queue->slots)))
		abort();
	memset(queue->slots, 0, DEPTH * sizeof(*queue->slots));
	queue->qp = qp;
	queue->post = qp->context->ops.post_send;
	queue->depth = queue->limit = DEPTH;
	queue->serial = ++serials << 1;
	queue->domain = domain;
	queue->max_message = 1u << 31;
	queue->period = DEPTH / 2;
	queue->chain = CHAIN;
	queue->max_sges = queue->max_read_sges = 1;
	queue->max_reads = 16;
	return queue;
}

static inline void twin_destroy(struct twin *queue)
{
	free(queue->slots);
	free(queue);
}

static COLD bool twin_no_room(struct twin *queue, uint32_t n)
{
	queue->error = queue->closed		   ? TWIN_CLOSED
		       : !queue->limit		   ? TWIN_NOT_CONNECTED
		       : n > CHAIN || n > queue->chain ? TWIN_CHAIN_TOO_LONG
						   : TWIN_FULL;
	return false;
}

INLINE bool twin_reserve(struct twin *queue, struct twin_staging *staging, uint32_t n,
			 struct twin_chain *chain)
{
	uint32_t in_flight = queue->head - queue->taken;
	uint32_t free_slots = queue->limit > in_flight ? queue->limit - in_flight : 0;

	if (unlikely(n > free_slots || n > CHAIN || n > queue->chain))
		return twin_no_room(queue, n);
	chain->queue = queue;
	chain->staging = staging;
	chain->next = CHAIN - n;
	chain->sequence = queue->head;
	chain->silent = queue->silent;
	chain->reads = 0;
	chain->last_read = 0;
	return true;
}

static COLD bool twin_refuse(struct twin *queue, uint32_t count, uint64_t total, uint32_t next)
{
	queue->error = next == CHAIN			    ? TWIN_CHAIN_FULL
		       : count > 1 || count > queue->max_sges ? TWIN_TOO_MANY_SGES
		       : total > queue->max_message	    ? TWIN_TOO_LONG
							    : TWIN_WRONG_DOMAIN;
	return false;
}

/* A SEND of one piece, which was checked against its region when it was made. An empty piece is left
 * out, since some devices read length 0 as 2 GiB. */
INLINE bool twin_push_send(struct twin_chain *chain, const struct request *r)
{
	struct twin *queue = chain->queue;
	uint32_t next = chain->next, sequence = chain->sequence;

	if (unlikely(next == CHAIN))
		return twin_refuse(queue, 0, 0, next);
	struct twin_slot *slot = &queue->slots[sequence % DEPTH];
	struct ibv_send_wr *wr = &chain->staging->wr[next];
	uint32_t count = 0, fault = 0;
	uint64_t total = 0;

	if (likely(r->length)) {
		struct ibv_sge *sge = chain->staging->sge[next];

		sge->addr = r->addr;
		sge->length = r->length;
		sge->lkey = r->lkey;
		fault = (r->tag ^ (queue->domain << 8)) & 0xffffff00u;
		count = 1;
		total = r->length;
	}
	if (unlikely(count > queue->max_sges || fault || total > queue->max_message))
		return twin_refuse(queue, count, total, next);
	slot->context = r->context;
	slot->meta = (struct twin_meta){ .len = (uint32_t)total, .operation = IBV_WR_SEND };
	wr->wr_id = (uint64_t)queue->serial << 32 | sequence;
	wr->num_sge = (int)count;
	wr->opcode = IBV_WR_SEND;
	wr->send_flags = r->flags;
	wr->imm_data = 0;
	chain->next = next + 1;
	chain->sequence = sequence + 1;
	chain->silent = r->flags & IBV_SEND_SIGNALED ? 0 : chain->silent + 1;
	return true;
}

static COLD int twin_not_taken(struct twin_chain *chain, uint32_t len, int code, struct ibv_send_wr *bad)
{
	struct twin_staging *staging = chain->staging;
	uint32_t first = chain->next - len;

	for (uint32_t i = 0; i < len; i++) {
		if (&staging->wr[first + i] == bad) {
			chain->queue->head = chain->sequence - len + i;
			return code;
		}
	}
	chain->queue->closed = true;
	chain->queue->limit = 0;
	return code;
}

static COLD void twin_cut(struct twin_chain *chain)
{
	chain->staging->wr[chain->next - 1].next = NULL;
}

static COLD void twin_mend(struct twin_chain *chain)
{
	chain->staging->wr[chain->next - 1].next = &chain->staging->wr[chain->next];
}

INLINE int twin_submit(struct twin_chain *chain)
{
	struct twin *queue = chain->queue;
	struct twin_staging *staging = chain->staging;
	struct ibv_send_wr *bad = NULL;
	uint32_t len = chain->sequence - queue->head;

	if (unlikely(!len))
		return 0;
	uint32_t first = chain->next - len;
	if (chain->last_read) {
		uint32_t behind = chain->next - chain->last_read;

		staging->wr[chain->last_read - 1].send_flags |= IBV_SEND_SIGNALED;
		if (chain->silent > behind)
			chain->silent = behind;
	}
	if (unlikely(chain->silent >= queue->period)) {
		staging->wr[chain->next - 1].send_flags |= IBV_SEND_SIGNALED;
		chain->silent = 0;
	}
	if (unlikely(queue->silent >= queue->period))
		staging->wr[first].send_flags |= IBV_SEND_SIGNALED;
	if (unlikely(chain->next != CHAIN))
		twin_cut(chain);
	queue->head = chain->sequence;
	queue->silent = (uint16_t)chain->silent;
	queue->reads = (uint8_t)(queue->reads + chain->reads);
	int code = queue->post(queue->qp, &staging->wr[first], &bad);
	if (unlikely(chain->next != CHAIN))
		twin_mend(chain);
	if (likely(code == 0))
		return 0;
	return twin_not_taken(chain, len, code, bad);
}

static COLD void twin_mark_failed(struct twin *queue, uint32_t sequence, const struct ibv_wc *wc)
{
	struct twin_slot *slot = &queue->slots[sequence % DEPTH];

	if (queue->failed)
		for (uint32_t at = queue->ended; at != sequence; at++)
			queue->slots[at % DEPTH].meta.end = TWIN_FLUSHED;
	slot->meta.end = wc->status == IBV_WC_WR_FLUSH_ERR ? TWIN_FLUSHED : TWIN_FAILED;
	queue->limit = 0;
	queue->closed = true;
	if (!queue->failed) {
		queue->failed = true;
		queue->first_failure = sequence;
		queue->status = wc->status;
		queue->vendor = wc->vendor_err;
	}
}

INLINE bool twin_retire(struct twin *queue, const struct ibv_wc *wc)
{
	if (unlikely((uint32_t)(wc->wr_id >> 32) != queue->serial))
		return false;
	uint32_t sequence = (uint32_t)wc->wr_id;
	if (unlikely(sequence - queue->ended >= queue->head - queue->ended))
		return false;
	if (unlikely(wc->status))
		twin_mark_failed(queue, sequence, wc);
	queue->ended = sequence + 1;
	return true;
}

INLINE bool twin_take(struct twin *queue, uint64_t *context, enum twin_outcome *outcome)
{
	uint32_t sequence = queue->taken;

	if (sequence == queue->ended)
		return false;
	struct twin_slot *slot = &queue->slots[sequence % DEPTH];
	*context = slot->context;
	*outcome = slot->meta.end;
	queue->taken = sequence + 1;
	queue->reads = (uint8_t)(queue->reads - slot->meta.credit);
	return true;
}

#endif
