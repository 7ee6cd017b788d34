// Bench measures golaunch against its peers on this machine: whole commands, interleaved in one run, medians.
//
//	go run ./tools/bench -runs 20 [-torchrun "chroot DIR torchrun"]
//
// It needs cc, and mpirun for the comparison; a peer that is not there is named as missing.
package main

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// giveUp bounds one command; mpirun is known to hang when its children end at once.
const giveUp = 60 * time.Second

// peer is one launcher's command line for n ranks.
type peer struct {
	name string
	argv func(n int, command ...string) []string
}

func main() {
	log.SetFlags(0)
	runs := flag.Int("runs", 20, "runs of each command")
	sizes := flag.String("ranks", "1,8,128", "sizes of the jobs that are launched")
	storm := flag.Int("storm", 1000, "launches of 32 ranks that exit at once")
	torchrun := flag.String("torchrun", "", "torchrun's command, when there is one to compare with")
	python := flag.String("python", cmp.Or(os.Getenv("GOLAUNCH_TEST_PYTHON"), "python3"), "a Python with torch, for ranks that are forked")
	onlyWarm := flag.Bool("warm", false, "measure ranks that are forked alone")
	flag.Parse()
	if err := os.Setenv("GOLAUNCH_COORDINATOR", "none"); err != nil { // whatever this user has on this machine
		log.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "golaunch-bench-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	golaunch, rank := build(dir)
	peers := []peer{{"golaunch", func(n int, command ...string) []string {
		return append([]string{golaunch, "--quiet", "--backoff", "0s", "--procs-per-node", strconv.Itoa(n), "--"}, command...)
	}}}
	if _, err := exec.LookPath("mpirun"); err == nil {
		peers = append(peers, peer{"mpirun", func(n int, command ...string) []string {
			return append([]string{"mpirun", "--allow-run-as-root", "--oversubscribe", "-np", strconv.Itoa(n)}, command...)
		}})
	} else {
		fmt.Println("mpirun: not found, not compared (Debian: openmpi-bin)")
	}
	if *torchrun != "" {
		peers = append(peers, peer{"torchrun", func(n int, command ...string) []string {
			return append(append(strings.Fields(*torchrun), "--max-restarts", "1", "--no-python", "--nproc-per-node", strconv.Itoa(n)), command...)
		}})
	}
	if *onlyWarm {
		warm(golaunch, *python, dir, *runs)
		return
	}
	launches(peers, rank, *sizes, *runs)
	restarts(peers, rank, dir, *runs)
	for _, p := range peers {
		orphans(p, rank)
	}
	memory(golaunch, rank)
	hangs(peers[0], rank, *storm)
	warm(golaunch, *python, dir, min(*runs, 5))
}

func build(dir string) (golaunch, rank string) {
	golaunch, rank = filepath.Join(dir, "golaunch"), filepath.Join(dir, "rank")
	for _, argv := range [][]string{
		{"go", "build", "-trimpath", "-ldflags=-s -w", "-o", golaunch, "./cmd/golaunch"},
		{"cc", "-O2", "-static", "-o", rank, "tools/bench/testdata/rank.c"},
	} {
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			log.Fatalf("%v: %v\n%s", argv, err, out)
		}
	}
	if info, err := os.Stat(golaunch); err == nil {
		fmt.Printf("binary: %.1f MB\n", float64(info.Size())/1e6)
	}
	return golaunch, rank
}

// launches times a job of ranks that do nothing, from start to exit. mpirun's ranks sleep 100 ms, which is taken off, since it
// hangs now and then when they end at once.
func launches(peers []peer, rank, sizes string, runs int) {
	for size := range strings.SplitSeq(sizes, ",") {
		n, err := strconv.Atoi(size)
		if err != nil {
			log.Fatalf("-ranks: %v", err)
		}
		took := make([][]time.Duration, len(peers))
		for range runs {
			for i, p := range peers {
				mode, off := "noop", time.Duration(0)
				if p.name == "mpirun" {
					mode, off = "nap", 100*time.Millisecond
				}
				begin := time.Now()
				if err := command(p.argv(n, rank, mode)); err != nil {
					log.Printf("%s -n %d: %v", p.name, n, err)
					continue
				}
				took[i] = append(took[i], time.Since(begin)-off)
			}
		}
		table(fmt.Sprintf("launch of %d ranks", n), peers, took)
	}
}

// restarts times the way from the death of one of 8 ranks to the exec of the last new one.
func restarts(peers []peer, rank, dir string, runs int) {
	took := make([][]time.Duration, len(peers))
	for r := range runs {
		for i, p := range peers {
			if p.name == "mpirun" {
				continue
			}
			notes := filepath.Join(dir, fmt.Sprintf("notes-%d-%d", r, i))
			if err := command(p.argv(8, rank, "restart", notes)); err != nil {
				log.Printf("%s: %v", p.name, err)
				continue
			}
			d, err := recovery(notes)
			if err != nil {
				log.Printf("%s: %v", p.name, err)
				continue
			}
			took[i] = append(took[i], d)
		}
	}
	table("death of one of 8 ranks to the exec of the last new one", peers, took)
}

