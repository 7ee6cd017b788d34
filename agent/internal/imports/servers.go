// Package imports runs the fork servers that import modules for ranks.
package imports

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/agent/internal/forkserver"
	"github.com/golaunch/golaunch/agent/internal/ranks"
	"github.com/golaunch/golaunch/internal/host/safefile"
	"github.com/golaunch/golaunch/internal/process/console"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/rankenv"
)

// Options are what the fork servers of a job need to know.
type Options struct {
	Job, Node string
	// Command and Dir are the command and the directory of the ranks. Modules are imported before
	// the ranks start. With FromLastRun, the server imports instead the modules that rank 0 loaded
	// in the last run of the command on this node.
	Command     []string
	Dir         string
	Modules     []string
	FromLastRun bool
	// Env is the node's part of the ranks' environment. SampleEnv returns the environment of one
	// rank, without the variables that differ between ranks.
	Env       *rankenv.Base
	SampleEnv func() []string
	// LocalSize is how many ranks will run here, or 0 while the number is unknown.
	LocalSize int
	// Await waits for the files of the command. It is nil if the files are here.
	Await   func()
	Rights  *safefile.Rights
	Starter ranks.Starter
	// Pool keeps the last server for the next job. If it is nil, the server ends with the job.
	Pool *Pool
	Say  func(string)
	Warn func(error)
}

// Servers keeps a fork server ready for the ranks of a job. OMP_NUM_THREADS depends on the number
// of ranks. If the number is known, the server starts with the job; otherwise with the first
// attempt. A server that has died, or whose modules have changed, is replaced.
type Servers struct {
	Options
	program forkserver.Program
	// list names the modules to import. It is nil if Options.Modules names them.
	list *moduleList
	// unfit says why no server can run the job's command.
	unfit error
	made  int

	mu      sync.Mutex
	current *Server
	ended   bool
	// retiring waits for the end of the servers before the current one.
	retiring sync.WaitGroup

	// warned is the last reason that was given to Warn.
	warning sync.Mutex
	warned  string
}

// New begins to import in the background.
func New(o Options) *Servers {
	s := &Servers{Options: o}
	s.program, s.unfit = forkserver.Parse(o.Command)
	s.mu.Lock()
	go func() { // the caller must not wait for a slow file system
		defer s.mu.Unlock()
		if o.Await != nil {
			o.Await()
		}
		if s.unfit == nil && o.FromLastRun {
			s.list, s.unfit = newModuleList(s.program, o)
		}
		if s.unfit == nil && o.LocalSize > 0 {
			s.begin(importEnv(o.Env, o.Env.Environ(rankenv.Facts{LocalWorldSize: o.LocalSize})))
		}
	}()
	return s
}

// importEnv drops the variables that differ between ranks or attempts. Of golaunch's own variables
// it keeps PYTHONUNBUFFERED and OMP_NUM_THREADS, which Python and libraries read when they are
// loaded.
func importEnv(base *rankenv.Base, rank []string) []string {
	var env []string
	for _, v := range base.Explain(rankenv.Facts{}).Vars {
		if v.Source == rankenv.User || v.Source == rankenv.Inherited || v.Source == rankenv.Preset {
			env = append(env, v.Name+"="+v.Value)
		}
	}
	for _, word := range rank {
		if (strings.HasPrefix(word, "OMP_") || strings.HasPrefix(word, "PYTHON")) && !slices.Contains(env, word) {
			env = append(env, word)
		}
	}
	return env
}

const (
	// longImport is the time above which imports are reported even if the job did not name its
	// modules.
	longImport = 100 * time.Millisecond
	// longWait is how long an attempt waits before golaunch says what it waits for. importLimit is
	// longer than imports from a cold shared file system take.
	longWait    = 2 * time.Second
	importLimit = 15 * time.Minute
)

// Ready returns a server with unchanged modules, for ranks with an environment. It waits for the
// imports until ctx ends. The error says why ranks cannot be forked. The server stays until release
// is called.
func (s *Servers) Ready(ctx context.Context, env []string) (server *Server, release func(), err error) {
	if server, err = s.fresh(importEnv(s.Env, env)); err != nil {
		return nil, func() {}, err
	}
	release = sync.OnceFunc(server.users.Done)
	long, limit := time.After(longWait), time.After(importLimit)
	for {
		select {
		case <-server.imported:
			return server, release, server.err
		case <-ctx.Done():
			return nil, release, context.Cause(ctx)
		case <-limit:
			return nil, release, fmt.Errorf("the imports did not finish within %v", importLimit)
		case <-long:
			s.Say(fmt.Sprintf("%s imports %s before its ranks start", s.Node, s.modules()))
		}
	}
}

// modules returns the names of the modules for people.
func (s *Servers) modules() string {
	if s.list != nil {
		return "what its last run had loaded"
	}
	return strings.Join(s.Modules, ", ")
}

// fresh returns the current server. It returns a new server if a fork of the current one would
// differ from a new process.
func (s *Servers) fresh(env []string) (*Server, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unfit != nil || s.ended {
		return nil, cmp.Or(s.unfit, errUnused)
	}
	var why error
	if s.current != nil {
		why = s.current.stale(env)
	}
	if why != nil {
		s.Say(s.Node + " imports anew: " + console.Visible(why.Error()))
		old := s.current
		s.retiring.Go(func() {
			old.users.Wait() // attempts that began before the change may still fork
			old.end(s.Warn)
		})
	}
	if s.current == nil || why != nil {
		s.begin(env)
	}
	s.current.users.Add(1)
	return s.current, nil
}

