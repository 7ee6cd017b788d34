// Package controller lets a program in another language run groups of workers on reserved nodes.
//
// The program starts golaunch with a socket as standard input. Both ends write lines of JSON. Each
// question of the program has one answer, with the question's number. Between answers golaunch
// reports each step of a group. When the program ends, its groups, its reservation and a cluster
// that was started for it end too.
package controller

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/golaunch/golaunch/launcher"
)

const (
	// maxLine bounds a question: a job of a cluster has 512 KiB at most, and JSON needs up to 6
	// bytes for each byte.
	maxLine = 4 << 20
	// maxAsked bounds the questions that have no answer yet.
	maxAsked = 1024
	// endLimit bounds the wait for the end of all groups after the program has ended. If the limit
	// passes, guardians and leases end the groups.
	endLimit = time.Minute
	// lastLimit bounds the wait for the program to read the last messages.
	lastLimit = time.Second
)

// question is a request of the program. Do is a verb, and With its arguments.
type question struct {
	ID   int             `json:"id"`
	Do   string          `json:"do"`
	With json.RawMessage `json:"with"`
}

// answer is the reply to a question.
type answer struct {
	ID    int    `json:"id"`
	Value any    `json:"value,omitempty"`
	Error string `json:"error,omitempty"`
	// Usage is true if the question itself is wrong, so that asking again cannot help.
	Usage bool `json:"usage,omitempty"`
}

// controller serves one program.
type controller struct {
	ctx context.Context
	// out is never closed, so that a late sender does not panic. When over is closed, nothing more is
	// written to the program.
	out  chan any
	over chan struct{}

	mu     sync.Mutex
	client *launcher.Client
	// tls is the program's side of connections to workers' endpoints.
	tls  *tls.Config
	held map[string]*launcher.Reservation
	// socket is the program's socket.
	socket string
	// end ends the cluster that was started for the program.
	end func()
	// running counts the watches of groups, and answering counts the unanswered questions.
	running, answering sync.WaitGroup
	stdout, stderr     io.Writer
}

// verbs are the questions that a program can ask.
var verbs = map[string]func(*controller, context.Context, json.RawMessage) (any, error){
	"open": does((*controller).open), "reserve": does((*controller).reserve), "release": does((*controller).release),
	"start": does((*controller).start), "stop": does((*controller).stop), "usage": does((*controller).usage),
	"stacks": does((*controller).stacks), "freed": does((*controller).freed), "certificate": does((*controller).certificate),
	"gpus": does((*controller).gpus),
}

// does decodes the arguments of a verb.
func does[With, Value any](do func(*controller, context.Context, With) (Value, error)) func(*controller, context.Context, json.RawMessage) (any, error) {
	return func(c *controller, ctx context.Context, text json.RawMessage) (any, error) {
		var with With
		if len(text) > 0 {
			if err := json.Unmarshal(text, &with); err != nil {
				return nil, fmt.Errorf("%w: cannot read what the program asks: %w; install the same golaunch for Python and as a command", launcher.ErrUsage, err)
			}
		}
		return do(c, ctx, with)
	}
}

// Serve serves the program at the other end of conn until it closes conn, dies, or ctx ends. The
// output of workers goes to stdout and stderr.
func Serve(ctx context.Context, stdin *os.File, stdout, stderr io.Writer) error {
	conn, err := pollable(stdin)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ctx, unheard := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	defer unheard()
	c := &controller{
		ctx: ctx, out: make(chan any, maxAsked), over: make(chan struct{}), held: map[string]*launcher.Reservation{}, end: func() {}, stdout: stdout, stderr: stderr,
	}
	if err := withParent(ctx, cancel); err != nil {
		return err
	}
	asked := make(chan error, 1)
	go func() {
		asked <- c.listen(conn)
		cancel()
	}()
	said := make(chan struct{})
	go func() {
		defer close(said)
		defer cancel()
		c.say(conn)
	}()
	<-ctx.Done()
	_ = conn.SetReadDeadline(time.Now()) // no new question is read
	err = <-asked
	c.close()
	close(c.over)
	_ = conn.SetWriteDeadline(time.Now().Add(lastLimit)) // a stopped program does not read
	<-said
	conn.Close()
	return err
}