// recovery reads the ranks' notes: the time from the death to the last start of attempt 1.
func recovery(notes string) (time.Duration, error) {
	data, err := os.ReadFile(notes)
	if err != nil {
		return 0, err
	}
	var death, last int64
	started := 0
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		at, err := strconv.ParseInt(f[2], 10, 64)
		switch {
		case err != nil:
			return 0, err
		case f[0] == "death":
			death = at
		case f[0] == "1":
			started++
			last = max(last, at)
		}
	}
	if death == 0 || started != 8 {
		return 0, fmt.Errorf("noted a death at %d and %d new ranks, not 8", death, started)
	}
	return time.Duration(last - death), nil
}

// memory reads what golaunch and its guardian hold beside 8 ranks that sleep, and the CPU time that they use in ten seconds.
func memory(golaunch, rank string) {
	cmd := exec.Command(golaunch, "--quiet", "--grace", "1s", "--procs-per-node", "8", "--", rank, "sleep")
	if err := cmd.Start(); err != nil {
		log.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	before := ticks(cmd.Process.Pid)
	time.Sleep(10 * time.Second)
	used := ticks(cmd.Process.Pid) - before
	rss, pss := size(cmd.Process.Pid)
	guardRSS, guardPSS := 0, 0
	for _, child := range children(cmd.Process.Pid) {
		if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", child)); err == nil && strings.HasPrefix(string(name), "rankguard") {
			guardRSS, guardPSS = size(child)
			used += ticks(child)
		}
	}
	fmt.Printf("\nagent with 8 ranks: resident %d kB (proportional %d), guardian %d kB (%d); idle CPU %d0 ms in 10 s\n",
		rss, pss, guardRSS, guardPSS, used)
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		log.Fatal(err)
	}
	var exit *exec.ExitError
	if err := cmd.Wait(); !errors.As(err, &exit) || exit.ExitCode() != 130 {
		log.Fatalf("golaunch after ^C: %v", err)
	}
}

// orphans kills the launcher with SIGKILL and counts the ranks that are left two seconds later. It ends them.
func orphans(p peer, rank string) {
	argv := p.argv(2, rank, "sleep")
	cmd := exec.Command(argv[0], argv[1:]...)
	if err := cmd.Start(); err != nil {
		log.Fatal(err)
	}
	time.Sleep(6 * time.Second) // torchrun takes two to start its ranks
	started := len(running(rank))
	if err := cmd.Process.Kill(); err != nil {
		log.Fatal(err)
	}
	_ = cmd.Wait()
	time.Sleep(2 * time.Second)
	left := running(rank)
	for _, pid := range left {
		if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
			log.Print(err)
		}
	}
	fmt.Printf("\nkill -9 of %s: %d of %d ranks are left\n", p.name, len(left), started)
}

// running lists the processes of a program.
func running(program string) []int {
	links, _ := filepath.Glob("/proc/[0-9]*/exe")
	var pids []int
	for _, link := range links {
		// A process of another root shows the path within it, which ends alike.
		if target, err := os.Readlink(link); err == nil && strings.HasSuffix(target, program) {
			if pid, err := strconv.Atoi(strings.Split(link, "/")[2]); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

func size(pid int) (rss, pss int) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		log.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		switch f := strings.Fields(line); f[0] {
		case "Rss:":
			rss, _ = strconv.Atoi(f[1])
		case "Pss:":
			pss, _ = strconv.Atoi(f[1])
		}
	}
	return rss, pss
}

// ticks is the CPU time of a process in hundredths of a second.
func ticks(pid int) int {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		log.Fatal(err)
	}
	f := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return user + system
}

func children(pid int) []int {
	files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	var all []int
	for _, file := range files {
		data, _ := os.ReadFile(file)
		for f := range strings.FieldsSeq(string(data)) {
			if n, err := strconv.Atoi(f); err == nil {
				all = append(all, n)
			}
		}
	}
	return all
}

// hangs launches many jobs whose ranks exit at once and counts those that do not end well.
func hangs(p peer, rank string, storm int) {
	failed := 0
	begin := time.Now()
	for range storm {
		if err := command(p.argv(32, rank, "noop")); err != nil {
			log.Print(err)
			failed++
		}
	}
	fmt.Printf("\n%d launches of 32 ranks that exit at once: %d failed or hung, %.1f ms each\n",
		storm, failed, float64(time.Since(begin).Milliseconds())/float64(max(storm, 1)))
}

func command(argv []string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		return err
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil {
			return fmt.Errorf("%w: %s", err, bytes.TrimSpace(out.Bytes()))
		}
		return nil
	case <-time.After(giveUp):
		return errors.Join(fmt.Errorf("%v hung", argv), cmd.Process.Kill())
	}
}

// table prints each peer's median and range, and golaunch's share of it.
func table(title string, peers []peer, took [][]time.Duration) {
	fmt.Printf("\n%s\n", title)
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	var own float64
	for i, p := range peers {
		d := took[i]
		if len(d) == 0 {
			continue
		}
		slices.Sort(d)
		median := ms(d[len(d)/2])
		if i == 0 {
			own = median
		}
		fmt.Printf("  %-10s median %8.1f ms (%.1f to %.1f, %d runs)  golaunch/this %.3f\n",
			p.name, median, ms(d[0]), ms(d[len(d)-1]), len(d), own/median)
	}
}
