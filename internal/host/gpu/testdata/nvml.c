// A libnvidia-ml.so.1 that needs no driver. It has three GPUs, which are not in the order of their
// PCI addresses. The last GPU is split into two MIG instances.
//
// FAKE_NVML names a fault of the library. Or the file FAKE_NVML_FILE contains the name of a fault,
// for as long as the library shall have it. If OLD is defined, the library lacks the functions that
// an old driver may lack.
//
// The directory FAKE_NVML_HELD says which processes use the memory of the GPUs that are not split:
// each file UUID/PID contains a number of bytes. These GPUs then have no other processes.
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "nvml.h"

struct nvmlDevice_st {
	const char *uuid, *name;
	unsigned domain, bus;
	unsigned long long memory;
	unsigned first, processes;
	int mig;
	unsigned use, milliwatts, degrees;
	unsigned long long energy;
};

static struct nvmlDevice_st gpus[] = {
	{"GPU-8f000000-0000", "NVIDIA H200", 0, 0x8f, 150754820096, 5000, 100, 0, 37, 301500, 61, 9000},
	{"GPU-0f000000-0000", "NVIDIA H200", 0, 0x0f, 150754820096, 4411, 1, 0, 100, 650250, 84, 7000},
	{"GPU-01000000-0000", "NVIDIA A100-SXM4-40GB", 0x10000, 0x01, 42949672960, 0, 0, 1, 0, 55125, 33, 0},
};

static struct nvmlDevice_st instances[] = {
	{"MIG-aa000000-0000", "NVIDIA A100-SXM4-40GB MIG 1g.5gb", 0x10000, 0x01, 0, 0, 0, 0},
	{"MIG-bb000000-0000", "NVIDIA A100-SXM4-40GB MIG 2g.10gb", 0x10000, 0x01, 10468982784, 77, 1, 0},
};

static int wrong(const char *what) {
	const char *fault = getenv("FAKE_NVML"), *path = getenv("FAKE_NVML_FILE");
	if (fault && !strcmp(fault, what))
		return 1;
	char now[32] = "";
	int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	if (file < 0)
		return 0;
	if (read(file, now, sizeof now - 1) < 0)
		abort();
	close(file);
	return !strcmp(now, what);
}

// held calls each for every process that FAKE_NVML_HELD names for a GPU, with the process's bytes.
// It returns 0 if FAKE_NVML_HELD is not set, and for a split GPU and its instances.
static int held(nvmlDevice_t d, void (*each)(void *, unsigned, unsigned long long), void *with) {
	const char *path = getenv("FAKE_NVML_HELD");
	if (!path || d.handle->mig || d.handle >= instances && d.handle < instances + 2)
		return 0;
	char name[4096];
	snprintf(name, sizeof name, "%s/%s", path, d.handle->uuid);
	DIR *dir = opendir(name);
	for (struct dirent *e; dir && (e = readdir(dir));) {
		char file[8192];
		snprintf(file, sizeof file, "%s/%s", name, e->d_name);
		FILE *f = fopen(file, "re");
		unsigned long long bytes;
		if (f && fscanf(f, "%llu", &bytes) == 1)
			each(with, atoi(e->d_name), bytes);
		if (f)
			fclose(f);
	}
	if (dir)
		closedir(dir);
	return 1;
}

static void add(void *sum, unsigned pid, unsigned long long bytes) { *(unsigned long long *)sum += bytes; }

struct list {
	unsigned room, count;
	nvmlProcessInfo_t *infos;
};

static void put(void *with, unsigned pid, unsigned long long bytes) {
	struct list *l = with;
	if (l->count++ >= l->room)
		return;
	memset(&l->infos[l->count - 1], 0xff, sizeof *l->infos);
	l->infos[l->count - 1].pid = pid;
	l->infos[l->count - 1].usedGpuMemory = bytes;
}

