package signals

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// patience bounds every wait.
const patience = 5 * time.Minute

func TestMain(m *testing.M) {
	if os.Getenv("INTERRUPT_TEST") != "" {
		listen()
		return
	}
	os.Exit(m.Run())
}

// listen prints the signals that it gets, up to a SIGINT from another process, and then the
// dispositions that a child would inherit.
func listen() {
	heard := make(chan os.Signal, 1)
	if err := fromProcesses(heard, syscall.SIGINT, syscall.SIGQUIT); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("listens")
	fmt.Println("heard", <-heard)
	out, err := exec.Command("grep", "SigIgn", "/proc/self/status").Output()
	fmt.Print(string(out), err, "\n")
}

// TestFromProcesses presses ^C and ^\ on a terminal that it shares with a shell, and sends SIGINT.
func TestFromProcesses(t *testing.T) {
	main, name := terminal(t)
	tty, err := os.OpenFile(name, os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer tty.Close()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", `trap 'echo pressed' INT QUIT; INTERRUPT_TEST=1 "$0" & echo pid $!; until wait $!; [ $? -lt 128 ]; do :; done; echo over`, self)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		cmd.Wait() // the program was killed
	})
	if err := main.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(main)
	var pid int
	wait := func(want string) string {
		t.Helper()
		for lines.Scan() {
			line := strings.Trim(lines.Text(), "^C\\\r") // the terminal shows the keys before the next output
			if text, found := strings.CutPrefix(line, want); found {
				return text
			}
			if strings.HasPrefix(line, "heard") {
				t.Fatalf("%q, not %q", line, want)
			}
			if text, found := strings.CutPrefix(line, "pid "); found {
				pid, _ = strconv.Atoi(strings.TrimSpace(text))
			}
		}
		t.Fatalf("no %q: %v", want, lines.Err())
		return ""
	}
	wait("listens")
	for _, key := range []string{"\x03", "\x1c"} {
		if _, err := main.WriteString(key); err != nil {
			t.Fatal(err)
		}
		wait("pressed")
	}
	if pid == 0 { // pid 0 would be this process's group
		t.Fatal("the shell printed no pid")
	}
	// While the terminal's SIGINT is pending, the kernel drops another one.
	for limit := time.After(patience); pending(t, pid, unix.SIGINT); {
		select {
		case <-time.After(10 * time.Millisecond):
		case <-limit:
			t.Fatal("the terminal's SIGINT stays pending")
		}
	}
	if err := unix.Kill(pid, unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	if got := wait("heard "); got != "interrupt" {
		t.Errorf("got %q", got)
	}
	if ignored, err := strconv.ParseUint(strings.TrimSpace(wait("SigIgn:")), 16, 64); err != nil || ignored&(1<<(unix.SIGINT-1)) != 0 {
		t.Errorf("a child ignores %x (%v)", ignored, err)
	}
	wait("over")
}

// pending reports whether a signal has been sent to a process and waits to be delivered.
func pending(t *testing.T, pid int, s unix.Signal) bool {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(status), "\nShdPnd:\t")
	line, _, _ := strings.Cut(after, "\n")
	set, err := strconv.ParseUint(line, 16, 64)
	if err != nil {
		t.Fatal(err)
	}
	return set&(1<<(s-1)) != 0
}

// terminal opens a pseudo terminal.
func terminal(t *testing.T) (main *os.File, name string) {
	t.Helper()
	fd, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	main = os.NewFile(uintptr(fd), "terminal")
	t.Cleanup(func() { main.Close() })
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	return main, fmt.Sprintf("/dev/pts/%d", number)
}
