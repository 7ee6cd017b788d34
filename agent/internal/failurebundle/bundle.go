// Package failurebundle gathers evidence of why the ranks of an attempt failed or hang.
//
// Each failed attempt gets one archive with an index on each node. [Bundle.Ranks] reads what exists
// only while the ranks live. After a crash it takes only a moment, because the restart waits for
// it. After a hang it takes seconds and uses debuggers. [Bundle.Words] and [Bundle.Node] read the
// rest while the next attempt runs. Every source has a deadline and a bound. If a source yields
// nothing, the index says why.
package failurebundle

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/golaunch/golaunch/internal/host/safefile"
)

const (
	// crashLimit is how long a restart may wait for the evidence of a crash. The evidence mostly
	// takes a few milliseconds.
	crashLimit = 200 * time.Millisecond
	// hangLimit is how long a restart may wait for the evidence of a hang. toolLimit bounds a
	// debugger or a service.
	hangLimit = 10 * time.Second
	toolLimit = 8 * time.Second
	// maxEntry and maxTotal bound an entry and a bundle, in bytes before compression.
	maxEntry = 1 << 20
	maxTotal = 64 << 20
)

// Title says what the evidence is about.
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
	// Env is the environment that the rank was started with. RAS is the address of its NCCL's RAS
	// service; empty without a GPU.
	Env []string
	RAS string
	// PIDs are the rank's living processes, the busiest first.
	PIDs []int
	// Logs are the names of the rank's log files in the directory of the job.
	Logs []string
	// Rights are the rights of the rank's user. Files that the rank names are read, and debuggers
	// are run, with these rights alone.
	Rights *safefile.Rights
}

// Bundle is evidence that is being gathered. Only one goroutine may use it at a time.
type Bundle struct {
	title   Title
	entries []entry
	// envs are the ranks' environments, whose secrets are masked when the archive is written.
	envs [][]string
}

// New begins a bundle.
func New(t Title) *Bundle { return &Bundle{title: t} }

// Ranks gathers what exists only while the ranks live. It takes at most 0.2 s after a crash and 10
// s after a hang.
func (b *Bundle) Ranks(ctx context.Context, ranks []Rank, hang bool) {
	var sources []source
	limit := crashLimit
	if hang {
		limit = hangLimit
	}
	for _, r := range ranks {
		b.envs = append(b.envs, r.Env)
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
	// From says where the entry comes from.
	From string `json:"from"`
	Size int    `json:"size_bytes"`
	// Truncated says that the source had more data, and Missing why data is missing.
	Truncated bool   `json:"truncated"`
	Missing   string `json:"missing,omitempty"`

	data []byte
	// binary says that the data cannot be masked.
	binary bool
}

// source reads an entry. If it returns data and an error, the data is kept too.
type source struct {
	name, from string
	// most bounds the entry, in bytes; 0 means maxEntry.
	most   int
	binary bool
	read   func(context.Context) ([]byte, error)
}

// gather reads all sources at once and takes what they have read when ctx ends. Reading about a
// process that hangs in the kernel may hang too; gather does not wait for such a read.
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
