// A rank for measuring launchers: it does one thing and needs no start-up of its own. Build: cc -O2 -static -o rank rank.c
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

// note appends "attempt rank nanoseconds" to the file in one write.
static void note(const char *path, const char *attempt, const char *rank) {
	struct timespec t;
	char line[128];
	clock_gettime(CLOCK_MONOTONIC, &t);
	int n = snprintf(line, sizeof line, "%s %s %lld\n", attempt, rank, t.tv_sec * 1000000000LL + t.tv_nsec);
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT, 0600);
	if (fd < 0 || write(fd, line, n) != n) _exit(3);
	close(fd);
}

static const char *or(const char *name, const char *other) {
	const char *value = getenv(name);
	return value ? value : other;
}

int main(int argc, char **argv) {
	const char *mode = argc > 1 ? argv[1] : "noop";
	if (!strcmp(mode, "noop")) return 0;
	if (!strcmp(mode, "nap")) return usleep(100000);
	if (!strcmp(mode, "sleep")) return pause();
	// restart FILE: rank 0 of attempt 0 dies after a second; every start and that death are noted. loss FILE: it lives.
	const char *rank = or("RANK", or("OMPI_COMM_WORLD_RANK", "0")), *attempt = or("TORCHELASTIC_RESTART_COUNT", "0");
	note(argv[2], attempt, rank);
	if (strcmp(attempt, "0")) return 0;
	if (strcmp(rank, "0") || !strcmp(mode, "loss")) return pause();
	sleep(1);
	note(argv[2], "death", rank);
	kill(getpid(), SIGKILL);
}
