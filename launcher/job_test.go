package launcher_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/launcher"
)

// TestJobsThatCanNeverRun: the error is an ErrUsage and names the mistake.
func TestJobsThatCanNeverRun(t *testing.T) {
	for _, c := range []struct {
		want string
		set  func(*launcher.Job)
	}{
		{"no command", func(j *launcher.Job) { j.Command = nil }},
		{"no command", func(j *launcher.Job) { j.Command = []string{""} }},
		{"job id", func(j *launcher.Job) { j.ID = "../x" }},
		{"job id", func(j *launcher.Job) { j.ID = strings.Repeat("x", 65) }},
		{"max restarts -1", func(j *launcher.Job) { j.Restarts.Max = -1 }},
		{"master port 65536", func(j *launcher.Job) { j.Ranks.MasterPort = 65536 }},
		{"backoff 2s:1s", func(j *launcher.Job) { j.Restarts.BackoffMin, j.Restarts.BackoffMax = 2*time.Second, time.Second }},
		{"backoff -1s", func(j *launcher.Job) { j.Restarts.BackoffMin = -time.Second }},
		{"placement timeout -1s", func(j *launcher.Job) { j.Resources.PlacementTimeout = -time.Second }},
		{"log limit -1", func(j *launcher.Job) { j.Output.LogLimit = -1 }},
		{"lease 1ms", func(j *launcher.Job) { j.Network.Lease = time.Millisecond }},
		{"spares -1", func(j *launcher.Job) { j.Resources.Spares = -1 }},
		{"leave out the rendezvous", func(j *launcher.Job) { j.Resources.Simulate, j.Network.Rendezvous = true, "n1:1" }},
		{"gpu visibility", func(j *launcher.Job) { j.Ranks.Visibility = "all" }},
		{"restart \"often\"", func(j *launcher.Job) { j.Restarts.Policy = "often" }},
		{"ranks per node", func(j *launcher.Job) { j.Resources.PerNode = []int{0} }},
		{"strategy", func(j *launcher.Job) { j.Resources.Strategy = "TIGHT" }},
		{"preset", func(j *launcher.Job) { j.Ranks.Preset = "carrier-pigeon" }},
		{"1A", func(j *launcher.Job) { j.Env = []string{"1A=b"} }},
		{"address \"n1\"", func(j *launcher.Job) { j.Network.Address = "n1" }},
		{"interface \"nope0\"", func(j *launcher.Job) { j.Network.Interface = "nope0" }},
		{"not both", func(j *launcher.Job) { j.Network.Interface, j.Network.Address = "lo", "127.0.0.1" }},
		{"scheduler \"pbs\"", func(j *launcher.Job) { j.Network.Scheduler = "pbs" }},
		{"--rendezvous HOST:PORT", func(j *launcher.Job) { j.Resources.MinNodes, j.Resources.MaxNodes = 2, 2 }},
		{"rendezvous \"127.0.0.1:x\"", func(j *launcher.Job) { j.Network.Rendezvous = "127.0.0.1:x" }},
	} {
		job, out, words := marked(t, 1, `echo started`)
		c.set(&job)
		result, err := launcher.Run(t.Context(), job)
		if !errors.Is(err, launcher.ErrUsage) || !strings.Contains(err.Error(), c.want) || result.Code != 2 {
			t.Errorf("code %d, error %v; want 2, ErrUsage and %q", result.Code, err, c.want)
		}
		if out.String()+words.String() != "" {
			t.Errorf("%s: printed %q and %q", c.want, out, words)
		}
	}
}

// TestDefaults runs a job with only the required fields.
func TestDefaults(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	job := launcher.Job{
		Command:   []string{"sh", "-c", `[ "$WORLD_SIZE $NNODES $MASTER_ADDR $GOLAUNCH_ATTEMPT" = "1 1 127.0.0.1 0" ] && [ ${#TORCHELASTIC_RUN_ID} -gt 8 ]`},
		Resources: launcher.Resources{PerNode: []int{1}},
		Output:    launcher.Output{Quiet: true},
	}
	result, err := launcher.Run(t.Context(), job)
	if err != nil || result.Code != 0 {
		t.Errorf("%+v (%v)", result, err)
	}
}

// TestAloneWaitsForNoOne: a job that can run on this machine alone begins there at once, even if it
// may have two nodes.
func TestAloneWaitsForNoOne(t *testing.T) {
	job, _, _ := marked(t, 1, `exit 0`)
	job.Resources.MinNodes, job.Resources.MaxNodes = 1, 2
	before := time.Now()
	if result, err := launcher.Run(t.Context(), job); err != nil || result.Code != 0 || time.Since(before) > 20*time.Second {
		t.Errorf("%+v (%v) after %v", result, err, time.Since(before))
	}
}
