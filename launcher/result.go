package launcher

import (
	"time"

	"github.com/golaunch/golaunch/internal/core/goodput"
	"github.com/golaunch/golaunch/internal/core/job"
	"github.com/golaunch/golaunch/internal/core/verdict"
	"github.com/golaunch/golaunch/internal/wire"
	"github.com/golaunch/golaunch/launcher/report"
	"github.com/golaunch/golaunch/placement"
)

// Result is how a job ended. As JSON it is what docs/json.md says.
type Result struct {
	// Code is 0 for success, the root cause's exit code, or golaunch's own: 124 a timeout waiting
	// for nodes, 125 golaunch's own failure, an infeasible request or a lost node; or what
	// Restarts.ExitCodes has for the Ending.
	Code   int           `json:"code"`
	Ending report.Ending `json:"ending"`
	// Reason is the whole in one line.
	Reason string `json:"reason"`
	// Cause is the root cause of the last attempt; nil on success and when there was none.
	Cause *Failure `json:"cause,omitempty"`
	// Attempts is the number of attempts that were started, over all units; Restarts how many of
	// them followed a failure, whether or not the budget bore it.
	Attempts int `json:"attempts"`
	Restarts int `json:"restarts"`
	// Goodput is what the time of its ranks went into; nil if it never had ranks.
	Goodput *Goodput `json:"goodput,omitempty"`
}

// Failure is what an attempt failed of. What follows it is an echo.
type Failure struct {
	// Node and Rank say where; Rank is -1 when it is not about one rank (a lost node).
	Node string
	Rank int
	// GPU is the rank's; nil for a CPU rank.
	GPU     *placement.GPU
	Attempt int
	// Exit is how the rank ended, at a time of the coordinator's clock, having Lived so long and
	// come to Step, if it tells its steps.
	Exit  report.Exit
	At    time.Time
	Lived time.Duration
	Step  int64
	// Further is how many other ranks of the attempt failed before they were told to stop.
	Further int
	// Why is the failure in words: "rank 3 on n1 (gpu 3) died of SIGKILL (out of memory)".
	Why string
	// Tail is the end of what the rank wrote, Traceback that of its exception, and Kernel what the
	// node's kernel said of its GPUs.
	Tail, Traceback, Kernel string
	// Hung says that nothing ended: the ranks stood still, and Rank is the one that lags, if one
	// does.
	Hung bool
	// Verdict is what it means, as the coordinator decided with all that it knows, the job's
	// failure rules included.
	Verdict Verdict
}

// Verdict is what a failure means. It is zero where the job ended before anything could fail.
type Verdict struct {
	// Action is what the coordinator took it for: "restart", "replace" the node, "stop" or "wait".
	Action string `json:"action"`
	// Cause is one of docs/failures.md, or of the job's failure rules, and Title says it in words.
	Cause string `json:"cause"`
	Title string `json:"title"`
	// Quote is the line that decided; empty when none did. From says where it stands (exit, tail,
	// traceback, kernel or health), and Line is its number there, from 1.
	Quote string `json:"quote,omitempty"`
	From  string `json:"from,omitempty"`
	Line  int    `json:"line,omitempty"`
	// Victim says that it is the echo of another failure, and nothing is known of that one.
	Victim bool `json:"victim"`
	// Remedy is what a person can do.
	Remedy string `json:"remedy"`
}

// String is the verdict in one line: "cuda-oom: torch.OutOfMemoryError: CUDA out of memory. (stop:
// use a smaller batch)". It is empty for the zero Verdict.
func (v Verdict) String() string {
	return verdict.Verdict{Action: verdict.Action(v.Action), Cause: v.Cause, Title: v.Title, Quote: v.Quote, Remedy: v.Remedy}.String()
}

// Goodput is what the time of a job's ranks went into, in hours of one GPU, or of one rank of a job
// without GPUs. A rank counts for as long as its unit is placed or waits for a node in the place of
// a lost one.
type Goodput struct {
	// Unit is what the hours are of: "GPU" or "rank".
	Unit string `json:"unit"`
	// Goodput is Training as a share of Hours, 0 to 1, and Hours the sum of all that follow.
	Goodput float64 `json:"goodput"`
	Hours   float64 `json:"total_hours"`
	// Training is without Lost, which was trained again after a restart, as far as the program's
	// steps are known.
	Training float64 `json:"training_hours"`
	Lost     float64 `json:"lost_hours"`
	Starting float64 `json:"starting_hours"`
	Stopping float64 `json:"stopping_hours"`
	Backoff  float64 `json:"backoff_hours"`
	Waiting  float64 `json:"waiting_hours"`
	// Importing is for modules that a fork server imports for the ranks, see Ranks.Preload.
	Importing float64 `json:"importing_hours"`
	// Interruptions counts those after which the job went on.
	Interruptions int `json:"interruptions"`
	// Costs are what these cost by cause and node, dearest first, 32 at most; the rest is one more,
	// with the cause "others".
	Costs []Cost `json:"costs"`
}