// hang never returns, and starts a process that never returns either. Both keep the FIFO open for
// as long as they live.
static void hang(void) {
	int fifo = open(getenv("FAKE_NVML_FIFO"), O_WRONLY);
	fork();
	if (write(fifo, "!", 1) != 1)
		abort();
	for (;;)
		pause();
}

// leave starts a daemon that lives until no process reads the FIFO.
static void leave(void) {
	if (fork())
		return;
	setsid();
	struct pollfd fifo = {open(getenv("FAKE_NVML_FIFO"), O_WRONLY), 0, 0};
	if (write(fifo.fd, "!!", 2) != 2)
		abort();
	poll(&fifo, 1, -1);
	_exit(0);
}

// flood prints until no process reads its output, and then waits forever.
static void flood(void) {
	static char zeros[1 << 16];
	while (write(1, zeros, sizeof zeros) > 0)
		;
	for (;;)
		pause();
}

// dawdle returns once another process has opened the FIFO for writing.
static void dawdle(void) { close(open(getenv("FAKE_NVML_FIFO"), O_RDONLY)); }

nvmlReturn_t nvmlInit_v2(void) {
	if (wrong("hang"))
		hang();
	if (wrong("slow"))
		dawdle();
	if (wrong("daemon"))
		leave();
	if (wrong("flood"))
		flood();
	if (wrong("crash"))
		*(volatile int *)8 = 1;
	if (wrong("garbage"))
		_exit(write(1, "no protocol specified\n", 22) != 22);
	if (wrong("not loaded"))
		return NVML_ERROR_DRIVER_NOT_LOADED;
	if (wrong("mismatch"))
		return NVML_ERROR_LIB_RM_VERSION_MISMATCH;
	return NVML_SUCCESS;
}

const char *nvmlErrorString(nvmlReturn_t result) {
	return result == NVML_ERROR_LIB_RM_VERSION_MISMATCH ? "Driver/library version mismatch" : "Fault";
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
	*count = wrong("empty") ? 0 : 3;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned i, nvmlDevice_t *device) {
	if (wrong("forbidden"))
		return NVML_ERROR_NO_PERMISSION;
	if (i == 1 && wrong("lost"))
		return NVML_ERROR_GPU_IS_LOST;
	device->handle = &gpus[i];
	return NVML_SUCCESS;
}

static nvmlReturn_t text(const char *s, char *buf, unsigned size) {
	return snprintf(buf, size, "%s", s) < (int)size ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t d, char *buf, unsigned size) { return text(d.handle->uuid, buf, size); }

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t d, char *buf, unsigned size) { return text(d.handle->name, buf, size); }

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t d, nvmlPciInfo_t *pci) {
	memset(pci, 0xff, sizeof *pci);
	pci->domain = d.handle->domain;
	pci->bus = d.handle->bus;
	pci->device = 0;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t d, nvmlMemory_t *memory) {
	memset(memory, 0xff, sizeof *memory);
	memory->total = d.handle->memory;
	memory->used = d.handle->memory / 4;
	unsigned long long sum = 0;
	if (held(d, add, &sum))
		memory->used = sum;
	return d.handle->memory ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t d, unsigned *count, nvmlProcessInfo_t *infos) {
	unsigned room = *count;
	struct list l = {room, 0, infos};
	if (held(d, put, &l)) {
		*count = l.count;
		return l.count > room ? NVML_ERROR_INSUFFICIENT_SIZE : NVML_SUCCESS;
	}
	*count = d.handle->processes;
	if (room < d.handle->processes)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	memset(infos, 0xff, d.handle->processes * sizeof *infos);
	for (unsigned i = 0; i < d.handle->processes; i++)
		infos[i].pid = d.handle->first + d.handle->processes - 1 - i;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t d, unsigned *current, unsigned *pending) {
	*current = d.handle->mig;
	*pending = !d.handle->mig;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t d, unsigned *count) {
	*count = 7;
	return NVML_SUCCESS;
}

