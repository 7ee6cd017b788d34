package agent

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
	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/process/proc"
	"github.com/golaunch/golaunch/rankenv"
)

// preload has a fork server ready for the ranks of a job: from the time that the job is known here, if it is known then how many ranks are to
// run here, and so their OMP_NUM_THREADS. Its servers follow each other: one whose modules have changed, or that has died, makes room for
// the next.
type preload struct {
	share   *share
	program forkserver.Program
	// list is where the modules stand that programs such as this one have loaded; nil unless they decide.
	list *moduleList
	// unfit is why no server can serve the job's command.
	unfit error
	made  int

	mu      sync.Mutex
	current *warm
	ended   bool
	// retiring are the servers before the current one.
	retiring sync.WaitGroup

	// told is the newest reason that was told.
	telling sync.Mutex
	told    string
}

func newPreload(s *share) *preload {
	p := &preload{share: s}
	p.program, p.unfit = forkserver.Parse(s.work.Task.Command)
	p.mu.Lock()
	go func() { // it may wait for a file system, and the agent's goroutine must not
		defer p.mu.Unlock()
		if p.unfit == nil && s.work.Task.Preload[0] == AutoPreload {
			p.list, p.unfit = listOf(p.program, s)
		}
		if p.unfit == nil && s.work.Task.Local > 0 {
			p.begin(importEnv(s.work.Task.Env, s.work.Task.Env.Environ(rankenv.Facts{LocalWorldSize: s.work.Task.Local})))
		}
	}()
	return p
}

// importEnv is an environment of ranks without what is a rank's own, or an attempt's: of what golaunch sets, it has what Python and libraries
// read when they are loaded, which is PYTHONUNBUFFERED and OMP_NUM_THREADS.
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

// ready returns a server whose modules are as they are now, for ranks with an environment such as env. It waits for the imports, until ctx
// ends. The error is why ranks cannot be forked. The server stays until it is released.
func (p *preload) ready(ctx context.Context, env []string) (w *warm, release func(), err error) {
	if w, err = p.fresh(importEnv(p.share.work.Task.Env, env)); err != nil {
		return nil, func() {}, err
	}
	release = sync.OnceFunc(w.users.Done)
	long, limit := time.After(longWait), time.After(importLimit)
	for {
		select {
		case <-w.done:
			return w, release, w.err
		case <-ctx.Done():
			return nil, release, context.Cause(ctx)
		case <-limit:
			return nil, release, fmt.Errorf("the imports have not ended after %v", importLimit)
		case <-long:
			p.share.agent.Say(fmt.Sprintf("%s imports %s before its ranks start", p.share.agent.session.Node.Name, p.modules()))
		}
	}
}

const (
	// longImport is one that is worth a word though nobody has asked for it.
	longImport = 100 * time.Millisecond
	// longWait is a wait of which people hear. importLimit is more than modules take from a shared file system that is cold.
	longWait    = 2 * time.Second
	importLimit = 15 * time.Minute
)

// modules are for people.
func (p *preload) modules() string {
	if p.list != nil {
		return "what its last run had loaded"
	}
	return strings.Join(p.share.work.Task.Preload, ", ")
}

// fresh returns the current server, or a new one if that would fork what is not what an exec would give.
func (p *preload) fresh(env []string) (*warm, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unfit != nil || p.ended {
		return nil, cmp.Or(p.unfit, errOver)
	}
	why := ""
	if p.current != nil {
		why = p.current.stale(env)
	}
	if why != "" {
		p.share.agent.Say(p.share.agent.session.Node.Name + " imports anew: " + logs.Visible(why))
		old := p.current
		p.retiring.Go(func() {
			old.users.Wait() // other units may have no fault to find with it
			old.end(p.share.agent.Warn)
		})
	}
	if p.current == nil || why != "" {
		p.begin(env)
	}
	p.current.users.Add(1)
	return p.current, nil
}

