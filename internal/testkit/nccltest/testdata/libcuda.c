// A CUDA driver whose GPUs use the host's memory, and whose streams finish all work at once.
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int fault(const char *name) {
  const char *node = getenv("GOLAUNCH_NODE"), *all = getenv("FAKE_NCCL");
  char wanted[256] = "", any[64] = "*=";
  if (!all) return 0;
  if (node) strncat(strncat(wanted, node, 200), "=", 2);
  strcat(wanted, name), strcat(any, name);
  return (node && strstr(all, wanted)) || strstr(all, any);
}

// A stream has unfinished work while fake_busy is not 0. libnccl.c sets it.
int fake_busy;

int cuInit(unsigned flags) { return fault("gpu") ? 100 : 0; }
int cuDeviceGet(int *device, int ordinal) { *device = ordinal; return ordinal < 0 || ordinal > 15 ? 101 : 0; }
int cuDevicePrimaryCtxRetain(void **context, int device) { *context = (void *)(intptr_t)(device + 1); return 0; }
int cuDevicePrimaryCtxRelease_v2(int device) { return 0; }
int cuCtxSetCurrent(void *context) { return context ? 0 : 201; }
int cuCtxSynchronize(void) { return 0; }
int cuMemAlloc_v2(void **address, size_t bytes) { return (*address = malloc(bytes)) ? 0 : 2; }
int cuMemFree_v2(void *address) { free(address); return 0; }
int cuMemcpyHtoD_v2(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); return 0; }
int cuMemcpyDtoH_v2(void *to, const void *from, size_t bytes) { memcpy(to, from, bytes); return 0; }
int cuStreamCreate(void **stream, unsigned flags) { *stream = &fake_busy; return 0; }
int cuStreamQuery(void *stream) { return *(int *)stream ? 600 : 0; }
int cuGetErrorName(int error, const char **name) {
  switch (error) {
  case 100: *name = "CUDA_ERROR_NO_DEVICE"; return 0;
  case 101: *name = "CUDA_ERROR_INVALID_DEVICE"; return 0;
  }
  return 1;
}
