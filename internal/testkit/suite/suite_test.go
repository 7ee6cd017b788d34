package suite

import (
	"cmp"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestMain(m *testing.M) { Main(m) }

// beside has the port of a process that tests must not find.
const beside = "GOLAUNCH_TEST_BESIDE"

// TestApart checks that tests do not find what this user has on this machine.
func TestApart(t *testing.T) {
	if port := os.Getenv(beside); port != "" {
		finds(t, port)
		return
	}
	socket, err := net.Listen("unix", "@golaunch-suite-"+os.Getenv(apart))
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	file := filepath.Join(os.TempDir(), "theirs")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(file)
	cmd := exec.Command(os.Args[0], "-test.run=^TestApart$", "-test.v")
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, apart+"=") }),
		"SLURM_JOB_ID=7", "GOLAUNCH_COORDINATOR=127.0.0.1:1", "RANK=3", fmt.Sprintf("%s=%d %s", beside, tcp.Addr().(*net.TCPAddr).Port, socket.Addr()))
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestApart") {
		t.Errorf("%v\n%s", err, out)
	}
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "*", "home"))
	if err != nil || len(left) > 0 {
		t.Errorf("they leave %q (%v)", left, err)
	}
}

// finds reports an error for each thing that these tests find.
func finds(t *testing.T, them string) {
	t.Helper()
	port, socket, _ := strings.Cut(them, " ")
	for _, at := range [][2]string{{"unix", socket}, {"tcp", "127.0.0.1:" + port}} {
		conn, err := net.Dial(at[0], at[1])
		if err != nil {
			continue
		}
		conn.Close()
		if os.Geteuid() == 0 {
			t.Errorf("%s %s answers", at[0], at[1])
		}
	}
	for _, dir := range []string{"/run/netns", fmt.Sprintf("/tmp/golaunch-%d", os.Getuid())} {
		if entries, err := os.ReadDir(dir); os.Geteuid() == 0 && (err != nil || len(entries) > 0) {
			t.Errorf("%s has %v (%v)", dir, entries, err)
		}
	}
	for _, v := range []string{"SLURM_JOB_ID", "GOLAUNCH_COORDINATOR", "RANK"} {
		if got, set := os.LookupEnv(v); set {
			t.Errorf("%s=%s", v, got)
		}
	}
	home, err := os.UserHomeDir()
	if entries, listErr := os.ReadDir(home); cmp.Or(err, listErr) != nil || len(entries) > 0 || home == Home() {
		t.Errorf("home %s has %v (%v)", home, entries, cmp.Or(err, listErr))
	}
	if _, err := os.Stat(filepath.Join(os.TempDir(), "theirs")); err == nil {
		t.Errorf("files of others are in %s", os.TempDir())
	}
	// Processes that they start are there too.
	out, err := exec.Command("sh", "-c", "cat /proc/net/unix | grep -c golaunch-suite").Output()
	if os.Geteuid() == 0 && strings.TrimSpace(string(out)) != "0" {
		t.Errorf("a process that they start sees %s sockets (%v)", out, err)
	}
}
