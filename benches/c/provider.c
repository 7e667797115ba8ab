/* A false provider behind a real ibv_context, in a shared object of its own.
 *
 * null: posting remembers one id and returns, so that what is measured is the caller.
 * mlx5-shaped: a 64-byte descriptor in a ring, big-endian fields, an array of ids, a doorbell record
 * and an eight-byte doorbell, a ring of completions. The shape is that of rdma-core's
 * providers/mlx5/qp.c and cq.c, without its fences and locks. The device's own part is one completion
 * for each signaled request.
 * blueflame: the same, and a request that is posted alone is copied to the doorbell whole, 64 bytes,
 * as libmlx5 does unless it is told not to (mlx5_bf_copy).
 * check: the same, and every request and piece goes into a digest.
 * recv: receives, likewise; the device's own part is that a message arrives for each at once. */
#include "provider.h"

#include <endian.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#if defined(__has_include)
#if __has_include(<valgrind/callgrind.h>)
#include <valgrind/callgrind.h>
#endif
#endif
#ifndef CALLGRIND_TOGGLE_COLLECT
#define CALLGRIND_TOGGLE_COLLECT
#define CALLGRIND_DUMP_STATS_AT(name) (void)(name)
#endif

#define likely(x) __builtin_expect(!!(x), 1)
#define unlikely(x) __builtin_expect(!!(x), 0)
#define barrier() __asm__ volatile("" ::: "memory")

enum { OWNER_HW = 0x80 };

struct ctrl {
	uint32_t opmod_idx_opcode, qpn_ds;
	uint8_t signature, rsvd[2], fm_ce_se;
	uint32_t imm;
};
struct raddr {
	uint64_t raddr;
	uint32_t rkey, reserved;
};
struct data {
	uint32_t byte_count, lkey;
	uint64_t addr;
};
struct cqe {
	uint8_t pad[44];
	uint32_t byte_cnt;
	uint64_t timestamp;
	uint32_t sop_drop_qpn;
	uint16_t wqe_counter;
	uint8_t signature, op_own;
};
_Static_assert(sizeof(struct cqe) == 64 && sizeof(struct ctrl) == 16, "as the device has them");

static const uint8_t opcodes[] = {
	[IBV_WR_RDMA_WRITE] = 0x08, [IBV_WR_RDMA_WRITE_WITH_IMM] = 0x09, [IBV_WR_SEND] = 0x0a,
	[IBV_WR_SEND_WITH_IMM] = 0x0b, [IBV_WR_RDMA_READ] = 0x10, [IBV_WR_ATOMIC_CMP_AND_SWP] = 0x11,
	[IBV_WR_ATOMIC_FETCH_AND_ADD] = 0x12,
};

static int null_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	(void)bad;
	((struct fp_cq *)qp->send_cq)->null_id = wr->wr_id;
	return 0;
}

static int null_poll_cq(struct ibv_cq *ibcq, int entries, struct ibv_wc *wc)
{
	struct fp_cq *cq = (struct fp_cq *)ibcq;

	(void)entries;
	wc->wr_id = cq->null_id + cq->null_offset;
	wc->status = IBV_WC_SUCCESS;
	wc->opcode = IBV_WC_SEND;
	wc->vendor_err = 0;
	wc->qp_num = cq->null_qpn;
	wc->wc_flags = 0;
	return 1;
}

static int empty_poll_cq(struct ibv_cq *cq, int entries, struct ibv_wc *wc)
{
	(void)cq, (void)entries, (void)wc;
	return 0;
}

static inline void complete(struct fp_qp *qp, uint16_t counter)
{
	struct fp_cq *cq = qp->completions;
	struct cqe *cqe = &cq->ring[cq->producer & cq->mask];
	/* The owner bit flips with each trip round the ring, as on the device. */
	uint8_t owner = (cq->producer & (cq->mask + 1)) ? 1 : 0;

	cqe->byte_cnt = 0;
	cqe->sop_drop_qpn = htobe32(qp->qp.qp_num);
	cqe->wqe_counter = htobe16(counter);
	cqe->op_own = owner;
	cq->producer++;
}

