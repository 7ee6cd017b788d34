// Package nccltest makes a libnccl and a libcuda that need no GPU: they reduce for real, between
// processes of one machine. It is for tests, on Linux, with a C compiler.
package nccltest

import (
	"embed"
	"fmt"
	"os/exec"
	"path/filepath"
	"testing"
)

//go:embed testdata/*.c
var sources embed.FS

// Libraries compiles both into a folder, for LD_LIBRARY_PATH. The environment of the process that
// loads them has faults: FAKE_NCCL is a list of NODE=FAULT with blanks between, in which * is every
// node. NODE is GOLAUNCH_NODE, and FAULT is one of
//
//	load    loading the library does not return
//	stuck   an all-reduce with other nodes is never done
//	link    no communicator has other nodes in it
//	async   an all-reduce with other nodes fails once it is under way
//	sum     each sum is wrong
//	slow    a large all-reduce with other nodes takes 200 ms longer
//	crash   the process dies when it joins a communicator
//	old     the version is 2.20.3, not 2.21.5
//	gpu     the driver finds no GPU
//
// Defines are for the compiler: -DBEFORE_2_23 omits the functions that older versions do not have.
func Libraries(t testing.TB, defines ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	defines = append(defines, fmt.Sprintf("-DDIR=%q", dir))
	for source, library := range map[string]string{"libcuda.c": "libcuda.so.1", "libnccl.c": "libnccl.so.2"} {
		text, err := sources.Open("testdata/" + source)
		if err != nil {
			t.Fatal(err)
		}
		cc := exec.Command("cc", append(defines, "-O1", "-shared", "-fPIC", "-x", "c", "-o", filepath.Join(dir, library), "-")...)
		cc.Stdin = text
		if out, err := cc.CombinedOutput(); err != nil {
			t.Fatalf("cc %s: %v\n%s", source, err, out)
		}
	}
	return dir
}
