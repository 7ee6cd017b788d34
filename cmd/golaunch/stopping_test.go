package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// saves is a rank that saves on TERM, which takes a moment, and then exits with 0.
const saves = `trap "sleep 0.5; echo saved; exit 0" TERM; echo up; sleep 1000 & wait`

// TestOneEventIsOneStop delivers the signals of one event: the ranks get their grace period, and a
// job whose ranks save and exit with 0 counts as stopped.
func TestOneEventIsOneStop(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		signals []syscall.Signal
		codes   []int
	}{
		"a terminal closes":   {[]syscall.Signal{syscall.SIGHUP, syscall.SIGHUP}, []int{129}},
		"timeout":             {[]syscall.Signal{syscall.SIGTERM, syscall.SIGTERM}, []int{143}},
		"shell and scheduler": {[]syscall.Signal{syscall.SIGHUP, syscall.SIGTERM, syscall.SIGHUP}, []int{129, 143}}, // the first signal heard decides
	} {
		for _, link := range []string{"", "torchrun"} {
			t.Run(name+" "+link, func(t *testing.T) {
				t.Parallel()
				args := []string{"--grace", "1h", "-n", "1", "--", "sh", "-c", saves}
				if link != "" {
					args = []string{link, "--shutdown-timeout", "3600", "--nproc-per-node", "1", "--no-python", "sh", "-c", saves}
				}
				p := start(t, exec.Command(golaunch(t), args...))
				p.line("^up$")
				p.line("attempt 0 runs")
				for _, s := range c.signals {
					p.signal(s)
				}
				code, _ := p.wait()
				if !slices.Contains(c.codes, code) {
					t.Errorf("exit code %d, want one of %v", code, c.codes)
				}
				p.ends(code, "saved", "job cancelled: got ")
			})
		}
	}
}

// TestLaterStops: of later signals, only a ^C of a person kills.
func TestLaterStops(t *testing.T) {
	t.Parallel()
	const stubborn = `trap "echo told" TERM INT; echo up; while :; do sleep 1000 & wait; done`
	p := start(t, exec.Command(golaunch(t), "--grace", "1h", "-n", "1", "--", "sh", "-c", stubborn))
	p.line("^up$")
	p.signal(syscall.SIGTERM)
	p.line("^told$")
	begin := time.Now()
	for ticks := time.Tick(50 * time.Millisecond); time.Since(begin) < 2*time.Second; <-ticks {
		p.signal(syscall.SIGTERM)
	}
	select {
	case <-p.done:
		t.Fatal("TERM has killed it")
	default:
	}
	presses := time.NewTicker(50 * time.Millisecond)
	defer presses.Stop()
	for {
		select {
		case <-presses.C:
			p.cmd.Process.Signal(syscall.SIGINT) // golaunch may have ended
			continue
		case err := <-p.done:
			p.done <- err
		}
		break
	}
	p.ends(143, "cancelled again: killing")
}

// TestExitCode0AfterANotice: if a program exits with 0 after a notice, it has saved.
func TestExitCode0AfterANotice(t *testing.T) {
	t.Parallel()
	p := start(t, exec.Command(golaunch(t), "--drain-time", "1h", "--notice-signal", "USR1", "--json", "-n", "1", "--", "sh", "-c",
		`trap "exit 0" USR1; echo up; sleep 1000 & wait`))
	p.line("^up$")
	p.line("attempt 0 runs")
	p.signal(syscall.SIGTERM)
	p.ends(143, `"ending":"cancelled"`)
}

// TestWhatRanksLeaveRunning: golaunch names the processes that ranks leave running. They get the
// time of --linger, or SIGTERM and the grace period.
func TestWhatRanksLeaveRunning(t *testing.T) {
	t.Parallel()
	const upload = `setsid sh -c 'trap "echo upload told; exit" TERM; echo uploads; while [ ! -e gate ]; do sleep 0.05; done; echo uploaded' & exec sleep 0.5`
	for name, c := range map[string]struct{ linger, want string }{
		"at once": {"0s", "upload told"},
		"later":   {"1h", "uploaded"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			cmd := exec.Command(golaunch(t), "--linger", c.linger, "--grace", "1h", "-n", "1", "--", "sh", "-c", upload)
			cmd.Dir = dir
			p := start(t, cmd)
			if p.line("^uploads$"); c.linger != "0s" {
				p.line("all ranks exited 0; waiting")
				if err := os.WriteFile(filepath.Join(dir, "gate"), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				p.ends(0, c.want, "job succeeded")
				return
			}
			p.ends(0, c.want, "have exited with 0 and left running: sh (pid ", "job succeeded")
		})
	}
}

// TestWhatEndsWithItsRank: processes that end with their rank are not named. The processes of a
// pool notice the end of their parent only when the rank has ended.
func TestWhatEndsWithItsRank(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	p := start(t, exec.Command(golaunch(t), "-n", "1", "--", "sh", "-c", `sh -c 'read end; echo over' <"$0" & exec 9>"$0"; exit 0`, path))
	if code, text := p.wait(); code != 0 || !strings.Contains(text, "over\n") || strings.Contains(text, "left running") {
		t.Errorf("exit code %d\n%s", code, text)
	}
}

// TestInterruptInTheBackground stops a golaunch that a script has started with &, by a SIGINT sent
// on purpose.
func TestInterruptInTheBackground(t *testing.T) {
	t.Parallel()
	const script = `"$0" -n 1 -- sh -c 'trap "echo rank told INT; exit 0" INT; echo up; while :; do sleep 0.05; done' & trap 'kill -INT $!' TERM; until wait $!; c=$?; [ $c -ne 143 ]; do :; done; exit $c`
	p := start(t, exec.Command("sh", "-c", script, golaunch(t)))
	p.line("^up$")
	p.line("attempt 0 runs")
	p.signal(syscall.SIGTERM)
	p.ends(130, "rank told INT", "job cancelled: got SIGINT")
}
