// Package bundle keeps what may tell why ranks failed or hang, before they are killed: one archive for each attempt of a node that
// failed, with an index.
//
// [Bundle.Ranks] reads what must be read while the ranks live: after a crash for a moment only, since the restart waits for it, after a
// hang with debuggers and for seconds. [Bundle.Words] and [Bundle.Node] read what is there later too, beside the next attempt. Every
// source has a deadline and a bound, and one that has nothing to give says why in the index.
package bundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

const (
	// crashLimit is how long a restart may have to wait for the evidence of a crash. It is mostly over in a few milliseconds.
	crashLimit = 200 * time.Millisecond
	// hangLimit is the same after a hang, and toolLimit what a debugger or a service may take of it.
	hangLimit = 10 * time.Second
	toolLimit = 8 * time.Second
	// maxEntry and maxTotal are bounds in bytes before compression.
	maxEntry = 1 << 20
	maxTotal = 64 << 20
)

// Title says of what the evidence is.
type Title struct {
	Job     string    `json:"job"`
	Node    string    `json:"node"`
	Unit    int       `json:"unit"`
	Attempt int       `json:"attempt"`
	Time    time.Time `json:"time"`
	// Why is "crash" or "hang".
	Why string `json:"why"`
}

// Rank is one of the ranks on this node.
type Rank struct {
	Number int
	// Env is its environment, as it was started with. RAS is where its NCCL can be asked; empty for a rank without GPU.
	Env []string
	RAS string
	// PIDs are its processes that live, the busiest first.
	PIDs []int
	// Logs are the names of its log files in the directory of the job.
	Logs []string
	// Rights are those of its user: what the rank itself names is asked and read with them, and who looks into it has no others.
	Rights *safefile.Rights
}

// Bundle is evidence that is being gathered. It is for one goroutine at a time.
type Bundle struct {
	title   Title
	secrets secrets
	entries []entry
}

// New begins a bundle.
func New(t Title) *Bundle { return &Bundle{title: t} }

// Ranks gathers what the ranks can tell while they live. It returns within 0.2 s after a crash and within 10 s after a hang.
func (b *Bundle) Ranks(ctx context.Context, ranks []Rank, hang bool) {
	var sources []source
	limit := crashLimit
	if hang {
		limit = hangLimit
	}
	for _, r := range ranks {
		b.secrets.learn(r.Env)
		dir := fmt.Sprintf("rank-%d/", r.Number)
		sources = append(sources,
			source{name: dir + "processes.txt", from: "/proc", read: processes(r)},
			source{name: dir + "libraries.txt", from: "/proc/PID/maps", read: libraries(r)},
		)
		if hang {
			sources = append(sources, debug(dir, r)...)
		}
	}
	if hang {
		sources = append(sources, source{name: "stacks.txt", from: "the ranks' memory", read: allStacks(ranks)})
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	b.gather(ctx, sources)
}

// entry is a file of the archive, and its line in the index.
type entry struct {
	Name string `json:"name"`
	// From is where it comes from.
	From string `json:"from"`
	Size int    `json:"size_bytes"`
	// Truncated says that there was more, and Missing why there is nothing, or not all.
	Truncated bool   `json:"truncated"`
	Missing   string `json:"missing,omitempty"`

	data []byte
	// binary is nothing in which secrets could be masked.
	binary bool
}

// source is where an entry comes from. What it returns with an error is kept too.
type source struct {
	name, from string
	// most bounds it, in bytes; maxEntry when 0.
	most   int
	binary bool
	read   func(context.Context) ([]byte, error)
}

// gather reads all sources at once and takes what is there when ctx ends. The kernel may hold up who reads about a process that it
// holds up, for as long as that one: such a read is left alone.
func (b *Bundle) gather(ctx context.Context, sources []source) {
	read := make([]chan entry, len(sources))
	for i, s := range sources {
		read[i] = make(chan entry, 1)
		go func() { read[i] <- s.take(ctx) }()
	}
	for i, s := range sources {
		e := entry{Name: s.name, From: s.from, Missing: "it was not there in time"}
		select {
		case e = <-read[i]:
		case <-ctx.Done():
			select {
			case e = <-read[i]:
			default:
			}
		}
		b.entries = append(b.entries, e)
	}
}

func (s source) take(ctx context.Context) entry {
	data, err := s.read(ctx)
	e := entry{Name: s.name, From: s.from, data: data, binary: s.binary}
	if most := cmp.Or(s.most, maxEntry); len(e.data) > most {
		e.data, e.Truncated = e.data[:most], true
	}
	switch {
	case err != nil:
		e.Missing = err.Error()
	case len(data) == 0:
		e.Missing = errNothing.Error()
	}
	return e
}

var errNothing = errors.New("there is none")