// pollable returns a descriptor of the same file whose reads end when it is closed.
func pollable(f *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(f.Fd(), unix.F_DUPFD_CLOEXEC, 3)
	if err == nil {
		err = unix.SetNonblock(fd, true)
	}
	if err != nil {
		return nil, fmt.Errorf("use the connection to the program that this is for: %w", err)
	}
	return os.NewFile(uintptr(fd), "program"), nil
}

// withParent returns a context that ends with this process's parent, although a fork of the parent
// may keep the connection open.
func withParent(ctx context.Context, cancel func()) error {
	fd, err := unix.PidfdOpen(os.Getppid(), unix.PIDFD_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watch the program that this is for: %w", err)
	}
	parent := os.NewFile(uintptr(fd), "parent")
	go func() {
		defer parent.Close()
		raw, err := parent.SyscallConn()
		if err == nil {
			first := true // the kernel says that a process has ended by making its descriptor readable
			err = raw.Read(func(fd uintptr) bool {
				n, _ := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
				ended := n > 0 || !first
				first = false
				return ended
			})
		}
		if err == nil {
			cancel()
		}
	}()
	context.AfterFunc(ctx, func() { _ = parent.SetReadDeadline(time.Now()) })
	return nil
}

// listen answers the questions, each in a goroutine of its own.
func (c *controller) listen(conn io.Reader) error {
	questions := questionsOf(conn)
	slots := make(chan struct{}, maxAsked)
	for {
		q, tooLong, err := questions.next()
		switch {
		case errors.Is(err, io.EOF), err != nil && c.ctx.Err() != nil,
			errors.Is(err, syscall.ECONNRESET): // the program has ended without reading all messages
			return nil //nolint:nilerr // that is how a program ends
		case err != nil:
			return fmt.Errorf("cannot read the questions of the program: %w", err)
		}
		slots <- struct{}{}
		c.answering.Go(func() {
			defer func() { <-slots }()
			if tooLong != nil {
				c.tell(answer{ID: q.ID, Error: tooLong.Error(), Usage: true})
				return
			}
			c.tell(c.answer(q))
		})
	}
}

func (c *controller) answer(q question) answer {
	do, known := verbs[q.Do]
	if !known {
		return answer{ID: q.ID, Error: fmt.Sprintf("this golaunch does not know %q; install the same golaunch for Python and as a command", q.Do), Usage: true}
	}
	value, err := do(c, c.ctx, q.With)
	if err != nil {
		return answer{ID: q.ID, Error: err.Error(), Usage: errors.Is(err, launcher.ErrUsage)}
	}
	return answer{ID: q.ID, Value: value}
}

// tell sends a message to the program, unless it has ended.
func (c *controller) tell(what any) {
	select {
	case c.out <- what:
	case <-c.ctx.Done():
	}
}

func (c *controller) say(conn io.Writer) {
	lines := json.NewEncoder(conn)
	for {
		select {
		case what := <-c.out:
			if lines.Encode(what) != nil {
				return // the program does not read any more
			}
		case <-c.over:
			return
		}
	}
}

// close ends the program's groups, its reservations, and then its cluster.
func (c *controller) close() {
	c.answering.Wait()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), endLimit)
	defer cancel()
	c.mu.Lock()
	client, held, end, socket := c.client, c.held, c.end, c.socket
	c.mu.Unlock()
	for id, r := range held {
		if err := r.Release(ctx); err != nil { // the program no longer reads answers
			fmt.Fprintf(c.stderr, "golaunch: the groups on %s may run on until the coordinator misses this process: %v\n", id, err)
		}
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.running.Wait()
	}()
	select {
	case <-ended:
	case <-ctx.Done():
	}
	if client != nil {
		client.Close() // this ends all watches
	}
	<-ended
	end()
	if socket != "" {
		os.Remove(socket)
		os.Remove(filepath.Dir(socket))
	}
}
