// A rank with which to measure launchers. It does one thing, and starts in almost no time.
// Build: cc -O2 -static -o rank rank.c
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
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

// dead reports whether a death was noted.
static int dead(const char *path) {
	char notes[4096];
	int fd = open(path, O_RDONLY);
	if (fd < 0) return 0;
	ssize_t n = read(fd, notes, sizeof notes - 1);
	close(fd);
	notes[n < 0 ? 0 : n] = 0;
	return strstr(notes, "death") != NULL;
}

static const char *or(const char *name, const char *other) {
	const char *value = getenv(name);
	return value ? value : other;
}

// family turns into four processes, which run until they are killed: this one, a child, a child in
// a session of its own, and a process in a new session whose parent has ended.
static int family(void) {
	if (!fork()) return pause();
	if (!fork()) return setsid() < 0 ? 3 : pause();
	pid_t between = fork();
	if (!between) {
		if (setsid() < 0) _exit(3);
		if (fork()) _exit(0);
		return pause();
	}
	waitpid(between, 0, 0);
	return pause();
}

int main(int argc, char **argv) {
	const char *mode = argc > 1 ? argv[1] : "noop";
	if (!strcmp(mode, "noop")) return 0;
	if (!strcmp(mode, "nap")) return usleep(100000);
	if (!strcmp(mode, "sleep")) return pause();
	if (!strcmp(mode, "family")) return family();
	// restart FILE notes each start of a rank in FILE. Rank 0 of attempt 0 dies after a second, and
	// notes its death. With loss FILE no rank dies by itself. A start after a death is in attempt 1,
	// whatever the launcher says, because only torchrun's node with the death counts the restart.
	const char *rank = or("RANK", or("OMPI_COMM_WORLD_RANK", "0")), *attempt = dead(argv[2]) ? "1" : "0";
	note(argv[2], attempt, rank);
	if (strcmp(attempt, "0")) return 0;
	if (strcmp(rank, "0") || !strcmp(mode, "loss")) return pause();
	sleep(1);
	note(argv[2], "death", rank);
	kill(getpid(), SIGKILL);
}
