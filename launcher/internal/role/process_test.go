package role

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/golaunch/golaunch/agent"
	"github.com/golaunch/golaunch/internal/core/cluster"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/replica"
	"github.com/golaunch/golaunch/internal/testkit/wiretest"
	"github.com/golaunch/golaunch/launcher/internal/jobdir"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
	"github.com/golaunch/golaunch/rendezvous"
)

// TestAJobEndsForAnError: a job ends when its agents or its listener fail. Otherwise the job would
// wait for nodes that cannot join.
func TestAJobEndsForAnError(t *testing.T) {
	boom := errors.New("boom")
	pipe, _ := wiretest.Pipe()
	for name, r := range map[string]role{
		"its agents fail": {begins: true, listener: pipe, nodes: func(context.Context) (report.Result, error) { return report.Result{}, boom }},
		"its listener fails": {begins: true, listener: deafListener{boom}, nodes: func(ctx context.Context) (report.Result, error) {
			<-ctx.Done()
			return report.Result{}, nil
		}},
	} {
		s := replica.Submission{Spec: cluster.Spec{Job: job.Spec{
			ID: "job", Request: placement.Request{MinNodes: 1, MaxNodes: 1, PerNode: []int{1}}, Restart: job.RestartJob,
		}}}
		warn := func(err error) { t.Log(err) }
		p := &Process{
			Coordinator: rendezvous.Config{Job: &s, Lease: 15 * time.Second, KillTime: time.Second, Warn: warn, Note: func(string) {}},
			Agent:       agent.Agent{Say: func(string) {}, Warn: warn},
			Files:       &jobdir.Run{Chosen: t.TempDir(), ID: "run", Name: func(job string) string { return job }},
			Observe:     func(report.Decision) {},
			Progress:    func(context.Context) func(report.Ending) { return func(report.Ending) {} },
		}
		result, err := p.work(t.Context(), r)
		if !errors.Is(err, boom) || result.Code != 125 {
			t.Errorf("%s: code %d, error %v; want 125 and %v", name, result.Code, err, boom)
		}
		if err := p.Files.Close(false); err != nil {
			t.Error(err)
		}
	}
}

// deafListener accepts no connection.
type deafListener struct{ err error }

func (l deafListener) Accept() (net.Conn, error) { return nil, l.err }
func (l deafListener) Close() error              { return nil }
func (l deafListener) Addr() net.Addr            { return &net.UnixAddr{Net: "unix"} }
