// Package door is for jobs whose nodes a scheduler started. It tells the nodes where node 0's
// coordinator listens.
//
// These nodes know each other's names and the job's ID, but neither a free port nor a secret. Node
// 0 opens a door at one of a few ports that follow from the ID. The door tells the coordinator's
// address and, sealed by munge, the token. The address need not be secret: no process can join
// without the token. A door's answer names its job, so no node takes the door of another job for
// its own.
package door

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/host/munge"
	"github.com/golaunch/golaunch/internal/host/ports"
	"github.com/golaunch/golaunch/internal/wire/mtls"
)

const (
	portsPerJob = 4
	// portStep is the distance, in the default range, between the ports that a job's door may have.
	portStep = 1237
	// talkLimit bounds one conversation between a door and a node.
	talkLimit = 10 * time.Second
	// maxVisitors bounds concurrent conversations: each may start a munge process.
	maxVisitors = 64
	// maxAnswer bounds an answer, in bytes.
	maxAnswer = 16 << 10
	magic     = "golaunch-door-1"

	// Quiet is how long node 0 may be late before the other nodes say that they wait for it.
	Quiet = 3 * time.Second
	// knockLimit is how long the other nodes wait for node 0. It can be short, because a scheduler
	// starts all nodes at once.
	knockLimit = 5 * time.Minute
)

// defaultPorts are used when the job has no port range.
var defaultPorts = ports.Range{First: 15000, Last: 19999}

// Door has what determines the ports of a job's door: the job's name, and the range of ports, which
// is the same on all nodes.
type Door struct {
	Job   string
	Ports ports.Range
}

// port returns the i-th of the ports that the door may have. In a range smaller than portsPerJob,
// ports repeat.
func (d Door) port(i int) uint16 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, d.Job) // never fails
	r := d.Ports.Or(defaultPorts)
	size, step := uint32(r.Size()), uint32(portStep)
	if !d.Ports.Any() {
		step = max(1, size/portsPerJob)
	}
	return uint16(r.First) + uint16((h.Sum32()%size+uint32(i)*step)%size)
}

// Opened is a door that answers until it is closed.
type Opened struct {
	listener net.Listener
	answer   func(context.Context) (string, error)
	cancel   context.CancelFunc
	running  sync.WaitGroup
}

// Open makes a door at address own. It answers with the coordinator's address and, if sealed is
// set, with the token.
func (d Door) Open(own netip.Addr, coordinator net.Addr, token mtls.Token, sealed bool, warn func(error)) (*Opened, error) {
	l, err := d.listen(own)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	o := &Opened{listener: l, cancel: cancel, answer: func(ctx context.Context) (string, error) {
		open := strings.Join([]string{magic, d.Job, coordinator.String()}, " ")
		if !sealed {
			return open + " -\n", nil
		}
		credential, err := munge.Encode(ctx, open+" "+token.Text())
		return open + " " + credential + "\n", err
	}}
	if _, err := o.answer(ctx); err != nil {
		o.Close()
		return nil, fmt.Errorf("cannot seal the job's token for the other nodes: %w; start munged, or set GOLAUNCH_TOKEN", err)
	}
	o.running.Go(func() { o.serve(ctx, warn) })
	return o, nil
}

func (d Door) listen(own netip.Addr) (l net.Listener, err error) {
	for i := range portsPerJob {
		port := d.port(i)
		if l, err = net.Listen("tcp", netip.AddrPortFrom(own, port).String()); err == nil {
			return l, nil
		}
		err = fmt.Errorf("cannot meet the other nodes of job %s: %w%s; give all of them --rendezvous HOST:PORT",
			d.Job, err, agent.PortHolder(int(port)))
	}
	return nil, err
}

func (o *Opened) serve(ctx context.Context, warn func(error)) {
	slots := make(chan struct{}, maxVisitors)
	for {
		conn, err := o.listener.Accept()
		if err != nil {
			return
		}
		select {
		case slots <- struct{}{}:
		case <-ctx.Done():
			conn.Close()
			return
		}
		o.running.Go(func() {
			defer func() { <-slots }()
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(talkLimit))
			answer, err := o.answer(ctx)
			if err != nil && ctx.Err() == nil {
				warn(fmt.Errorf("cannot seal the job's token for %v: %w", conn.RemoteAddr(), err))
				return
			}
			_, _ = io.WriteString(conn, answer) // a node that got no answer knocks again
		})
	}
}

// Close returns when all conversations have ended.
func (o *Opened) Close() {
	o.cancel()
	_ = o.listener.Close() // Close cannot fail, since the listener is open
	o.running.Wait()
}

// Answer is the answer of a door.
type Answer struct {
	Coordinator string
	// Token is nil if the door does not give the token.
	Token *mtls.Token
}

// Knock tries the ports of the door on a host until one answers or ctx ends. It calls say when the
// reason for the wait changes.
func (d Door) Knock(ctx context.Context, host string, say func(string)) (Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, knockLimit, fmt.Errorf("gave up after %v", knockLimit))
	defer cancel()
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(10*time.Millisecond), backoff.WithMaxInterval(time.Second),
		backoff.WithMaxElapsedTime(0))
	var why error
	said := ""
	for start := time.Now(); ; {
		a, err := d.tryPorts(ctx, host)
		switch {
		case err == nil || errors.Is(err, errSealed):
			return a, err
		case why == nil || !errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil:
			// If the end of ctx was the only reason why this try failed, the earlier reason stays.
			why = err
		}
		if ctx.Err() != nil {
			return a, fmt.Errorf("node 0 of job %s was not found (%w): %w", d.Job, context.Cause(ctx), why)
		}
		if text := why.Error(); text != said && time.Since(start) > Quiet {
			said = text
			say("waits for node 0: " + text)
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-ctx.Done():
		}
	}
}

// errSealed marks a credential that this node cannot open, now or later.
var errSealed = errors.New("cannot get the job's token from node 0")

func (d Door) tryPorts(ctx context.Context, host string) (Answer, error) {
	var why error
	for i := range portsPerJob {
		a, err := d.ask(ctx, net.JoinHostPort(host, fmt.Sprint(d.port(i))))
		if err == nil || errors.Is(err, errSealed) {
			return a, err
		}
		if why == nil {
			why = err
		}
	}
	return Answer{}, why
}

func (d Door) ask(ctx context.Context, at string) (a Answer, err error) {
	ctx, cancel := context.WithTimeout(ctx, talkLimit)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
	if err != nil {
		return a, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	line, err := bufio.NewReader(io.LimitReader(conn, maxAnswer)).ReadString('\n')
	if err != nil {
		return a, fmt.Errorf("%s did not answer as golaunch does: %w", at, err)
	}
	word := strings.Fields(line)
	if len(word) != 4 || word[0] != magic || word[1] != d.Job {
		return a, fmt.Errorf("%s is a port of another job or program", at)
	}
	a.Coordinator = word[2]
	if word[3] == "-" {
		return a, nil
	}
	sealed, err := munge.Decode(ctx, word[3])
	if err != nil {
		return a, fmt.Errorf("%w: %w; start munged here, or set GOLAUNCH_TOKEN on all nodes", errSealed, err)
	}
	inner := strings.Fields(sealed)
	if len(inner) != 4 || inner[0] != magic || inner[1] != d.Job {
		return a, fmt.Errorf("%s is a port of another job or program", at)
	}
	token, err := mtls.ParseToken(inner[3])
	a.Coordinator, a.Token = inner[2], &token
	return a, err
}
