// Package forkserver starts Python programs as forks of a process that has imported their modules.
//
// It does for whole programs what the forkserver of Python's multiprocessing does for functions. To
// itself and to others, a forked process looks like the process of `python script.py`.
// docs/preload.md says what all forks of one server nevertheless share, and what a server refuses.
//
// A [Server] is a proc.Forker. Its forks are children of the process that started the server
// (CLONE_PARENT).
package forkserver

import (
	"cmp"
	"context"
	"embed"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/internal/host/helper/frame"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/launcher/report"
)

//go:embed server
var server embed.FS

// text is the server's program: its files in this order.
var text = sync.OnceValue(func() string {
	var all strings.Builder
	for _, job := range []string{"base", "order", "unsafe", "variables", "side_effects", "imports", "random_seeds", "kernel", "fork", "program", "serve"} {
		part, err := server.ReadFile("server/" + job + ".py")
		if err != nil {
			panic(err) // this package was built without the file
		}
		all.Write(part)
		all.WriteString("\n\n")
	}
	return all.String()
})

// stub is the program that the interpreter gets. It reads the server's text and runs it in a
// namespace of its own. The stub also reports an unsupported Python, which could not parse the
// text.
const stub = `import os,sys,struct;` +
	`b=("failed\0Python %%d.%%d is not CPython 3.9 to 3.14\0"%%sys.version_info[:2]).encode();` +
	`sys.version_info>=(3,9)or os._exit(os.write(0,struct.pack(">I",len(b))+b)and 1);` +
	`exec(compile(open(0,"rb",closefd=False).read(%d),"<golaunch>","exec"),{"__name__":"golaunch"})`

// maxMessage bounds a message, in bytes. A program's arguments and environment (at most 6 MiB,
// execve(2)) fit into it, and so do the [Stamps] of 100,000 files.
const maxMessage = 64 << 20

// Server is a process that has imported modules.
type Server struct {
	conn    *net.UnixConn
	program Program

	// Took is how long the imports took. Modules are the modules that took longest.
	Took    time.Duration
	Modules []report.Module
	stamp   Stamps

	mu     sync.Mutex
	broken error

	// forking counts the calls of Fork and Become that have not returned. held are the ranks that
	// wait for the last of these calls: if they ran at once, they would compete with the later
	// forks for CPUs.
	gates   sync.Mutex
	forking int
	held    []*fork
}

// ImportError says that a module could not be imported.
type ImportError struct {
	// Traceback is Python's traceback, without the server's own frames.
	Traceback string
}

func (e *ImportError) Error() string {
	lines := strings.Split(strings.TrimSpace(e.Traceback), "\n")
	return lines[len(lines)-1]
}

// UnsafeError says why a process must not be forked from the server, although the process could run
// by itself. Module is the module whose import was the cause, if an import was. Files are the files
// that the server had imported by then.
type UnsafeError struct {
	Why, Module string
	Files       Stamps
}

func (e *UnsafeError) Error() string { return e.Why }

// Argv returns the command line of a server for a program. The argument what describes the process
// to people who see it in ps(1).
func Argv(p Program, what string) []string {
	argv := append([]string{p.Interpreter}, p.Flags...)
	return append(argv, "-c", fmt.Sprintf(stub, len(text())), what)
}

// Modules are the modules that a server imports.
type Modules struct {
	Names []string
	// Record, if set, is a file for the names of modules. When a program with LOCAL_RANK=0 ends, it
	// writes there the modules that it has loaded from outside its own folder, one a line. With
	// Record, the server skips modules that it cannot import.
	Record string
}

// Pair returns the two ends of a server's connection: golaunch's end, and the server's standard
// input. The caller must close stdin once the server has started; otherwise the end of the server
// goes unnoticed.
func Pair() (conn *net.UnixConn, stdin *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make the connection of a fork server: %w", err)
	}
	own, stdin := os.NewFile(uintptr(fds[0]), "fork server"), os.NewFile(uintptr(fds[1]), "fork server's input")
	defer own.Close()
	c, err := net.FileConn(own)
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("make the connection of a fork server: %w", err), stdin.Close())
	}
	return c.(*net.UnixConn), stdin, nil
}