// begin takes a server of a job before, or starts one in the background.
func (p *preload) begin(env []string) {
	key := p.keyOf(env)
	if p.list == nil {
		if w := p.share.agent.pool.take(key); w != nil && w.usable() {
			p.current = w
			return
		} else if w != nil {
			w.end(p.share.agent.Warn)
		}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	w := &warm{key: key, env: env, rights: p.share.rights(), done: make(chan struct{}), cancel: cancel}
	p.current = w
	if why := p.share.agent.pool.refused(key, w.rights); why != nil && p.list == nil {
		w.err = why
		close(w.done)
		return
	}
	p.made++
	name := fmt.Sprintf("%s-imports-%d", p.share.job, p.made)
	go func() {
		defer close(w.done)
		w.server, w.err = p.serve(ctx, w, name)
		if w.err == nil {
			// The next attempt finds the same, and gets a server that imports it anew.
			if why := changed(w.server, w.rights); why != "" {
				w.err = errors.New("while modules were imported, " + why)
			}
		}
		if unsafe, ok := errors.AsType[*forkserver.UnsafeError](w.err); ok && p.list == nil {
			p.share.agent.pool.refuse(key, unsafe)
		}
		p.tell(w)
	}()
}

// serve starts a server. One that becomes unfit by a module that nobody asked for makes room for one without that.
func (p *preload) serve(ctx context.Context, w *warm, name string) (*forkserver.Server, error) {
	if p.list == nil {
		return p.start(ctx, w, name, forkserver.Modules{Names: p.share.work.Task.Preload})
	}
	for {
		server, err := p.start(ctx, w, name, forkserver.Modules{Names: p.list.modules(), Record: p.list.path})
		unsafe, ok := errors.AsType[*forkserver.UnsafeError](err)
		if !ok || unsafe.Module == "" || !p.list.exclude(unsafe.Module) {
			return server, err
		}
		if err := w.scope.Close(); err != nil {
			return nil, err
		}
	}
}

func (p *preload) start(ctx context.Context, w *warm, name string, modules forkserver.Modules) (*forkserver.Server, error) {
	conn, stdin, err := forkserver.Pair()
	if err != nil {
		return nil, err
	}
	words, said, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, conn.Close(), stdin.Close())
	}
	go p.relay(words)
	if w.scope, err = p.share.agent.newScope(name, keptUnit{}); err == nil {
		argv := forkserver.Argv(p.program, strings.Join(p.share.work.Task.Preload, ","))
		c := proc.Command{
			Path: argv[0], Args: argv, Env: w.env, Dir: p.share.work.Task.Dir, Rights: p.share.rights(),
			Stdin: stdin, Stdout: said, Stderr: said, Serves: true,
		}
		w.process, err = startIn(w.scope, c, keptRank{})
	}
	if err = errors.Join(err, stdin.Close(), said.Close()); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	server, err := forkserver.Greet(ctx, conn, p.program, modules, w.env)
	if err != nil || p.share.agent.keeper == nil {
		return server, err
	}
	if w.kept, err = p.share.agent.keeper.Server(server); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	return server, nil
}

// maxWords bounds a line of what modules print while they are imported.
const maxWords = 4 << 10

// relay passes on what modules print while they are imported.
func (p *preload) relay(words io.ReadCloser) {
	defer words.Close()
	lines := bufio.NewReaderSize(words, maxWords)
	for {
		line, err := lines.ReadSlice('\n')
		if text := strings.TrimRight(string(line), "\r\n"); text != "" {
			p.share.agent.Say("imports: " + logs.Visible(text))
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

// tell says what a new server has done.
func (p *preload) tell(w *warm) {
	if w.err == nil && w.server.Files() > 0 && (p.list == nil || w.server.Took > longImport) {
		p.share.agent.Say(fmt.Sprintf("%s has imported %s in %.1f s, once for all its ranks",
			p.share.agent.session.Node.Name, p.modules(), w.server.Took.Seconds()))
	}
}

// end leaves the last server to the next job of a cluster, or ends it.
func (p *preload) end() {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.retiring.Wait()
	if p.current == nil {
		return
	}
	if p.list != nil {
		p.current.end(p.share.agent.Warn)
	} else {
		p.share.agent.pool.put(p.current, p.share.agent.Warn)
	}
}

// warn tells of a reason that is new.
func (p *preload) warn(node string, why error) {
	p.telling.Lock()
	told := p.told == why.Error()
	p.told = why.Error()
	p.telling.Unlock()
	if told {
		return
	}
	if failed, ok := errors.AsType[*forkserver.ImportError](why); ok {
		why = fmt.Errorf("%s cannot be imported:\n%s", p.modules(), strings.TrimSpace(failed.Traceback))
	}
	p.share.agent.Warn(fmt.Errorf("ranks on %s import for themselves: %s", node, visible(why)))
}

// visible is an error, whose text a module may have written, as it may be shown on a terminal.
func visible(err error) string {
	lines := strings.Split(err.Error(), "\n")
	for i, line := range lines {
		lines[i] = logs.Visible(line)
	}
	return strings.Join(lines, "\n")
}
