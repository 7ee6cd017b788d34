package launcher

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

// The nodes of a job that a scheduler has started know each other's names and the job's id, but neither a free port nor a secret.
// A door, at one of a few ports that follow from the id, tells where the coordinator listens, and with munge also the token. What
// it tells in the open is no secret: whoever lies there has not the token, and whoever else's door it is has another job.
const (
	doorPorts = 4
	// doorStep keeps the ports of jobs with neighbouring ids apart.
	doorStep = 1237
	// doorTime bounds one conversation, and doorGuests how many are held at once: each may be a process of munge.
	doorTime   = 10 * time.Second
	doorGuests = 64
	// maxAnswer bounds what a door says, in bytes.
	maxAnswer = 16 << 10
	doorWord  = "golaunch-door-1"
)

// threshold is where a job's door is: a job has the ports that follow from its name, in a range that all its nodes have in common.
type threshold struct {
	job   string
	ports ports.Range
}

func doorOf(j Job) threshold { return threshold{j.place.Job, j.Network.ports()} }

// port is the i-th where the door may be. A small range has fewer of them than others.
func (t threshold) port(i int) uint16 {
	h := fnv.New32a()
	_, _ = io.WriteString(h, t.job) // never fails
	r := t.ports.Or(doors)
	size, step := uint32(r.Size()), uint32(doorStep)
	if !t.ports.Any() {
		step = max(1, size/doorPorts)
	}
	return uint16(r.First) + uint16((h.Sum32()%size+uint32(i)*step)%size)
}

// doors are the ports of doors where no range is given.
var doors = ports.Range{First: 15000, Last: 19999}

// door answers whoever knocks until it is closed.
type door struct {
	listener net.Listener
	answer   func(context.Context) (string, error)
	cancel   context.CancelFunc
	guests   sync.WaitGroup
}

// openDoor tells of the coordinator of a job. With a sealed door the token is told too.
func openDoor(t threshold, own netip.Addr, coordinator net.Addr, token mtls.Token, sealed bool, warn func(error)) (*door, error) {
	l, err := listenDoor(t, own)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	d := &door{listener: l, cancel: cancel, answer: func(ctx context.Context) (string, error) {
		open := strings.Join([]string{doorWord, t.job, coordinator.String()}, " ")
		if !sealed {
			return open + " -\n", nil
		}
		credential, err := munge.Encode(ctx, open+" "+token.Text())
		return open + " " + credential + "\n", err
	}}
	if _, err := d.answer(ctx); err != nil {
		d.close()
		return nil, fmt.Errorf("cannot seal the job's token for the other nodes: %w; start munged, or set GOLAUNCH_TOKEN", err)
	}
	d.guests.Go(func() { d.serve(ctx, warn) })
	return d, nil
}

func listenDoor(t threshold, own netip.Addr) (l net.Listener, err error) {
	for i := range doorPorts {
		port := t.port(i)
		if l, err = net.Listen("tcp", netip.AddrPortFrom(own, port).String()); err == nil {
			return l, nil
		}
		err = fmt.Errorf("cannot meet the other nodes of job %s: %w%s; give all of them --rendezvous HOST:PORT", t.job, err, agent.PortHolder(int(port)))
	}
	return nil, err
}

func (d *door) serve(ctx context.Context, warn func(error)) {
	places := make(chan struct{}, doorGuests)
	for {
		conn, err := d.listener.Accept()
		if err != nil {
			return
		}
		select {
		case places <- struct{}{}:
		case <-ctx.Done():
			conn.Close()
			return
		}
		d.guests.Go(func() {
			defer func() { <-places }()
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(doorTime))
			answer, err := d.answer(ctx)
			if err != nil && ctx.Err() == nil {
				warn(fmt.Errorf("cannot seal the job's token for %v: %w", conn.RemoteAddr(), err))
				return
			}
			_, _ = io.WriteString(conn, answer) // who has gone knocks again
		})
	}
}

// close returns when nobody is at the door any more.
func (d *door) close() {
	d.cancel()
	_ = d.listener.Close() // it is open
	d.guests.Wait()
}

// found is what a door told.
type found struct {
	coordinator string
	// token is nil at an open door.
	token *mtls.Token
}

// knock tries the ports of a job's door on a host until it is opened, or ctx ends. say hears why it is not, when that changes.
func knock(ctx context.Context, t threshold, host string, say func(string)) (found, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, doorLimit, fmt.Errorf("gave up after %v", doorLimit))
	defer cancel()
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(10*time.Millisecond), backoff.WithMaxInterval(time.Second),
		backoff.WithMaxElapsedTime(0))
	var why error
	told := ""
	for start := time.Now(); ; {
		f, err := tryDoors(ctx, t, host)
		switch {
		case err == nil || errors.Is(err, errSealed):
			return f, err
		case why == nil || !errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil: // else ctx ended it
			why = err
		}
		if ctx.Err() != nil {
			return f, fmt.Errorf("node 0 of job %s was not found (%w): %w", t.job, context.Cause(ctx), why)
		}
		if text := why.Error(); text != told && time.Since(start) > patienceAtDoor {
			told = text
			say("waits for node 0: " + text)
		}
		select {
		case <-time.After(wait.NextBackOff()):
		case <-ctx.Done():
		}
	}
}

const (
	// patienceAtDoor is how long node 0 may be late before the others tell that they wait for it.
	patienceAtDoor = 3 * time.Second
	// doorLimit is how long they wait: a scheduler starts all nodes at once.
	doorLimit = 5 * time.Minute
)

// errSealed says that a door was found whose credential cannot be opened, which knocking again does not change.
var errSealed = errors.New("cannot get the job's token from node 0")

func tryDoors(ctx context.Context, t threshold, host string) (found, error) {
	var why error
	for i := range doorPorts {
		at := net.JoinHostPort(host, fmt.Sprint(t.port(i)))
		f, err := ask(ctx, t.job, at)
		if err == nil || errors.Is(err, errSealed) {
			return f, err
		}
		if why == nil {
			why = err
		}
	}
	return found{}, why
}

// ask knocks once.
func ask(ctx context.Context, job, at string) (f found, err error) {
	ctx, cancel := context.WithTimeout(ctx, doorTime)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at)
	if err != nil {
		return f, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	line, err := bufio.NewReader(io.LimitReader(conn, maxAnswer)).ReadString('\n')
	if err != nil {
		return f, fmt.Errorf("%s did not answer as golaunch does: %w", at, err)
	}
	word := strings.Fields(line)
	if len(word) != 4 || word[0] != doorWord || word[1] != job {
		return f, fmt.Errorf("%s belongs to something else", at)
	}
	f.coordinator = word[2]
	if word[3] == "-" {
		return f, nil
	}
	sealed, err := munge.Decode(ctx, word[3])
	if err != nil {
		return f, fmt.Errorf("%w: %w; start munged here, or set GOLAUNCH_TOKEN on all nodes", errSealed, err)
	}
	inner := strings.Fields(sealed)
	if len(inner) != 4 || inner[0] != doorWord || inner[1] != job {
		return f, fmt.Errorf("%s belongs to something else", at)
	}
	token, err := mtls.ParseToken(inner[3])
	f.coordinator, f.token = inner[2], &token
	return f, err
}

// sealable says that the token need not be shared beforehand: none was given, and munge can carry a new one.
func (j Job) sealable() bool {
	return j.Network.TokenFile == "" && os.Getenv("GOLAUNCH_TOKEN") == "" && munge.Installed()
}
