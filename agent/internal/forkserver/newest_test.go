package forkserver

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// otherRoot names a variable with the root of a Debian that has newer versions of CPython and the C
// library than the machine:
//
//	mmdebstrap --variant=essential --include=python3-torch sid ROOT
const otherRoot = "GOLAUNCH_TEST_TORCH"

// enter runs this package's tests in another root. The mounts end with the tests.
const enter = `mount -t proc proc "$0/proc" && mount --rbind /dev "$0/dev" && mount -t tmpfs none "$0/tmp" && mount -t tmpfs none "$0/mnt" &&
	mkdir "$0/mnt/package" && mount --bind . "$0/mnt/package" && cp "$1" "$0/mnt/tests" && shift &&
	exec chroot "$0" env -i --chdir=/mnt/package HOME=/root PATH=/usr/bin:/bin GOLAUNCH_TEST_ALL="$GOLAUNCH_TEST_ALL" /mnt/tests "$@"`

// TestTheNewest runs the tests that need only Python with the newest one in Debian.
func TestTheNewest(t *testing.T) {
	root := os.Getenv(otherRoot)
	if root == "" || os.Getuid() != 0 {
		suite.Missing(t, "%s names no root that has a newer Python, or this is not root", otherRoot)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "unshare", "--mount", "sh", "-c", enter, root, self, "-test.v", "-test.run=^Test(TheSame|TheEnvironment|AFork|Modules)")
	cmd.WaitDelay = patience
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	for _, test := range []string{"TestTheSame", "TestTheEnvironmentOfAFork", "TestAForkThatIsLost", "TestModulesThatRanksShare"} {
		if !strings.Contains(string(out), "--- PASS: "+test) {
			t.Errorf("%s did not run:\n%s", test, out)
		}
	}
}
