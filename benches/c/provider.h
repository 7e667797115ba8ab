/* The false provider's objects. */
#ifndef NANOVERBS_PROVIDER_H
#define NANOVERBS_PROVIDER_H

#include "bench.h"

enum { MAX_QPS = 8192 };

struct fp_context {
	struct ibv_context context;
	struct ibv_device device;
	enum fp_mode mode;
	uint32_t nqps, ncqs;
	uint32_t handed; /* queue pairs that verbs.c has handed out */
	struct fp_qp *qps[MAX_QPS];
	struct fp_cq *cqs[MAX_QPS];
	uint64_t digest, shape;
	uint64_t doorbell[16];
};

struct fp_cq {
	struct ibv_cq cq;
	uint64_t null_id;
	uint32_t null_offset, null_qpn;
	struct cqe *ring;
	uint32_t mask, consumer, producer;
	struct fp_qp *current;
	struct fp_context *owner;
	uint32_t *record;
	uint32_t records[2];
};

struct fp_qp {
	struct ibv_qp qp;
	char *ring;
	uint64_t *ids;
	uint32_t *heads;
	uint32_t head, tail, cur_post, count, max_pieces, buf_flip;
	uint8_t fm_cache, signal_bits;
	struct fp_cq *completions;
	uint64_t *doorbell;
	uint32_t record[2];
	int blueflame;
	struct fp_context *owner;
	/* Receives. */
	char *recv_ring;
	uint64_t *recv_ids;
	uint32_t recv_head, recv_tail, recv_record[1];
};

/* The context that was opened last. */
extern struct fp_context *fp_last;

#endif
