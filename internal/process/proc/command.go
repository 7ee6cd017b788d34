package proc

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/launcher/report"
)

// Exit codes of a command that did not start, as in POSIX shells and env(1).
const (
	codeOwn           = 125
	codeNotExecutable = 126
	codeNotFound      = 127
)

// Command describes a process to start.
type Command struct {
	// Path is the program. Without a slash it is looked up in the PATH of Env, as execvp(3) does.
	// Relative paths start at Dir.
	Path string
	// Args has all arguments, with the program's name as Args[0].
	Args []string
	// Env is the whole environment, NAME=value.
	Env []string
	// Dir is the working directory; the directory of this process when empty.
	Dir string
	// Stdin, Stdout and Stderr are /dev/null when nil. They become blocking files, as with os/exec.
	Stdin, Stdout, Stderr *os.File
	// CPUs are the CPUs that the process may run on; all CPUs of this process when empty.
	CPUs []int
	// Rights are the rights of the process's user; the rights of this process when nil. The program
	// is also looked up with these rights.
	Rights *safefile.Rights
	// Memory is the ID of the NUMA node whose memory it prefers (MPOL_PREFERRED, set_mempolicy(2));
	// nil keeps this process's policy.
	Memory *int
	// Forker makes the process, if it can. If it is nil or fails, fork and exec make it, see
	// [Process.Forked].
	Forker Forker
	// ForkOnly says that the command does not start if its Forker fails.
	ForkOnly bool
	// Serves says that a Forker makes forks of this process. The process's scope may then live as
	// long as the supervisor, so a search for orphans does not wait for the end of this scope.
	Serves bool
	// Looking, if set, is called before [Check] looks at a file. It lets the caller name the file
	// if the file system does not answer.
	Looking func(path string)
}

// Forker makes processes that have already done the first part of a program, such as its imports.
type Forker interface {
	// Fork makes a child of this process that waits for [Fork.Become]. The child calls setsid once
	// [Birth.Born] has returned. Until then it stays in the session of its server, which has
	// [Command.Serves]. A lost child is found in that session. Fork fails if Born or [Birth.Apart]
	// fails.
	Fork(b Birth) (Fork, error)
}

// Birth has the requirements of a scope for a fork, and the calls by which the scope admits the
// fork.
type Birth struct {
	// Cgroup is the descriptor of the cgroup in which the process begins; -1 for its server's
	// cgroup.
	Cgroup int
	// Rights are the rights of the process's user; the rights of this process when nil.
	Rights *safefile.Rights
	// Born is called when there is a child, even if the child then fails. Its error says why the
	// process with this number cannot be such a fork. After an error, Fork must leave that process
	// alone.
	Born func(pid int) error
	// Apart is called when the child has called setsid. Its error says that this is not true.
	Apart func() error
}

// Fork is a process that waits to become the process of a command. It ends when this process ends.
type Fork interface {
	// Become makes the fork the process of c, with an environment and three open files. The process
	// does nothing more before run is called, and ends if run is never called.
	Become(c *Command, env []string, files []uintptr) (run func(), err error)
	// Close ends a process that has not become the process of a command.
	Close() error
}

// StartError says why a command did not start.
type StartError struct {
	// Exit has the code 127 (not found), 126 (not executable) or 125 (anything else), and the
	// reason in words.
	Exit report.Exit
}

func (e *StartError) Error() string { return e.Exit.Spawn }

func (c *Command) failure(code int, format string, args ...any) *StartError {
	return &StartError{report.Exit{Code: code, Spawn: fmt.Sprintf("start %q: ", c.Path) + fmt.Sprintf(format, args...)}}
}

// prepare checks a command and finds its program and its files.
func prepare(c *Command, null *os.File) (files []uintptr, path string, fail *StartError) {
	if err := checkStrings(c); err != nil {
		return nil, "", c.failure(codeOwn, "%v", err)
	}
	files, err := descriptors(null, c.Stdin, c.Stdout, c.Stderr)
	if err != nil {
		return nil, "", c.failure(codeOwn, "%v", err)
	}
	fail = c.as(func() *StartError {
		path, fail = lookPath(c)
		return fail
	})
	return files, path, fail
}

// as calls f with the rights of the process's user.
func (c *Command) as(f func() *StartError) (fail *StartError) {
	err := c.Rights.Do(func() error {
		fail = f()
		return nil
	})
	if err != nil {
		return c.failure(codeOwn, "%v", err)
	}
	return fail
}

// access returns an error if this thread's user may not execute a file or enter a directory.
func access(file string) error {
	return unix.Faccessat(unix.AT_FDCWD, file, unix.X_OK, unix.AT_EACCESS)
}

// Check returns an error if a command would not start. It finds all causes that can be found
// without starting the command.
func Check(c Command) *StartError {
	if err := checkStrings(&c); err != nil {
		return c.failure(codeOwn, "%v", err)
	}
	return c.as(c.check)
}

func (c *Command) check() *StartError {
	path, fail := lookPath(c)
	if fail != nil {
		return fail
	}
	c.look(c.Dir)
	if c.Dir != "" && access(c.Dir) != nil {
		return diagnose(c, path, unix.EACCES)
	}
	if err := access(c.at(path)); err != nil {
		return diagnose(c, path, err)
	}
	if info, err := os.Stat(c.at(path)); err == nil && info.IsDir() {
		return diagnose(c, path, unix.EACCES)
	}
	return nil
}