static int mlx5_post_send(struct ibv_qp *ibqp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fp_qp *qp = (struct fp_qp *)ibqp;
	struct ctrl *ctrl = NULL;
	uint32_t posted = 0, size = 0;
	int err = 0;

	for (; wr; posted++, wr = wr->next) {
		uint32_t index;
		char *seg;

		if (unlikely(wr->opcode >= sizeof(opcodes))) {
			err = EINVAL;
			*bad = wr;
			goto out;
		}
		if (unlikely(qp->head - qp->tail + posted >= qp->count)) {
			err = ENOMEM;
			*bad = wr;
			goto out;
		}
		if (unlikely(wr->num_sge > (int)qp->max_pieces)) {
			err = ENOMEM;
			*bad = wr;
			goto out;
		}
		index = qp->cur_post & (qp->count - 1);
		seg = qp->ring + ((size_t)index << 6);
		ctrl = (struct ctrl *)seg;
		*(uint32_t *)&ctrl->signature = 0;
		ctrl->imm = wr->opcode == IBV_WR_SEND_WITH_IMM || wr->opcode == IBV_WR_RDMA_WRITE_WITH_IMM
				    ? wr->imm_data : 0;
		ctrl->fm_ce_se = qp->signal_bits | (wr->send_flags & IBV_SEND_FENCE ? 0x40 : qp->fm_cache) |
				 (wr->send_flags & IBV_SEND_SIGNALED ? 0x08 : 0) |
				 (wr->send_flags & IBV_SEND_SOLICITED ? 0x02 : 0);
		qp->fm_cache = 0;
		seg += sizeof(*ctrl);
		size = 1;
		switch (wr->opcode) {
		case IBV_WR_RDMA_READ:
		case IBV_WR_RDMA_WRITE:
		case IBV_WR_RDMA_WRITE_WITH_IMM: {
			struct raddr *remote = (struct raddr *)seg;

			remote->raddr = htobe64(wr->wr.rdma.remote_addr);
			remote->rkey = htobe32(wr->wr.rdma.rkey);
			remote->reserved = 0;
			seg += sizeof(*remote);
			size += 1;
			break;
		}
		default:
			break;
		}
		if (unlikely(wr->send_flags & IBV_SEND_INLINE && wr->num_sge)) {
			char *to = seg + 4;

			for (int i = 0; i < wr->num_sge; i++) {
				memcpy(to, (void *)(uintptr_t)wr->sg_list[i].addr, wr->sg_list[i].length);
				to += wr->sg_list[i].length;
			}
			*(uint32_t *)seg = htobe32((uint32_t)(to - seg - 4) | 0x80000000u);
			size += (uint32_t)(to - seg + 15) / 16;
		} else {
			struct data *data = (struct data *)seg;

			for (int i = 0; i < wr->num_sge; i++) {
				if (likely(wr->sg_list[i].length)) {
					data->byte_count = htobe32(wr->sg_list[i].length);
					data->lkey = htobe32(wr->sg_list[i].lkey);
					data->addr = htobe64(wr->sg_list[i].addr);
					data++;
					size += 1;
				}
			}
		}
		ctrl->opmod_idx_opcode = htobe32(((qp->cur_post & 0xffff) << 8) | opcodes[wr->opcode]);
		ctrl->qpn_ds = htobe32(size | (ibqp->qp_num << 8));
		qp->ids[index] = wr->wr_id;
		qp->heads[index] = qp->head + posted;
		if (ctrl->fm_ce_se & 0x08)
			complete(qp, (uint16_t)qp->cur_post);
		qp->cur_post += (size * 16 + 63) / 64;
	}
out:
	if (likely(posted)) {
		qp->head += posted;
		barrier();
		qp->record[1] = htobe32(qp->cur_post & 0xffff);
		barrier();
		if (qp->blueflame && posted == 1) {
			const uint64_t *from = (const uint64_t *)ctrl;
			volatile uint64_t *to = qp->doorbell + qp->buf_flip;

			for (int i = 0; i < 8; i++)
				to[i] = from[i];
		} else {
			*(volatile uint64_t *)(qp->doorbell + qp->buf_flip) = *(uint64_t *)ctrl;
		}
		barrier();
		qp->buf_flip ^= 8;
	}
	return err;
}

static uint64_t mix(uint64_t digest, uint64_t word)
{
	digest ^= word + 0x9e3779b97f4a7c15u + (digest << 6) + (digest >> 2);
	return digest * 0xff51afd7ed558ccdu;
}

static int check_post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct fp_context *context = ((struct fp_qp *)qp)->owner;
	uint64_t digest = context->digest, shape = context->shape;

	for (struct ibv_send_wr *at = wr; at; at = at->next) {
		shape = mix(shape, qp->qp_num);
		shape = mix(shape, (uint64_t)at->opcode << 32 | at->send_flags);
		shape = mix(shape, (uint64_t)at->num_sge);
		for (int i = 0; i < at->num_sge; i++) {
			digest = mix(digest, at->sg_list[i].addr);
			shape = mix(shape, (uint64_t)at->sg_list[i].length << 32 | at->sg_list[i].lkey);
		}
	}
	context->digest = digest;
	context->shape = shape;
	return mlx5_post_send(qp, wr, bad);
}

