package launcher

import (
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/golaunch/golaunch/internal/bind"
	"github.com/golaunch/golaunch/internal/job"
	"github.com/golaunch/golaunch/internal/spot"
	"github.com/golaunch/golaunch/nccl"
	"github.com/golaunch/golaunch/rankenv"
	"github.com/golaunch/golaunch/rendezvous"
)

// complete fills the defaults in and refuses what makes no sense.
func (j Job) complete() (Job, error) {
	if err := j.locate(); err != nil {
		return j, err
	}
	j.hasID = j.ID != ""
	j.defaults()
	switch {
	case j.Scheduler != "" && j.Scheduler != NoScheduler:
		return j, usage("scheduler %q: none, or nothing", j.Scheduler)
	case len(j.Command) == 0 || j.Command[0] == "":
		return j, usage("no command; say what to run after --")
	case !validID(j.ID):
		return j, usage("job id %q: use 1 to 64 letters, digits, '.', '_' and '-', beginning with a letter or digit", j.ID)
	case j.MaxRestarts < 0:
		return j, usage("max restarts %d: at least 0", j.MaxRestarts)
	case j.RefillAfter < 0:
		return j, usage("restarts back after %s: at least 0", j.RefillAfter)
	case j.ExcludeAfter < 0 || j.ExcludeFor < 0 || j.ExcludeAfter > 0 && j.ExcludeFor == 0:
		return j, usage("exclude after %d failures for %s: at least 0, and for some time", j.ExcludeAfter, j.ExcludeFor)
	case j.oddExit() != "":
		return j, usage("exit code of %s: 1 to 255, for one of %s", j.oddExit(), job.Unsuccessful)
	case j.DrainTime < 0:
		return j, usage("drain time %s: at least 0", j.DrainTime)
	case j.Spot != "" && !slices.Contains(spot.Clouds, j.Spot):
		return j, usage("spot notices of %q: %s", j.Spot, strings.Join(spot.Clouds, ", "))
	case j.NoticeSignal != 0 && !PassedOn(j.NoticeSignal):
		return j, usage("notice signal %s: SIGUSR1 or SIGUSR2", name(j.NoticeSignal))
	case j.MasterPort < 0 || j.MasterPort > 65535:
		return j, usage("master port %d: 0 (a free one) to 65535", j.MasterPort)
	case j.HangTimeout != 0 && j.HangTimeout < time.Second:
		return j, usage("hang timeout %s: at least 1s, or 0 for none", j.HangTimeout)
	case j.Bundle != "on" && j.Bundle != "off":
		return j, usage("bundle %q: on or off", j.Bundle)
	case j.Store != StoreGolaunch && j.Store != StoreRank0:
		return j, usage("store %q: golaunch or rank0", j.Store)
	case j.BackoffMin < 0 || j.BackoffMax < j.BackoffMin:
		return j, usage("backoff %s:%s: the first wait is at least 0 and at most the bound", j.BackoffMin, j.BackoffMax)
	case j.PlacementTimeout < 0:
		return j, usage("placement timeout %s: at least 0", j.PlacementTimeout)
	case j.LogLimit < 0:
		return j, usage("log limit %d bytes: at least 0", j.LogLimit)
	case j.Lease < time.Second:
		return j, usage("lease %s: at least 1s", j.Lease)
	case j.Spares < 0 || j.Spares > maxSpares:
		return j, usage("spares %d: 0 to %d", j.Spares, maxSpares)
	case j.Simulate && j.Rendezvous != "":
		return j, usage("a simulated job has all its nodes on this machine; leave out the rendezvous")
	case j.Coordinator != "" && (j.Simulate || j.Rendezvous != ""):
		return j, usage("a job runs on a cluster (coordinator) or on nodes of its own (rendezvous, simulate); give one of them")
	case j.Coordinator == "" && (j.Detached || j.Within != "" || len(j.GPUs) > 0 || j.Backfill):
		return j, usage("detach, within, gpu ids and backfill are for a cluster; give its coordinator")
	case j.OwnGPUs != "" && (j.Coordinator != "" || j.Simulate || len(j.Hosts) > 0 || !j.Request.GPU):
		return j, usage("gpus are chosen on the machine where they are, for GPU ranks; on a cluster give gpu ids")
	case j.Visibility != rankenv.SeeJob && j.Visibility != rankenv.SeeOwn:
		return j, usage("gpu visibility %q: job or own", j.Visibility)
	case !slices.Contains(preflights, j.Preflight):
		return j, usage("preflight %q: off, warn, exclude or fail", j.Preflight)
	case !slices.Contains(bind.Policies, bind.Policy(j.Bind)):
		return j, usage("bind %q: auto, none, numa, socket, l3 or core", j.Bind)
	case !slices.Contains([]Restart{RestartJob, RestartNode, RestartRank, RestartNever}, j.Restart):
		return j, usage("restart %q: job, node, rank or never", j.Restart)
	}
	if err := j.Request.Validate(); err != nil {
		return j, usage("%v", err)
	}
	if err := j.Torch.validate(); err != nil {
		return j, usage("%v", err)
	}
	if _, err := nccl.Vars(j.Preset, nccl.Agreement{}, nccl.Facts{}); err != nil {
		return j, usage("%v", err)
	}
	var err error
	if j.rules, j.ruleText, err = readRules(j.FailureRules); err != nil {
		return j, err
	}
	_, err = j.user()
	return j, err
}

