/* The provider as a libibverbs.so.1: what other crates call to come by its queue pairs.
 *
 * Whoever opens the device gets the context that was made last; its completion queue and its queue
 * pairs are handed out as they are created. Nothing is destroyed: fp_close does that. Set-up only:
 * posting and polling go through ibv_context.ops, as with any provider. */
#include "provider.h"

#include <stdlib.h>
#include <string.h>

#undef ibv_query_port
#undef ibv_reg_mr

enum { LKEY = 0x1234 };

static struct ibv_device device = { .name = "false0", .node_type = IBV_NODE_CA };

struct ibv_device **ibv_get_device_list(int *count)
{
	struct ibv_device **list = calloc(2, sizeof(*list));

	list[0] = &device;
	if (count)
		*count = 1;
	return list;
}

void ibv_free_device_list(struct ibv_device **list)
{
	free(list);
}

const char *ibv_get_device_name(struct ibv_device *of)
{
	return of->name;
}

struct ibv_context *ibv_open_device(struct ibv_device *of)
{
	(void)of;
	return &fp_last->context;
}

int ibv_close_device(struct ibv_context *context)
{
	(void)context;
	return 0;
}

int ibv_query_port(struct ibv_context *context, uint8_t port, struct _compat_ibv_port_attr *attributes)
{
	struct ibv_port_attr *attr = (struct ibv_port_attr *)attributes;

	(void)context, (void)port;
	attr->state = IBV_PORT_ACTIVE;
	attr->gid_tbl_len = 1;
	return 0;
}

ssize_t _ibv_query_gid_table(struct ibv_context *context, struct ibv_gid_entry *entries, size_t max,
			     uint32_t flags, size_t size)
{
	(void)context, (void)entries, (void)max, (void)flags, (void)size;
	return 0;
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = context;
	return pd;
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	free(pd);
	return 0;
}

struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	(void)access;
	mr->context = pd->context;
	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	mr->lkey = LKEY;
	return mr;
}

int ibv_dereg_mr(struct ibv_mr *mr)
{
	free(mr);
	return 0;
}

struct ibv_cq *ibv_create_cq(struct ibv_context *context, int entries, void *cookie,
			     struct ibv_comp_channel *channel, int vector)
{
	(void)entries, (void)cookie, (void)channel, (void)vector;
	return &((struct fp_context *)context)->cqs[0]->cq;
}

int ibv_destroy_cq(struct ibv_cq *cq)
{
	(void)cq;
	return 0;
}

struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *init)
{
	struct fp_context *context = (struct fp_context *)pd->context;

	(void)init;
	return context->handed < context->nqps ? &context->qps[context->handed++]->qp : NULL;
}

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	(void)qp, (void)attr, (void)mask;
	return 0;
}

int ibv_destroy_qp(struct ibv_qp *qp)
{
	(void)qp;
	return 0;
}