static int mlx5_poll_cq(struct ibv_cq *ibcq, int entries, struct ibv_wc *wc)
{
	struct fp_cq *cq = (struct fp_cq *)ibcq;
	int polled = 0;

	for (; polled < entries; polled++, wc++) {
		struct cqe *cqe = &cq->ring[cq->consumer & cq->mask];
		uint8_t owner = (cq->consumer & (cq->mask + 1)) ? 1 : 0;
		uint32_t qpn, index;

		if (((volatile struct cqe *)cqe)->op_own != owner)
			break;
		cq->consumer++;
		barrier();
		qpn = be32toh(cqe->sop_drop_qpn) & 0xffffff;
		if (unlikely(!cq->current || cq->current->qp.qp_num != qpn))
			cq->current = cq->owner->qps[qpn & (MAX_QPS - 1)];
		index = be16toh(cqe->wqe_counter) & (cq->current->count - 1);
		wc->wc_flags = 0;
		wc->qp_num = qpn;
		wc->opcode = IBV_WC_SEND;
		wc->wr_id = cq->current->ids[index];
		wc->status = IBV_WC_SUCCESS;
		wc->vendor_err = 0;
		cq->current->tail = cq->current->heads[index] + 1;
	}
	if (polled)
		*(volatile uint32_t *)cq->record = htobe32(cq->consumer & 0xffffff);
	return polled;
}

static int mlx5_post_recv(struct ibv_qp *ibqp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fp_qp *qp = (struct fp_qp *)ibqp;
	uint32_t index = qp->recv_head & (qp->count - 1), posted = 0;
	int err = 0;

	for (; wr; posted++, wr = wr->next) {
		if (unlikely(qp->recv_head - qp->recv_tail + posted >= qp->count)) {
			err = ENOMEM;
			*bad = wr;
			break;
		}
		if (unlikely(wr->num_sge > (int)qp->max_pieces)) {
			err = EINVAL;
			*bad = wr;
			break;
		}
		struct data *data = (struct data *)(qp->recv_ring + ((size_t)index << 6));

		for (int i = 0; i < wr->num_sge; i++) {
			if (unlikely(!wr->sg_list[i].length))
				continue;
			data->byte_count = htobe32(wr->sg_list[i].length);
			data->lkey = htobe32(wr->sg_list[i].lkey);
			data->addr = htobe64(wr->sg_list[i].addr);
			data++;
		}
		if (wr->num_sge < (int)qp->max_pieces)
			*data = (struct data){ .lkey = htobe32(0x100) };
		qp->recv_ids[index] = wr->wr_id;
		complete(qp, (uint16_t)index);
		index = (index + 1) & (qp->count - 1);
	}
	if (likely(posted)) {
		qp->recv_head += posted;
		barrier();
		*(volatile uint32_t *)qp->recv_record = htobe32(qp->recv_head & 0xffff);
	}
	return err;
}

static int mlx5_poll_recv(struct ibv_cq *ibcq, int entries, struct ibv_wc *wc)
{
	struct fp_cq *cq = (struct fp_cq *)ibcq;
	int polled = 0;

	for (; polled < entries; polled++, wc++) {
		struct cqe *cqe = &cq->ring[cq->consumer & cq->mask];
		uint8_t owner = (cq->consumer & (cq->mask + 1)) ? 1 : 0;
		uint32_t qpn;

		if (((volatile struct cqe *)cqe)->op_own != owner)
			break;
		cq->consumer++;
		barrier();
		qpn = be32toh(cqe->sop_drop_qpn) & 0xffffff;
		if (unlikely(!cq->current || cq->current->qp.qp_num != qpn))
			cq->current = cq->owner->qps[qpn & (MAX_QPS - 1)];
		wc->wc_flags = 0;
		wc->qp_num = qpn;
		wc->opcode = IBV_WC_RECV;
		wc->wr_id = cq->current->recv_ids[be16toh(cqe->wqe_counter)];
		wc->status = IBV_WC_SUCCESS;
		wc->vendor_err = 0;
		wc->byte_len = be32toh(cqe->byte_cnt);
		wc->imm_data = 0;
		wc->src_qp = 0;
		cq->current->recv_tail++;
	}
	if (polled)
		*(volatile uint32_t *)cq->record = htobe32(cq->consumer & 0xffffff);
	return polled;
}

static int check_post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct fp_context *context = ((struct fp_qp *)qp)->owner;

	for (struct ibv_recv_wr *at = wr; at; at = at->next) {
		context->shape = mix(context->shape, (uint64_t)qp->qp_num << 32 | (uint32_t)at->num_sge);
		for (int i = 0; i < at->num_sge; i++) {
			const struct ibv_sge *sge = &at->sg_list[i];

			context->digest = mix(context->digest, sge->addr);
			context->shape = mix(context->shape, (uint64_t)sge->length << 32 | sge->lkey);
		}
	}
	return mlx5_post_recv(qp, wr, bad);
}