// Greet sends a server its text and the environment that the server was started with, and waits
// until the server has imported its modules. It owns conn. The error may be an [*ImportError] or an
// [*UnsafeError]. Any other error says why there is no server.
func Greet(ctx context.Context, conn *net.UnixConn, p Program, modules Modules, env []string) (*Server, error) {
	s, err := greet(ctx, conn, p, modules, env)
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return s, nil
}

func greet(ctx context.Context, conn *net.UnixConn, p Program, modules Modules, env []string) (*Server, error) {
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	words, err := hello(conn, modules, env)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.EPIPE), errors.Is(err, unix.ECONNRESET):
		return nil, errors.New("the fork server ended before it had imported its modules")
	case err != nil:
		return nil, fmt.Errorf("wait for the fork server: %w", err)
	case len(words) == 2 && words[0] == "failed":
		return nil, errors.New(words[1])
	case len(words) < 6 || words[0] != "ready":
		return nil, fmt.Errorf("unexpected message from the fork server: %.80q", words)
	case words[2] != "":
		return nil, &ImportError{words[2]}
	case words[4] != "":
		return nil, &UnsafeError{Why: words[4], Module: words[3], Files: stampsOf(words[6:])}
	}
	seconds, err := strconv.ParseFloat(words[1], 64)
	if err != nil {
		return nil, fmt.Errorf("unexpected message from the fork server: %.80q", words)
	}
	return &Server{
		conn: conn, program: p, Took: time.Duration(seconds * float64(time.Second)), Modules: modulesOf(words[5]), stamp: stampsOf(words[6:]),
	}, nil
}

// modulesOf reads words such as NAME=SECONDS.
func modulesOf(text string) (all []report.Module) {
	for word := range strings.FieldsSeq(text) {
		name, number, _ := strings.Cut(word, "=")
		if seconds, err := strconv.ParseFloat(number, 64); err == nil {
			all = append(all, report.Module{Name: name, Seconds: seconds})
		}
	}
	return all
}

// Share returns a server that another process has greeted. The stamps of the server's files are not
// known here. The returned Server owns conn. Only one of the two processes may fork from the
// server.
func Share(conn *net.UnixConn, p Program) *Server { return &Server{conn: conn, program: p} }

// Conn returns the server's connection, to be shared with the server's parent process.
func (s *Server) Conn() *net.UnixConn { return s.conn }

// Program returns the program that the server forks.
func (s *Server) Program() Program { return s.program }

// hello exchanges the first messages, and returns the server's last one.
func hello(conn *net.UnixConn, modules Modules, env []string) ([]string, error) {
	_, refused := io.WriteString(conn, text()) // a server that does not read the text may still say why
	words, err := receive(conn)
	if err != nil {
		return nil, cmp.Or(refused, err)
	}
	if len(words) != 1 {
		return words, nil
	}
	given := append([]string{modules.Record, strconv.Itoa(len(modules.Names))}, modules.Names...)
	if err := send(conn, append(given, env...)); err != nil {
		return nil, err
	}
	return receive(conn)
}

// Close lets the server end. Its forks keep running.
func (s *Server) Close() error { return s.conn.Close() }

// Files returns how many files the server's modules came from.
func (s *Server) Files() int { return len(s.stamp) }

// Err says why the server cannot be used any more: it was killed, or did not answer in time.
func (s *Server) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.broken
}

// Changed fails if a file of the server's modules has changed, see [Stamps.Changed].
func (s *Server) Changed(as *safefile.Rights) error { return s.stamp.Changed(as) }

func send(conn *net.UnixConn, words []string, fds ...int) error {
	return frame.Send(frame.Over(conn), frame.Words(words), fds...)
}

func receive(conn *net.UnixConn) ([]string, error) {
	body, _, err := frame.Receive(frame.Over(conn), maxMessage, 0)
	if err != nil {
		return nil, err
	}
	return frame.Split(body), nil
}