// Cost is what the interruptions of one cause and node have cost: Hours until all ranks trained
// again, without those that were Lost.
type Cost struct {
	// Cause is one of docs/failures.md, or "node-lost", "drain" or "others".
	Cause string `json:"cause"`
	// Node is the one that is to blame; empty for an echo of what happened elsewhere.
	Node          string  `json:"node,omitempty"`
	Interruptions int     `json:"interruptions"`
	Hours         float64 `json:"down_hours"`
	Lost          float64 `json:"lost_hours"`
}

// Notable says that it is worth a line: something was interrupted, or an hour was spent.
func (g *Goodput) Notable() bool { return g != nil && g.report().Notable() }

// String is the goodput in one line, such as "97.1 % of 512.0 GPU-hours; 3 interruptions cost 14.9:
// 9.1 gpu-lost (n17), 5.8 node-lost (n3)".
func (g Goodput) String() string { return g.report().String() }

// Decision is one step of a job, with its reason in words.
type Decision struct {
	At     time.Time
	Reason string
	// News is what a person wants to know at once: a failure, a loss, a stop.
	News bool
	// Failure is how the attempt of the job, or of the node or rank that restarts by itself, began
	// to fail, if this was decided for that. What it says of the GPU and the step may be missing.
	Failure *Failure
	// Result is how the job ended, in the last that a Watch tells; nil otherwise.
	Result *Result
}

// ended is resultOf for what ends with an error too.
func ended(r job.Result, err error) (Result, error) { return resultOf(r), err }

// resultOf, and each function of such a name, turns what a package below says into the word of this
// one.
func resultOf(r job.Result) Result {
	result := Result{
		Code: r.Code, Ending: r.Ending, Reason: r.Reason, Attempts: r.Attempts, Restarts: r.Restarts, Goodput: goodputOf(r.Goodput),
	}
	result.Cause = failureOf(r.Cause)
	return result
}

func failureOf(f *job.Failure) *Failure {
	if f == nil {
		return nil
	}
	return &Failure{
		Node: f.Node, Rank: f.Rank, GPU: f.GPU, Attempt: f.Attempt, Exit: f.Exit, At: f.At, Lived: f.Lived, Step: f.Step,
		Further: f.Further, Why: f.Why, Tail: f.Tail, Traceback: f.Traceback, Kernel: f.Kernel, Hung: f.Hung,
		Verdict: Verdict{
			Action: string(f.Verdict.Action), Cause: f.Verdict.Cause, Title: f.Verdict.Title, Quote: f.Verdict.Quote,
			From: string(f.Verdict.From), Line: f.Verdict.Line, Victim: f.Verdict.Victim, Remedy: f.Verdict.Remedy,
		},
	}
}

func decisionOf(d wire.Decision) Decision {
	return Decision{At: d.At, Reason: d.Reason, News: d.News, Failure: failureOf(d.Failure)}
}

func goodputOf(r *goodput.Report) *Goodput {
	if r == nil {
		return nil
	}
	return &Goodput{
		Unit: r.Unit, Goodput: r.Goodput, Hours: r.Hours, Training: r.Training, Lost: r.Lost, Starting: r.Starting, Importing: r.Importing, Stopping: r.Stopping,
		Backoff: r.Backoff, Waiting: r.Waiting, Interruptions: r.Interruptions,
		Costs: each(r.Costs, func(c goodput.Cost) Cost { return Cost(c) }),
	}
}

// report is the way back, for what is said in words below.
func (g Goodput) report() *goodput.Report {
	return &goodput.Report{
		Unit: g.Unit, Goodput: g.Goodput, Hours: g.Hours, Training: g.Training, Lost: g.Lost, Starting: g.Starting, Importing: g.Importing, Stopping: g.Stopping,
		Backoff: g.Backoff, Waiting: g.Waiting, Interruptions: g.Interruptions,
		Costs: each(g.Costs, func(c Cost) goodput.Cost { return goodput.Cost(c) }),
	}
}

// each keeps nil nil.
func each[A, B any](in []A, f func(A) B) []B {
	if in == nil {
		return nil
	}
	out := make([]B, len(in))
	for i, a := range in {
		out[i] = f(a)
	}
	return out
}