// checkStrings fails for a NUL, which would end a string early for the kernel.
func checkStrings(c *Command) error {
	if len(c.Args) == 0 {
		return errors.New("no arguments, not even the program's name")
	}
	for i, a := range c.Args {
		if strings.ContainsRune(a, 0) {
			return fmt.Errorf("argument %d has a NUL byte in it", i)
		}
	}
	for _, e := range c.Env {
		if strings.ContainsRune(e, 0) {
			name, _, _ := strings.Cut(e, "=")
			return fmt.Errorf("environment variable %q has a NUL byte in it", name)
		}
	}
	if strings.ContainsRune(c.Path+c.Dir, 0) {
		return fmt.Errorf("the path or the working directory %q has a NUL byte in it", c.Dir)
	}
	return nil
}

// lookPath finds a program as execvp does, without a fork for each directory. It returns the first
// executable file. It fails with 126 if it found only a file that is not executable, otherwise with
// 127.
func lookPath(c *Command) (string, *StartError) {
	if strings.Contains(c.Path, "/") {
		return c.Path, nil
	}
	path := searchPath(c.Env)
	var denied string
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, c.Path)
		info, err := os.Stat(c.at(file))
		switch {
		case err != nil || info.IsDir() || c.Path == "":
		case access(c.at(file)) == nil:
			return file, nil
		case denied == "":
			denied = file
		}
	}
	if denied != "" {
		return "", c.failure(codeNotExecutable, "%s is not executable; chmod +x it, or run it with its interpreter", denied)
	}
	return "", c.failure(codeNotFound, "not found in the PATH %q", path)
}

// at returns the path, as seen from here, at which the process will find a file.
func (c *Command) at(file string) string {
	if !filepath.IsAbs(file) {
		file = filepath.Join(c.Dir, file)
	}
	c.look(file)
	return file
}

func (c *Command) look(path string) {
	if c.Looking != nil && path != "" {
		c.Looking(path)
	}
}

// searchPath returns the PATH of an environment, or else the default of execvp in glibc.
func searchPath(env []string) string {
	for _, e := range env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok {
			return path
		}
	}
	return "/bin:/usr/bin"
}

// diagnose finds out why the kernel did not start a program: fork, chdir and execve share one error
// number.
func diagnose(c *Command, path string, err error) *StartError {
	if c.Dir != "" {
		if info, dirErr := os.Stat(c.Dir); dirErr != nil {
			return c.failure(codeNotFound, "working directory: %v", dirErr)
		} else if !info.IsDir() || access(c.Dir) != nil {
			return c.failure(codeNotExecutable, "cannot enter the working directory %s", c.Dir)
		}
	}
	info, statErr := os.Stat(c.at(path))
	switch {
	case errors.Is(err, unix.ENOENT) && statErr == nil:
		return c.failure(codeNotFound, "%s exists, but its interpreter does not: %s", path, interpreter(c.at(path)))
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return c.failure(codeNotFound, "%v", err)
	case errors.Is(err, unix.EACCES) && statErr == nil && info.IsDir():
		return c.failure(codeNotExecutable, "it is a directory")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return c.failure(codeNotExecutable, "%v; is it executable (chmod +x), and on a file system without noexec?", err)
	case errors.Is(err, unix.ENOEXEC):
		return c.failure(codeNotExecutable, "%v; a script needs a #! line, a binary this machine's architecture", err)
	case errors.Is(err, unix.E2BIG):
		return c.failure(codeNotExecutable, "%v: arguments and environment have %d bytes; see execve(2) for the limits",
			err, size(c.Args)+size(c.Env))
	case isOwn(err):
		return c.failure(codeOwn, "%v; see ulimit -u, ulimit -n and the pids limit of the cgroup", err)
	default:
		return c.failure(codeNotExecutable, "%v", err)
	}
}

// isOwn reports whether an error is about resources and not about the program.
func isOwn(err error) bool {
	own := []error{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE, unix.EBUSY, unix.ENODEV, unix.EOPNOTSUPP}
	return slices.ContainsFunc(own, func(own error) bool { return errors.Is(err, own) })
}

func size(words []string) int {
	n := 0
	for _, w := range words {
		n += len(w) + 1
	}
	return n
}

// interpreter names the program that the kernel looked for to run an existing file.
func interpreter(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return err.Error()
	}
	defer f.Close()
	head := make([]byte, 256)
	n, err := f.Read(head)
	if err != nil {
		return err.Error()
	}
	line, _, _ := bytes.Cut(head[:n], []byte("\n"))
	if script, ok := bytes.CutPrefix(line, []byte("#!")); ok {
		name := fmt.Sprintf("%q", bytes.TrimLeft(script, " \t"))
		if bytes.HasSuffix(script, []byte("\r")) {
			name += `; the script's lines end in \r\n, as on Windows (dos2unix converts them)`
		}
		return name
	}
	return "its dynamic loader (readelf -l shows which)"
}