// maxSpares is more than one machine can simulate.
const maxSpares = 1 << 16

func (j *Job) defaults() {
	if j.ID == "" {
		j.ID = newID()
	}
	if r := &j.Request; r.MinNodes == 0 && r.MaxNodes == 0 {
		r.MinNodes, r.MaxNodes = 1, 1
	}
	if len(j.Request.PerNode) == 0 {
		j.Request.PerNode = []int{1}
	}
	if j.Store == "" {
		j.Store = StoreGolaunch
	}
	if j.Restart == "" {
		j.Restart = RestartJob
	}
	if j.Preset == "" {
		j.Preset = "auto"
	}
	if j.Bundle == "" {
		j.Bundle = "on"
	}
	if j.Bind == "" {
		j.Bind = string(bind.Auto)
	}
	if j.Preflight == "" {
		j.Preflight = PreflightWarn
	}
	if j.Visibility == "" {
		j.Visibility = rankenv.SeeJob
	}
	j.Grace = orDefault(j.Grace, DefaultGrace)
	j.LastCall = orDefault(j.LastCall, DefaultLastCall)
	j.GrowAfter = orDefault(j.GrowAfter, DefaultGrowAfter)
	if j.ExcludeAfter > 0 && j.ExcludeFor == 0 {
		j.ExcludeFor = DefaultExcludeFor
	}
	if j.Lease == 0 {
		j.Lease = DefaultLease
	}
	if j.LogLimit == 0 {
		j.LogLimit = DefaultLogLimit
	}
	if j.Stdout == nil {
		j.Stdout = os.Stdout
	}
	if j.Stderr == nil {
		j.Stderr = os.Stderr
	}
}

// orDefault is the given duration; the default when it is 0, and 0 when it is negative.
func orDefault(given, standard time.Duration) time.Duration {
	if given == 0 {
		return standard
	}
	return max(given, 0)
}

// oddExit is an entry of ExitCodes that cannot be.
func (j Job) oddExit() string {
	for ending, code := range j.ExitCodes {
		if code < 1 || code > 255 || !slices.Contains(job.Unsuccessful, ending) {
			return fmt.Sprintf("%s=%d", ending, code)
		}
	}
	return ""
}

// newID is unique enough for a machine's log directory and says when the job began.
func newID() string {
	return time.Now().UTC().Format("20060102-150405") + "-" + strings.ToLower(rand.Text()[:5])
}

func validID(s string) bool { return rendezvous.ValidName(s) && len(s) <= 64 && s[0] != '_' }