// The instances are in slots 2 and 5.
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t d, unsigned slot, nvmlDevice_t *instance) {
	if (slot != 2 && slot != 5)
		return NVML_ERROR_NOT_FOUND;
	instance->handle = &instances[slot == 5];
	return NVML_SUCCESS;
}

// GPU 0f:00.0 has every defect that NVML can report.
static int sick(nvmlDevice_t d) { return d.handle == &gpus[1]; }

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t d, unsigned *width) {
	*width = 16;
	return d.handle->mig ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t d, unsigned *width) {
	*width = sick(d) ? 8 : 16;
	return NVML_SUCCESS;
}

// GPU 8f:00.0 does not support the newer fields.
static int older(nvmlDevice_t d) { return d.handle == &gpus[0]; }

#ifndef OLD
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t d, int count, nvmlFieldValue_t *values) {
	for (int i = 0; i < count; i++) {
		nvmlFieldValue_t *v = &values[i];
		memset(&v->value, 0xff, sizeof v->value);
		v->nvmlReturn = NVML_SUCCESS;
		v->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		switch (v->fieldId) {
		case NVML_FI_DEV_ECC_DBE_VOL_TOTAL:
			v->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
			v->value.ullVal = sick(d) ? 1ull << 32 : 0;
			break;
		case NVML_FI_DEV_REMAPPED_PENDING:
		case NVML_FI_DEV_REMAPPED_FAILURE:
			v->value.uiVal = sick(d);
			break;
		case NVML_FI_DEV_GET_GPU_RECOVERY_ACTION:
			v->value.uiVal = sick(d) ? NVML_GPU_RECOVERY_ACTION_NODE_REBOOT : NVML_GPU_RECOVERY_ACTION_NONE;
			break;
		case NVML_FI_DEV_NVLINK_LINK_COUNT:
			v->value.uiVal = 18;
			break;
		case NVML_FI_DEV_NVLINK_GET_STATE:
			v->value.uiVal = !(sick(d) && v->scopeId == 17);
			break;
		case NVML_FI_DEV_TOTAL_ENERGY_CONSUMPTION:
			v->valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
			v->value.ullVal = d.handle->energy += 1000;
			break;
		case NVML_FI_DEV_POWER_INSTANT:
			v->value.uiVal = d.handle->milliwatts + 1;
			v->nvmlReturn = older(d) ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
			break;
		case NVML_FI_DEV_POWER_CURRENT_LIMIT:
			v->value.uiVal = 700001;
			v->nvmlReturn = older(d) ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
			break;
		default:
			v->nvmlReturn = NVML_ERROR_INVALID_ARGUMENT;
		}
	}
	return d.handle->mig ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t d, unsigned long long *reasons) {
	*reasons = sick(d) ? nvmlClocksThrottleReasonHwThermalSlowdown : nvmlClocksEventReasonGpuIdle;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t d, nvmlGpuFabricInfo_t *info) {
	memset(info, 0xff, sizeof *info);
	info->status = NVML_SUCCESS;
	info->state = sick(d) ? NVML_GPU_FABRIC_STATE_IN_PROGRESS : NVML_GPU_FABRIC_STATE_COMPLETED;
	return NVML_SUCCESS;
}

// NVML does not report the use of a split GPU, or of its instances.
nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t d, nvmlUtilization_t *use) {
	if (wrong("hang in use"))
		hang();
	use->gpu = d.handle->use;
	use->memory = 99;
	return d.handle->mig || !d.handle->degrees ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t d, unsigned *milliwatts) {
	*milliwatts = d.handle->milliwatts;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t d, unsigned *milliwatts) {
	*milliwatts = 700000;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t d, nvmlTemperatureSensors_t sensor, unsigned *degrees) {
	*degrees = d.handle->degrees;
	return sensor == NVML_TEMPERATURE_GPU ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}
#endif
