/* What provider, contenders and the program that measures them agree on. */
#ifndef NANOVERBS_BENCH_H
#define NANOVERBS_BENCH_H

#include <stddef.h>
#include <stdint.h>
#include <infiniband/verbs.h>

struct rdma_cm_id;

/* Slots of a send queue, requests in the longest chain, completions of the longest poll. */
enum { DEPTH = 128, CHAIN = 32, BATCH = 32 };

/* One request as the application has it: loaded anew each time from memory that no compiler knows. */
struct request {
	uint64_t addr;
	uint32_t length;
	uint32_t lkey;
	uint32_t tag;	/* protection domain << 8 | access rights */
	uint32_t flags; /* IBV_SEND_SIGNALED or 0 */
	uint64_t context;
};

/* What a contender is given. A round posts `per_round` requests in chains of `chain` on one queue
 * pair, polls once, and goes to the next queue pair. */
struct setup {
	struct ibv_qp **qps;
	struct rdma_cm_id **ids; /* for rdma_post_send: only `qp` is set */
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	const struct request *requests;
	uint32_t nqps;
	uint32_t per_round;
	uint32_t chain;
	uint32_t batch; /* completions asked for in a poll, at most BATCH */
	uint32_t domain;
	uint32_t at; /* the queue pair whose turn it is, kept from run to run */
	void (*section)(void); /* fp_section */
};

/* `run` returns the sum of the contexts that came out; a contender that keeps one context for a whole
 * round returns that of the signaled requests only. */
struct contender {
	const char *name;
	void *(*open)(const struct setup *setup);
	uint64_t (*run)(void *state, uint64_t rounds);
	void (*close)(void *state);
};

/* The provider. Modes: what posting and polling do. */
enum fp_mode { FP_NULL, FP_MLX5, FP_BLUEFLAME, FP_CHECK, FP_EMPTY, FP_RECV, FP_RECV_CHECK };

struct ibv_context *fp_open(enum fp_mode mode);
struct ibv_cq *fp_create_cq(struct ibv_context *context, uint32_t entries);
struct ibv_qp *fp_create_qp(struct ibv_context *context, struct ibv_cq *cq, uint32_t entries);
/* In mode null: the completion of a poll names the first request of the last post, plus this. */
void fp_null_offset(struct ibv_cq *cq, uint32_t offset);
/* Of everything that was posted in mode check, ids left out: of the addresses, and of all the rest. */
uint64_t fp_digest(struct ibv_context *context, uint64_t *shape);
void fp_close(struct ibv_context *context);

/* Callgrind: count from here to there only; write the counters out under a name. */
void fp_section(void);
void fp_dump(const char *name);

#endif
