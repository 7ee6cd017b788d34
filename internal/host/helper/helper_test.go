package helper

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

const name = "test-helper"

// TestMain is the main of the program, and its init is the main of the helper.
func TestMain(m *testing.M) {
	if os.Getenv("HELPER_TEST") != "" {
		fmt.Print("main")
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func init() {
	if Is(name) {
		_, err := unix.FcntlInt(Proof, unix.F_GETFD, 0)
		fmt.Print("helper: ", err)
		os.Exit(0)
	}
}

// TestIs starts a program in every way that does not make it a helper.
func TestIs(t *testing.T) {
	proof, err := File()
	if err != nil {
		t.Fatal(err)
	}
	plain, err := os.Create(filepath.Join(t.TempDir(), "plain"))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if _, err := plain.WriteString(text); err != nil {
		t.Fatal(err)
	}
	unsealed, sealed := memory(t, text, 0), memory(t, "something else", seals)
	for what, c := range map[string]struct {
		argv  []string
		files []*os.File
		want  string
	}{
		"helper":                {[]string{name}, []*os.File{proof}, "helper: bad file descriptor"},
		"helper with arguments": {[]string{name, "x"}, []*os.File{proof}, "helper: bad file descriptor"},
		"name alone":            {[]string{name}, nil, "main"},
		"argument":              {[]string{"program", name}, []*os.File{proof}, "main"},
		"descriptor alone":      {[]string{"program"}, []*os.File{proof}, "main"},
		"another descriptor":    {[]string{name}, []*os.File{plain, proof}, "main"},
		"file on disk":          {[]string{name}, []*os.File{plain}, "main"},
		"unsealed file":         {[]string{name}, []*os.File{unsealed}, "main"},
		"another sealed file":   {[]string{name}, []*os.File{sealed}, "main"},
	} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Args, cmd.ExtraFiles, cmd.Env = c.argv, c.files, []string{"HELPER_TEST=1"}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.HasPrefix(string(out), c.want) {
			t.Errorf("%s: %q (%v), want %q", what, out, err, c.want)
		}
	}
}

func TestFileIsOne(t *testing.T) {
	a, err := File()
	b, again := File()
	if a != b || err != nil || again != nil {
		t.Errorf("%v, %v (%v, %v)", a, b, err, again)
	}
	if _, err := a.WriteString("more"); err == nil {
		t.Error("it can be written to")
	}
}

func memory(t *testing.T, text string, seals int) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	t.Cleanup(func() { f.Close() })
	if _, err := f.WriteString(text); err != nil {
		t.Fatal(err)
	}
	if seals != 0 {
		if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
			t.Fatal(err)
		}
	}
	return f
}
