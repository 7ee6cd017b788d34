package account

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	u, err := Find(t.Context(), 0)
	if err != nil || u.Name != "root" || u.Home == "" || !slices.Contains(u.Groups, 0) {
		t.Errorf("%+v, %v", u, err)
	}
	for _, uid := range []uint32{4_000_000_001, ^uint32(0)} {
		if u, err := Find(t.Context(), uid); err == nil || !strings.Contains(err.Error(), "is no user here") {
			t.Errorf("%+v, %v", u, err)
		}
	}
}

// TestHome asks the user database where there is no HOME.
func TestHome(t *testing.T) {
	t.Setenv("HOME", "/somewhere")
	if home, err := Home(); home != "/somewhere" || err != nil {
		t.Errorf("%s, %v", home, err)
	}
	u, err := Find(t.Context(), uint32(os.Getuid()))
	if err != nil {
		t.Fatal(err)
	}
	os.Unsetenv("HOME")
	if home, err := Home(); home != u.Home || err != nil {
		t.Errorf("%s, %v, want %s", home, err, u.Home)
	}
}

func TestParse(t *testing.T) {
	u, err := parse("walter:x:1234:1235:Walter,,,:/home/walter:/bin/bash\n", 1234)
	if err != nil || u.Name != "walter" || u.UID != 1234 || u.GID != 1235 || u.Home != "/home/walter" || u.Shell != "/bin/bash" {
		t.Errorf("%+v, %v", u, err)
	}
	for _, line := range []string{
		"", "walter", "walter:x:0:1235::/:/bin/sh\n", "walter:x::1235::/:/bin/sh\n", "walter:x:1234:::/:/bin/sh\n", ":x:1234:1235::/:/bin/sh\n",
		"walter:x:1234:-1::/:/bin/sh\n", "a:x:1234:1::/:/bin/sh\nb:x:1234:1::/:/bin/sh\n", "walter:x:4294968530:1::/:/bin/sh\n",
	} {
		if u, err := parse(line, 1234); err == nil {
			t.Errorf("%q is %+v", line, u)
		}
	}
}

func TestEnviron(t *testing.T) {
	u := User{Name: "walter", Home: "/home/walter", Shell: "/bin/bash"}
	got := u.Environ([]string{"PATH=/bin", "HOME=/root", "XDG_RUNTIME_DIR=/run/user/0", "SUDO_UID=1", "HOMEPAGE=x", "SSH_AUTH_SOCK=/s", "USER=root"})
	want := "PATH=/bin HOMEPAGE=x HOME=/home/walter USER=walter LOGNAME=walter SHELL=/bin/bash"
	if text := strings.Join(got, " "); text != want {
		t.Errorf("%s, want %s", text, want)
	}
}
