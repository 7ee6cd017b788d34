// NCCL for processes of one machine. A communicator is a file in DIR, with a barrier and a slot for
// each rank. If a rank is gone, the other ranks wait for it forever, as with the real NCCL.
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define MAX 64
#define SLOT (1 << 18)

typedef struct { char internal[128]; } ncclUniqueId;
struct shared {
  atomic_int arrived, turn;
  float slots[MAX][SLOT];
};
struct comm {
  struct shared *shared;
  int rank, size, far, failed;
  size_t done; // the largest count summed so far; a repeated sum of that count only waits
};

static int fault(const char *name) {
  const char *node = getenv("GOLAUNCH_NODE"), *all = getenv("FAKE_NCCL");
  char wanted[256] = "", any[64] = "*=";
  if (!all) return 0;
  if (node) strncat(strncat(wanted, node, 200), "=", 2);
  strcat(wanted, name), strcat(any, name);
  return (node && strstr(all, wanted)) || strstr(all, any);
}

static void barrier(struct comm *c) {
  int turn = atomic_load(&c->shared->turn);
  if (atomic_fetch_add(&c->shared->arrived, 1) == c->size - 1) {
    atomic_store(&c->shared->arrived, 0);
    atomic_fetch_add(&c->shared->turn, 1);
  }
  for (int n = 0; atomic_load(&c->shared->turn) == turn; n++) usleep(n < 5000 ? 20 : 1000);
}

__attribute__((constructor)) static void load(void) { if (fault("load")) pause(); }

int ncclGetVersion(int *version) { *version = fault("old") ? 22003 : 22105; return 0; }
const char *ncclGetErrorString(int code) { return code == 2 ? "unhandled system error" : code == 6 ? "remote process exited or there was a network error" : "internal error"; }
const char *ncclGetLastError(void *comm) { return fault("link") ? "socketStartConnect: Connect to 10.0.0.9 failed" : ""; }

int ncclGetUniqueId(ncclUniqueId *id) {
  memset(id, 0, sizeof *id);
  snprintf(id->internal, sizeof id->internal, "%d", getpid());
  // The end of the ID shows whether the caller passes on all of its bytes.
  strcpy(id->internal + 120, "the end");
  return 0;
}

static int join(struct comm **out, int size, ncclUniqueId *id, int rank) {
  const char *local = getenv("LOCAL_WORLD_SIZE");
  if (fault("crash")) abort();
  if (strcmp(id->internal + 120, "the end") || rank < 0 || rank >= size || size > MAX) return 4;
  struct comm *c = calloc(1, sizeof *c);
  c->rank = rank, c->size = size, c->far = size > (local ? atoi(local) : 1);
  if (c->far && fault("link")) return 2;
  char file[4096];
  snprintf(file, sizeof file, "%s/%s", DIR, id->internal);
  int fd = open(file, O_RDWR | O_CREAT, 0600);
  if (fd < 0 || ftruncate(fd, sizeof *c->shared)) return 2;
  c->shared = mmap(0, sizeof *c->shared, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  close(fd);
  if (c->shared == MAP_FAILED) return 2;
  barrier(c);
  if (rank == 0) unlink(file);
  *out = c;
  return 0;
}

#ifndef BEFORE_2_14
int ncclCommInitRankConfig(struct comm **comm, int size, ncclUniqueId id, int rank, void *config) { return config ? 4 : join(comm, size, &id, rank); }
#endif
#ifndef BEFORE_2_23
int ncclCommInitRankScalable(struct comm **comm, int size, int rank, int ids, ncclUniqueId *id, void *config) {
  return config || ids != 1 ? 4 : join(comm, size, id, rank);
}
#endif

int ncclAllReduce(const float *send, float *recv, size_t count, int type, int op, struct comm *c, int *busy) {
  if (type != 7 || op != 0) return 4;
  if (c->far && fault("async")) c->failed = 6;
  if (c->far && (fault("stuck") || fault("async"))) { *busy = 1; return 0; }
  if (c->far && fault("slow") && count > 2) usleep(200000);
  if (count > 2 && count == c->done) { barrier(c); return 0; }
  c->done = count > 2 ? count : c->done;
  float wrong = fault("sum") ? 1 : 0;
  for (size_t done = 0; done < count; done += SLOT) {
    size_t n = count - done < SLOT ? count - done : SLOT;
    memcpy(c->shared->slots[c->rank], send + done, n * sizeof *send);
    barrier(c);
    for (size_t i = 0; i < n; i++) {
      float sum = wrong;
      for (int r = 0; r < c->size; r++) sum += c->shared->slots[r][i];
      recv[done + i] = sum;
    }
    barrier(c);
  }
  return 0;
}

int ncclCommGetAsyncError(struct comm *c, int *code) { *code = c->failed; return 0; }
int ncclCommDestroy(struct comm *c) { munmap(c->shared, sizeof *c->shared); free(c); return 0; }
int ncclCommAbort(struct comm *c) { return ncclCommDestroy(c); }