// begin takes an earlier job's server, or starts one in the background.
func (s *Servers) begin(env []string) {
	key := s.key(env)
	if s.list == nil {
		if pooled := s.Pool.take(key); pooled != nil && pooled.usable() {
			s.current = pooled
			return
		} else if pooled != nil {
			pooled.end(s.Warn)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	server := &Server{key: key, env: env, rights: s.Rights, imported: make(chan struct{}), cancel: cancel}
	s.current = server
	if why := s.Pool.refused(key, server.rights); why != nil && s.list == nil {
		server.err = why
		close(server.imported)
		return
	}
	s.made++
	name := fmt.Sprintf("%s-imports-%d", s.Job, s.made)
	go func() {
		defer close(server.imported)
		server.server, server.err = s.serve(ctx, server, name)
		if server.err == nil {
			// The next attempt notices the same change, and gets a new server.
			if why := changed(server.server, server.rights); why != nil {
				server.err = fmt.Errorf("while modules were imported, %w", why)
			}
		}
		if unsafe, ok := errors.AsType[*forkserver.UnsafeError](server.err); ok && s.list == nil {
			s.Pool.refuse(key, unsafe)
		}
		if server.err == nil && server.server.Files() > 0 && (s.list == nil || server.Took() > longImport) {
			s.Say(fmt.Sprintf("%s has imported %s in %.1f s, once for all its ranks", s.Node, s.modules(), server.Took().Seconds()))
		}
	}()
}

// key returns equal keys for servers whose forks are equal. The directory is part of the key
// because the interpreter and PYTHONPATH may be relative to it.
func (s *Servers) key(env []string) string {
	return fmt.Sprintf("%q %q %q %q %q %v", s.program.Interpreter, s.program.Flags, s.Dir, s.Modules, env, s.Rights)
}

// serve starts a server. If a module of the list makes a server unfit, serve excludes it and starts
// another server.
func (s *Servers) serve(ctx context.Context, server *Server, name string) (*forkserver.Server, error) {
	if s.list == nil {
		return s.start(ctx, server, name, forkserver.Modules{Names: s.Modules})
	}
	for {
		started, err := s.start(ctx, server, name, forkserver.Modules{Names: s.list.modules(), Record: s.list.path})
		unsafe, ok := errors.AsType[*forkserver.UnsafeError](err)
		if !ok || unsafe.Module == "" || !s.list.exclude(unsafe.Module) {
			return started, err
		}
		if err := server.scope.Close(); err != nil {
			return nil, err
		}
	}
}

func (s *Servers) start(ctx context.Context, server *Server, name string, modules forkserver.Modules) (*forkserver.Server, error) {
	conn, stdin, err := forkserver.Pair()
	if err != nil {
		return nil, err
	}
	output, written, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, conn.Close(), stdin.Close())
	}
	go s.relay(output)
	if server.scope, err = s.Starter.Scope(name, struct{}{}); err == nil {
		argv := forkserver.Argv(s.program, strings.Join(s.Modules, ","))
		server.process, err = ranks.Start(server.scope, proc.Command{
			Path: argv[0], Args: argv, Env: server.env, Dir: s.Dir, Rights: s.Rights,
			Stdin: stdin, Stdout: written, Stderr: written, Serves: true,
		}, struct{}{})
	}
	if err = errors.Join(err, stdin.Close(), written.Close()); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	started, err := forkserver.Greet(ctx, conn, s.program, modules, server.env)
	if err != nil || s.Starter.Keeper == nil {
		return started, err
	}
	if server.kept, err = s.Starter.Keeper.Server(started); err != nil {
		return nil, errors.Join(err, started.Close())
	}
	return started, nil
}

// maxLine bounds a line that modules print while they are imported.
const maxLine = 4 << 10

// relay passes on what modules print while they are imported.
func (s *Servers) relay(output io.ReadCloser) {
	defer output.Close()
	lines := bufio.NewReaderSize(output, maxLine)
	for {
		line, err := lines.ReadSlice('\n')
		if text := strings.TrimRight(string(line), "\r\n"); text != "" {
			s.Say("imports: " + console.Visible(text))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// End leaves the last server to the pool, or ends it. It does nothing to nil Servers.
func (s *Servers) End() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.retiring.Wait()
	switch {
	case s.current == nil:
	case s.list != nil:
		s.current.end(s.Warn)
	default:
		s.Pool.put(s.current, s.Warn)
	}
}

// Unforked warns that ranks import their modules themselves. It does not repeat the last warning.
func (s *Servers) Unforked(why error) {
	s.warning.Lock()
	known := s.warned == why.Error()
	s.warned = why.Error()
	s.warning.Unlock()
	if known {
		return
	}
	if failed, ok := errors.AsType[*forkserver.ImportError](why); ok {
		why = fmt.Errorf("%s cannot be imported:\n%s", s.modules(), strings.TrimSpace(failed.Traceback))
	}
	s.Warn(fmt.Errorf("ranks on %s import for themselves: %s", s.Node, visible(why)))
}

// visible makes an error safe for a terminal: a module may have written its text.
func visible(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		lines[i] = console.Visible(line)
	}
	return strings.Join(lines, "\n")
}
