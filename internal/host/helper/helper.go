// Package helper is how a program starts itself again as a small process of golaunch's: a guardian of ranks, a simulated node, a probe
// of the GPUs.
//
// Such a process is known by two things together: its argv[0], which says what it is for, and the descriptor [Proof], which it inherits
// and which is a sealed file in memory with a text that nothing else has there. Whoever starts a program chooses its arguments, its
// name and its environment, often without knowing what it imports; nobody gives it that descriptor by chance. So importing golaunch
// changes nothing in a program, whatever it is called and told.
package helper

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Proof is the descriptor by which a helper is known. What else it inherits follows, from First on.
const (
	Proof = 3
	First = Proof + 1
)

const (
	text  = "this process is a helper of golaunch's\n"
	seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
)

// File is what a process that starts a helper has to give it as its descriptor Proof. It is the same at each call, and stays open.
func File() (*os.File, error) { return proof() }

var proof = sync.OnceValues(func() (*os.File, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("golaunch-helper", flags|unix.MFD_NOEXEC_SEAL) // which sysctl vm.memfd_noexec may demand
	if err == unix.EINVAL {                                                    // before Linux 6.3
		fd, err = unix.MemfdCreate("golaunch-helper", flags)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make the file by which a helper process is known: memfd_create: %w", err)
	}
	if _, err = unix.Pwrite(fd, []byte(text), 0); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("cannot make the file by which a helper process is known: %w", err)
	}
	return os.NewFile(uintptr(fd), "proof"), nil
})

// Is says whether this process is the helper of that name, for an init function, which then must not return. The descriptor Proof is
// closed by then.
func Is(name string) bool {
	if len(os.Args) == 0 || os.Args[0] != name {
		return false
	}
	if has, err := unix.FcntlInt(Proof, unix.F_GET_SEALS, 0); err != nil || has&seals != seals {
		return false
	}
	var found [len(text) + 1]byte
	if n, err := unix.Pread(Proof, found[:], 0); err != nil || string(found[:n]) != text {
		return false
	}
	return unix.Close(Proof) == nil
}

// Enlistment is the variable that has the order of an agent which Slurm starts, with the secret of its job.
const Enlistment = "GOLAUNCH_ENLISTMENT"

// Env is this process's environment without the secrets of golaunch's: a rank's user may look at the helpers that serve it
// (/proc/PID/environ). What a helper must know of them, it is told.
func Env() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GOLAUNCH_TOKEN=") || strings.HasPrefix(v, Enlistment+"=")
	})
}
