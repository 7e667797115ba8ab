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
	uint8_t operation, spare, end, credit;
	uint32_t len;
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
	uint32_t head, taken, ended, due;
	uint32_t serial, domain, max_message;
	uint16_t limit, period, chain, max_inline;
	uint8_t max_sges, max_read_sges, reads, max_reads;
	/* Cold. */
	uint16_t depth;
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
	struct ibv_send_wr *first, *next, *end;
	struct ibv_sge *row;
	uint64_t high;
	uint32_t sequence, flags, reads, behind_read;
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
	queue->domain = domain << 8 | IBV_ACCESS_LOCAL_WRITE;
	queue->max_message = 1u << 31;
	queue->period = queue->due = DEPTH / 2;
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
	uint32_t head = queue->head;

	if (unlikely(n > CHAIN || n > queue->chain || head - queue->taken + n > queue->limit))
		return twin_no_room(queue, n);
	chain->queue = queue;
	chain->first = chain->next = &staging->wr[CHAIN - n];
	chain->row = staging->sge[CHAIN - n];
	chain->end = &staging->wr[CHAIN];
	chain->sequence = head;
	chain->flags = 0;
	chain->high = (uint64_t)queue->serial << 32;
	chain->reads = 0;
	chain->behind_read = 0;
	return true;
}

static COLD bool twin_refuse(struct twin *queue, const struct request *r)
{
	queue->error = !r				  ? TWIN_CHAIN_FULL
		       : r->length && !queue->max_sges	  ? TWIN_TOO_MANY_SGES
		       : r->length > queue->max_message	  ? TWIN_TOO_LONG
							  : TWIN_WRONG_DOMAIN;
	return false;
}

/* A SEND of one piece, which was checked against its region when it was made. An empty piece is left
 * out, since some devices read length 0 as 2 GiB. */
INLINE bool twin_push_send(struct twin_chain *chain, const struct request *r)
{
	struct twin *queue = chain->queue;
	struct ibv_send_wr *wr = chain->next;

	if (unlikely(wr == chain->end))
		return twin_refuse(queue, NULL);
	struct twin_slot *slot = &queue->slots[chain->sequence % DEPTH];
	uint32_t length = r->length, flags = r->flags;
	uint64_t packed = flags;
	int count = 0;

	slot->context = r->context;
	if (likely(length)) {
		struct ibv_sge *sge = chain->row;

		sge->addr = r->addr;
		sge->length = length;
		sge->lkey = r->lkey;
		if (unlikely((r->tag ^ queue->domain) & 0xffffff00u))
			return twin_refuse(queue, r);
		count = 1;
	}
	if (unlikely(count > queue->max_sges || length > queue->max_message))
		return twin_refuse(queue, r);
	slot->meta = (struct twin_meta){ 0 };
	wr->wr_id = chain->high | chain->sequence;
	wr->num_sge = count;
	wr->opcode = IBV_WR_SEND;
	/* Flags and an immediate of 0, in one store. */
	memcpy(&wr->send_flags, &packed, sizeof(packed));
	chain->next = wr + 1;
	chain->row += 1;
	chain->sequence++;
	chain->flags |= flags;
	return true;
}

INLINE bool twin_is_reached(uint32_t due, uint32_t sequence)
{
	return (int32_t)(sequence - due) >= 0;
}

static COLD uint32_t twin_behind_signaled(struct ibv_send_wr *first, uint32_t len, uint32_t end)
{
	uint32_t silent = 0;

	while (silent < len && !(first[len - 1 - silent].send_flags & IBV_SEND_SIGNALED))
		silent++;
	return end - silent;
}

static COLD uint32_t twin_end_silence(struct twin *queue, struct ibv_send_wr *first, uint32_t len,
				      uint32_t flags)
{
	uint32_t end = queue->head + len, loud = queue->due - queue->period;
	bool late = twin_is_reached(queue->due, queue->head);

	if (flags & IBV_SEND_SIGNALED)
		loud = twin_behind_signaled(first, len, end);
	if (late || end - loud >= queue->period) {
		first[len - 1].send_flags |= IBV_SEND_SIGNALED;
		loud = end;
	}
	if (late)
		first->send_flags |= IBV_SEND_SIGNALED;
	return loud + queue->period;
}

static COLD int twin_not_taken(struct twin *queue, struct ibv_send_wr *first, uint32_t len, int code,
			       struct ibv_send_wr *bad, uint32_t due)
{
	uint32_t start = queue->head - len;

	for (uint32_t i = 0; i < len; i++) {
		if (&first[i] == bad) {
			queue->head = start + i;
			for (uint32_t at = 0; at < i; at++)
				if (first[at].send_flags & IBV_SEND_SIGNALED)
					queue->due = start + at + 1 + queue->period;
			return code;
		}
	}
	queue->due = due;
	queue->closed = true;
	queue->limit = 0;
	return code;
}

static COLD int twin_post_short(struct twin *queue, struct ibv_send_wr *first, struct ibv_send_wr *last,
				struct ibv_send_wr **bad)
{
	last->next = NULL;
	int code = queue->post(queue->qp, first, bad);
	last->next = last + 1;
	return code;
}

INLINE int twin_submit(struct twin_chain *chain)
{
	struct twin *queue = chain->queue;
	struct ibv_send_wr *bad = NULL, *first = chain->first, *last = chain->next - 1;
	uint32_t len = (uint32_t)(chain->next - first), sequence = chain->sequence, due = queue->due;
	int code;

	if (unlikely(!len))
		return 0;
	if (chain->reads) {
		last[-(int)(sequence - chain->behind_read)].send_flags |= IBV_SEND_SIGNALED;
		chain->flags |= IBV_SEND_SIGNALED;
	}
	if (unlikely(twin_is_reached(due, sequence)))
		due = twin_end_silence(queue, first, len, chain->flags);
	else if (chain->flags & IBV_SEND_SIGNALED)
		due = queue->period + (likely(last->send_flags & IBV_SEND_SIGNALED)
					       ? sequence
					       : twin_behind_signaled(first, len, sequence));
	queue->head = sequence;
	queue->reads = (uint8_t)(queue->reads + chain->reads);
	if (likely(chain->next == chain->end))
		code = queue->post(queue->qp, first, &bad);
	else
		code = twin_post_short(queue, first, last, &bad);
	if (likely(code == 0)) {
		queue->due = due;
		return 0;
	}
	return twin_not_taken(queue, first, len, code, bad, due);
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