static void *aligned(size_t size)
{
	void *memory = NULL;

	if (posix_memalign(&memory, 64, (size + 63) & ~(size_t)63))
		abort();
	memset(memory, 0, (size + 63) & ~(size_t)63);
	return memory;
}

struct fp_context *fp_last;

struct ibv_context *fp_open(enum fp_mode mode)
{
	struct fp_context *context = aligned(sizeof(*context));

	fp_last = context;

	context->mode = mode;
	context->context.device = &context->device;
	switch (mode) {
	case FP_NULL:
		context->context.ops.post_send = null_post_send;
		context->context.ops.poll_cq = null_poll_cq;
		break;
	case FP_EMPTY:
		context->context.ops.post_send = null_post_send;
		context->context.ops.poll_cq = empty_poll_cq;
		break;
	case FP_MLX5:
	case FP_BLUEFLAME:
		context->context.ops.post_send = mlx5_post_send;
		context->context.ops.poll_cq = mlx5_poll_cq;
		break;
	case FP_CHECK:
		context->context.ops.post_send = check_post_send;
		context->context.ops.poll_cq = mlx5_poll_cq;
		break;
	case FP_RECV:
	case FP_RECV_CHECK:
		context->context.ops.post_recv = mode == FP_RECV ? mlx5_post_recv : check_post_recv;
		context->context.ops.poll_cq = mlx5_poll_recv;
		break;
	}
	return &context->context;
}

struct ibv_cq *fp_create_cq(struct ibv_context *ibcontext, uint32_t entries)
{
	struct fp_context *context = (struct fp_context *)ibcontext;
	struct fp_cq *cq = aligned(sizeof(*cq));

	cq->cq.context = ibcontext;
	cq->cq.cqe = (int)entries;
	cq->owner = context;
	cq->mask = entries - 1;
	cq->ring = aligned(entries * sizeof(*cq->ring));
	cq->record = cq->records;
	for (uint32_t i = 0; i < entries; i++)
		cq->ring[i].op_own = OWNER_HW;
	context->cqs[context->ncqs++] = cq;
	return &cq->cq;
}

struct ibv_qp *fp_create_qp(struct ibv_context *ibcontext, struct ibv_cq *cq, uint32_t entries)
{
	struct fp_context *context = (struct fp_context *)ibcontext;
	struct fp_qp *qp = aligned(sizeof(*qp));

	qp->qp.context = ibcontext;
	qp->qp.send_cq = qp->qp.recv_cq = cq;
	qp->qp.qp_type = IBV_QPT_RC;
	qp->qp.state = IBV_QPS_RTS;
	qp->qp.qp_num = context->nqps;
	qp->owner = context;
	qp->completions = (struct fp_cq *)cq;
	qp->blueflame = context->mode == FP_BLUEFLAME;
	qp->count = entries;
	qp->max_pieces = 4;
	qp->ring = aligned((size_t)entries * 64);
	qp->ids = aligned(entries * sizeof(*qp->ids));
	qp->heads = aligned(entries * sizeof(*qp->heads));
	qp->doorbell = context->doorbell;
	qp->recv_ring = aligned((size_t)entries * 64);
	qp->recv_ids = aligned(entries * sizeof(*qp->recv_ids));
	qp->completions->null_qpn = qp->qp.qp_num;
	context->qps[context->nqps++] = qp;
	return &qp->qp;
}

void fp_null_offset(struct ibv_cq *cq, uint32_t offset)
{
	((struct fp_cq *)cq)->null_offset = offset;
}

uint64_t fp_digest(struct ibv_context *context, uint64_t *shape)
{
	*shape = ((struct fp_context *)context)->shape;
	return ((struct fp_context *)context)->digest;
}

void fp_close(struct ibv_context *ibcontext)
{
	struct fp_context *context = (struct fp_context *)ibcontext;

	for (uint32_t i = 0; i < context->nqps; i++) {
		free(context->qps[i]->ring);
		free(context->qps[i]->ids);
		free(context->qps[i]->heads);
		free(context->qps[i]->recv_ring);
		free(context->qps[i]->recv_ids);
		free(context->qps[i]);
	}
	for (uint32_t i = 0; i < context->ncqs; i++) {
		free(context->cqs[i]->ring);
		free(context->cqs[i]);
	}
	free(context);
}

void fp_section(void)
{
	CALLGRIND_TOGGLE_COLLECT;
}

void fp_dump(const char *name)
{
	CALLGRIND_DUMP_STATS_AT(name);
}
