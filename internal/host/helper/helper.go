// Package helper recognizes golaunch's helper processes, which are this program started again, such
// as the guardian of ranks, their keeper, a simulated node or a GPU probe.
//
// Two things together identify a helper: its argv[0], which says what the helper is for, and the
// inherited descriptor [Proof]. This is a sealed file in memory, with a text that no other file
// there has. The caller of a program chooses its arguments, its name and its environment, often
// without knowing what the program imports, but never passes that descriptor by chance. So
// importing golaunch changes nothing in a program.
package helper

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Proof is the descriptor that identifies a helper. The helper's further files follow, from First
// on.
const (
	Proof = 3
	First = Proof + 1
)

const (
	text  = "this process is a helper of golaunch's\n"
	seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
)

// File returns the file that a helper needs as its descriptor Proof. Every call returns the same
// file, which stays open.
func File() (*os.File, error) { return proof() }

var proof = sync.OnceValues(func() (*os.File, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate("golaunch-helper", flags|unix.MFD_NOEXEC_SEAL) // sysctl vm.memfd_noexec may require it
	if err == unix.EINVAL {                                                    // before Linux 6.3
		fd, err = unix.MemfdCreate("golaunch-helper", flags)
	}
	if err != nil {
		return nil, fmt.Errorf("cannot make the file that identifies helper processes: memfd_create: %w", err)
	}
	if _, err = unix.Pwrite(fd, []byte(text), 0); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("cannot make the file that identifies helper processes: %w", err)
	}
	return os.NewFile(uintptr(fd), "proof"), nil
})

// Is reports whether this process is the helper of a name. If so, it closes Proof. Only an init
// function may call Is, and must not return if Is returns true.
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

// Rename changes a helper's thread name, which ps and pkill see, so that pkill golaunch and killall
// golaunch do not kill the helper.
func Rename(name string) error {
	text, err := unix.BytePtrFromString(name)
	if err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_NAME, uintptr(unsafe.Pointer(text)), 0, 0, 0)
}

// Signals returns the signals that must not end a helper which outlives its parent.
func Signals() []os.Signal {
	return []os.Signal{
		syscall.SIGHUP, syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGUSR2, syscall.SIGALRM,
		syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU,
	}
}

// Enlistment is the variable with the order of an agent that Slurm starts. The order has the secret
// of the agent's job.
const Enlistment = "GOLAUNCH_ENLISTMENT"

// Env returns this process's environment without golaunch's secrets: a rank's user may read the
// environment of the helpers that serve it (/proc/PID/environ).
func Env() []string {
	return slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "GOLAUNCH_TOKEN=") || strings.HasPrefix(v, Enlistment+"=")
	})
}
