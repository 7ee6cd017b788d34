package listing

import (
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

func TestCosts(t *testing.T) {
	counted := time.Date(2026, 11, 20, 10, 31, 0, 0, time.Local)
	for name, c := range map[string]struct {
		status report.Status
		want   string
	}{
		"no cluster": {report.Status{}, "no node has joined a cluster yet\n"},
		"all": {report.Status{
			Counted: counted,
			Charges: []report.Charge{
				{NodeHours: 0.5},
				{User: "*", Kind: "a100-8", Price: 32.8, NodeHours: 1, GPUHours: 8},
				{User: "alice", Kind: "a100-8", Price: 32.8, NodeHours: 512, GPUHours: 4096},
				{Idle: true, NodeHours: 3},
				{Kind: "a100-8", Price: 32.8, Idle: true, NodeHours: 0.004, GPUHours: 0.032},
			},
			Jobs: []report.JobStatus{
				{ID: "waits", User: "bob"},
				{ID: "night", User: "alice", Charges: []report.Charge{
					{NodeHours: 0.5},
					{Kind: "a100-8", Price: 32.8, NodeHours: 96, GPUHours: 768},
				}},
			},
		}, `USER       KIND    NODE-HOURS  GPU-HOURS  COST
(unknown)  -       0.50        0.00       -
(others)   a100-8  1.00        8.00       32.80
alice      a100-8  512.00      4096.00    16793.60
(idle)     -       3.00        0.00       -
(idle)     a100-8  0.00        0.03       0.13

JOB    USER   KIND    NODE-HOURS  GPU-HOURS  COST
night  alice  -       0.50        0.00       -
night  alice  a100-8  96.00       768.00     3148.80

since 2026-11-20 10:31, at 32.8 for an hour of a100-8
`},
	} {
		var b strings.Builder
		if err := NewCosts(c.status).Write(&b); err != nil || b.String() != c.want {
			t.Errorf("%s: %v\n%s\nnot\n%s", name, err, b.String(), c.want)
		}
	}
}
