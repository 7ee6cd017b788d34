package controller

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/process/logs"
	"github.com/golaunch/golaunch/internal/wire/endpoint"
	"github.com/golaunch/golaunch/internal/wire/mtls"
	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/report"
)

// openRequest names the cluster that a program wants: the cluster of a coordinator, or, with Local,
// a new cluster on this machine.
type openRequest struct {
	Coordinator string `json:"coordinator"`
	TokenFile   string `json:"token_file"`
	Local       []node `json:"local"`
	LogDir      string `json:"log_dir"`
	// Lease is in seconds.
	Lease   float64 `json:"lease"`
	Preload string  `json:"preload"`
	// Socket is the program's socket, in a directory of its own. Both are removed when the program
	// ends, even if it is killed.
	Socket string `json:"socket"`
}

// node is a node of a cluster on this machine.
type node struct {
	// GPUs declares a number of GPUs; with nil the node has the GPUs that golaunch finds.
	GPUs *int `json:"gpus"`
}

type openReply struct {
	Coordinator string `json:"coordinator"`
	Version     string `json:"version"`
}

func (c *controller) open(ctx context.Context, o openRequest) (openReply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client != nil {
		return openReply{}, errors.New("this program has a cluster already")
	}
	if c.socket = o.Socket; c.socket == "" {
		return openReply{}, errors.New("the program did not name its socket; install the same version of the Python package and of golaunch")
	}
	endpoint.Prune(endpoint.ControllerPrefix)
	if len(o.Local) > 0 {
		if err := c.begin(ctx, &o); err != nil {
			return openReply{}, err
		}
	}
	client, err := launcher.Connect(ctx, o.Coordinator, o.TokenFile)
	if err != nil {
		return openReply{}, err
	}
	s, err := client.Query(ctx, report.Query{Jobs: true, Open: true, Brief: true})
	if err != nil {
		client.Close()
		return openReply{}, err
	}
	token, err := mtls.FindToken(o.TokenFile, os.Getenv("GOLAUNCH_TOKEN"))
	if err != nil {
		client.Close()
		return openReply{}, err
	}
	c.client, c.tls = client, mtls.Client(token, mtls.Identity{})
	return openReply{client.Target, s.Version}, nil
}

// begin starts a cluster in this process, with a new secret, and sets the cluster's address in o.
func (c *controller) begin(asked context.Context, o *openRequest) error {
	// The directory is beside the program's socket, so that both are removed even if both processes
	// are killed.
	dir := filepath.Join(filepath.Dir(o.Socket), "cluster")
	if err := os.Mkdir(dir, 0o700); err != nil {
		return fmt.Errorf("make a directory for a cluster on this machine: %w", err)
	}
	o.TokenFile = filepath.Join(dir, "token")
	if err := os.WriteFile(o.TokenFile, []byte(mtls.NewToken().Text()), 0o600); err != nil {
		return errors.Join(fmt.Errorf("make the secret of a cluster on this machine: %w", err), os.RemoveAll(dir))
	}
	l := &localCluster{say: c.tell, failed: make(chan error, len(o.Local)+1)}
	c.end = func() {
		l.stop()
		os.RemoveAll(dir)
	}
	at, err := l.coordinate(asked, o, dir)
	if err != nil {
		return err
	}
	o.Coordinator = at
	return l.join(asked, o, dir)
}

// localCluster is a cluster in this process. Its agents end before its coordinator, so that they
// leave in order.
type localCluster struct {
	say         func(any)
	failed      chan error
	endHead     func()
	endNodes    func()
	head, nodes sync.WaitGroup
}

func (l *localCluster) stop() {
	if l.endNodes != nil {
		l.endNodes()
	}
	l.nodes.Wait()
	l.endHead()
	l.head.Wait()
}

func (l *localCluster) warn(err error) { l.say(warning{"warning", err.Error()}) }

// warning is a problem that golaunch reports to the program and then ignores.
type warning struct {
	Event string `json:"event"`
	Text  string `json:"text"`
}

func (l *localCluster) coordinate(asked context.Context, o *openRequest, dir string) (string, error) {
	ctx, cancel := context.WithCancel(context.Background())
	l.endHead = cancel
	at := make(chan netip.AddrPort, 1)
	l.head.Go(func() {
		err := launcher.Coordinator{
			Listen: "127.0.0.1:0", Store: filepath.Join(dir, "coordinator"), TokenFile: o.TokenFile,
			Lease: time.Duration(o.Lease * float64(time.Second)), Ready: func(a netip.AddrPort) { at <- a }, Warn: l.warn,
		}.Serve(ctx)
		if err != nil && ctx.Err() == nil {
			l.failed <- err
		}
	})
	select {
	case a := <-at:
		return a.String(), nil
	case err := <-l.failed:
		return "", err
	case <-asked.Done():
		return "", errors.New("the program ended before its cluster was ready")
	}
}

func taken(err error) bool {
	_, taken := errors.AsType[*logs.TakenError](err)
	return taken
}

// join starts the agents and waits until all are in the cluster.
func (l *localCluster) join(asked context.Context, o *openRequest, dir string) error {
	ctx, cancel := context.WithCancel(context.Background())
	l.endNodes = cancel
	joined := make(chan struct{}, len(o.Local))
	base := o.LogDir
	if base == "" {
		base = filepath.Join(dir, "logs")
	}
	for i, n := range o.Local {
		in := sync.OnceFunc(func() { joined <- struct{}{} })
		a := launcher.Agent{
			Coordinator: o.Coordinator, TokenFile: o.TokenFile, Name: "n" + strconv.Itoa(i), Address: "127.0.0." + strconv.Itoa(i+1), GPUs: n.GPUs,
			Preflight: "off", AllowRunAsRoot: true, LogDir: base, Preload: o.Preload, Standalone: len(o.Local) == 1,
			Say: func(string) { in() }, Warn: l.warn,
		}
		l.nodes.Go(func() {
			_, err := a.Serve(ctx)
			// Another program's cluster may use this directory of logs. Then the next number is tried.
			for n := 2; taken(err) && ctx.Err() == nil; n++ {
				a.LogDir = fmt.Sprintf("%s.%d", base, n)
				_, err = a.Serve(ctx)
			}
			if err != nil && ctx.Err() == nil {
				l.failed <- err
			}
		})
	}
	for range o.Local {
		select {
		case <-joined:
		case err := <-l.failed:
			return fmt.Errorf("start a cluster on this machine: %w", err)
		case <-asked.Done():
			return errors.New("the program ended before its cluster was ready")
		}
	}
	return nil
}
