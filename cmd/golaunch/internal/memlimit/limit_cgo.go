//go:build cgo && !lint

package memlimit

/*
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

// It runs before Go's runtime starts, because the runtime dies with a trace if it gets too little
// address space. The text is the same as Check's.
__attribute__((constructor)) static void check(void) {
	const unsigned long long least = 2ULL << 30;
	struct rlimit limit;
	if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur >= least)
		return;
	dprintf(2, "golaunch: the limit of address space (ulimit -v) is %llu MiB, and golaunch needs %llu: raise it, and limit memory with a cgroup instead\n",
		(unsigned long long)limit.rlim_cur >> 20, least >> 20);
	_exit(125);
}
*/
import "C"
