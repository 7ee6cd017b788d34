package fabric

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/golaunch/golaunch/cmd/golaunch/internal/fabric/pairtests"
	"github.com/golaunch/golaunch/rendezvous/tcpstore"
)

// A node is slow if it has less than slowPart of the usual bandwidth, for example because its link
// runs at half its rate.
const slowPart = 0.5

// leader runs the rounds. Only one goroutine uses it.
type leader struct {
	node
	nodes   []hello
	silent  map[int]bool
	sent    []int // orders, by node
	own     map[int]outcome
	contest pairtests.Contest
	report  Report
}

// lead runs the test, prints the report, and ends all nodes.
func lead(ctx context.Context, n node) error {
	store, err := tcpstore.Dial(ctx, n.master, restLimit)
	if err != nil {
		return err
	}
	defer store.Close()
	n.store = store
	l := leader{
		node: n, nodes: make([]hello, n.info.Nodes), sent: make([]int, n.info.Nodes), silent: map[int]bool{}, own: map[int]outcome{},
		contest: pairtests.Contest{Nodes: n.info.Nodes, Slow: slowPart},
	}
	if n.Simulated {
		l.contest.Slow = 0
	}
	l.Limit = cmp.Or(l.Limit, map[Kind]time.Duration{TCP: tcpLimit, NCCL: ncclLimit}[n.kind])
	if err := l.greet(ctx); err != nil {
		return err
	}
	begin := time.Now()
	for round := 0; ; round++ {
		tests := l.contest.Next(round)
		if len(tests) == 0 {
			break
		}
		if err := l.round(ctx, tests); err != nil {
			return err
		}
		l.report.Rounds, l.report.Tests = round+1, l.report.Tests+len(tests)
	}
	l.report.Took = time.Since(begin)
	l.judge()
	if err := l.report.write(os.Stdout); err != nil {
		return fmt.Errorf("print the report: %w", err)
	}
	for node := range l.nodes {
		if err := l.order(ctx, node, order{End: &Report{Ill: l.report.Ill}}); err != nil {
			return err
		}
	}
	if len(l.silent) > 0 {
		return errSilent
	}
	return nil
}

// errSilent is rank 0's error if some nodes do not answer. The error makes the job end their ranks.
var errSilent = errors.New("rank 0 exits with an error on purpose, so that nodes that do not answer are stopped too")

// greet waits for all nodes to say hello.
func (l *leader) greet(ctx context.Context) error {
	keys := make([]string, len(l.nodes))
	for node := range keys {
		keys[node] = helloKey(node)
	}
	found, err := l.collect(ctx, keys, helloLimit)
	for node, text := range found {
		if text == nil {
			l.silence(node, fmt.Sprintf("it has not begun within %v", helloLimit))
			l.nodes[node].Name = fmt.Sprintf("node %d", node)
			continue
		}
		if err := json.Unmarshal(text, &l.nodes[node]); err != nil {
			return fmt.Errorf("read the hello of node %d: %w", node, err)
		}
	}
	return err
}

// silence notes that a node has not answered. Later rounds omit the node.
func (l *leader) silence(node int, why string) {
	l.silent[node] = true
	l.own[node] = outcome{Err: why, Code: "fabric-silent"}
	l.contest.Done = append(l.contest.Done, pairtests.Result{Test: pairtests.Test{A: node, B: node}, Err: why})
}

// collect waits for keys and returns their values; nil for keys that come too late.
func (l *leader) collect(ctx context.Context, keys []string, limit time.Duration) ([][]byte, error) {
	all, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	values, err := l.store.MultiGet(all, keys...)
	if err == nil || all.Err() == nil {
		return values, err
	}
	values = make([][]byte, len(keys))
	for i, key := range keys {
		there, err := l.store.Check(ctx, key)
		if err == nil && there {
			values[i], err = l.store.Get(ctx, key)
		}
		if err != nil {
			return nil, err
		}
	}
	return values, nil
}

func (l *leader) order(ctx context.Context, node int, o order) error {
	err := put(ctx, l.store, orderKey(node, l.sent[node]), o)
	l.sent[node]++
	return err
}

// round runs all tests of a round at once and notes their results.
func (l *leader) round(ctx context.Context, tests []pairtests.Test) error {
	var keys []string
	var asked []pairtests.Test
	for _, t := range tests {
		if l.silent[t.A] {
			continue // the node has failed since the hellos; later rounds omit it
		}
		for _, node := range sides(t) {
			keys = append(keys, outcomeKey(node, l.sent[node]))
			if err := l.order(ctx, node, l.orders(t, node)); err != nil {
				return err
			}
		}
		asked = append(asked, t)
	}
	values, err := l.collect(ctx, keys, l.Limit+slack)
	if err != nil {
		return fmt.Errorf("wait for %d nodes to test: %w", len(keys), err)
	}
	for _, t := range asked {
		n := len(sides(t))
		if err := l.take(t, values[:n]); err != nil {
			return err
		}
		values = values[n:]
	}
	return nil
}

// sides are the nodes of a test.
func sides(t pairtests.Test) []int {
	if t.Alone() {
		return []int{t.A}
	}
	return []int{t.A, t.B}
}

// orders returns a node's order for a test.
func (l *leader) orders(t pairtests.Test, node int) order {
	o := order{Test: fmt.Sprintf("%d-%d", t.A, t.B), First: node == t.A, Size: l.nodes[node].GPUs, Limit: l.Limit}
	if !t.Alone() {
		o.Peer, o.Size = l.nodes[t.A+t.B-node].Name, l.nodes[t.A].GPUs+l.nodes[t.B].GPUs
	}
	if !o.First {
		o.Base = l.nodes[t.A].GPUs
	}
	return o
}

// take merges the outcomes of a test's nodes into one result, with the worse figures.
func (l *leader) take(t pairtests.Test, values [][]byte) error {
	r := pairtests.Result{Test: t}
	silent, echo := false, ""
	var said, blocked []string
	for i, node := range sides(t) {
		if values[i] == nil {
			l.silence(node, fmt.Sprintf("it has not answered within %v", l.Limit+slack))
			silent = true
			continue
		}
		var out outcome
		if err := json.Unmarshal(values[i], &out); err != nil {
			return fmt.Errorf("read what %s found: %w", l.nodes[node].Name, err)
		}
		if t.Alone() {
			l.own[node] = out
		}
		r.Latency = max(r.Latency, out.Latency)
		if out.Bandwidth > 0 && (r.Bandwidth == 0 || out.Bandwidth < r.Bandwidth) {
			r.Bandwidth = out.Bandwidth
		}
		switch {
		case out.Err == "":
		case out.Blocked && !t.Alone():
			blocked = append(blocked, out.Err)
		case out.Echo:
			echo = out.Err
		default:
			said = append(said, out.Err)
			if !t.Alone() {
				said[len(said)-1] = l.nodes[node].Name + ": " + out.Err
			}
		}
	}
	// The error of the unreached node adds nothing to the error of the node that did not reach it.
	if r.Err = cmp.Or(strings.Join(blocked, "; "), strings.Join(said, "; "), echo); !silent {
		l.contest.Done = append(l.contest.Done, r)
	}
	return nil
}
