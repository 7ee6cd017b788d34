package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/nettest"
	"github.com/golaunch/golaunch/tools/bench/record"
)

// restarts measures the time from the death of one of 8 ranks to the start of the last new one, on
// one node and on four, with the launchers that restart ranks.
func (r *run) restarts(ctx context.Context, rounds func(round func(n int) error) error) error {
	return within(ctx, func(s *scope) error {
		var nodes []nettest.Node
		if os.Getuid() == 0 {
			nodes = nettest.Nodes(s, "10.78.0.2", "10.78.0.9", "10.78.0.10", "10.78.0.11")
		} else {
			r.skip("four nodes", "restart", "network namespaces need root")
		}
		return rounds(func(int) error {
			for _, l := range r.launchers(nil) {
				if !l.restarts {
					continue
				}
				notes := r.notes("restart")
				_, err := l.exec(ctx, giveUp, l.argv(8, r.rank, "restart", notes))
				took, noted := recovery(notes)
				r.timed(ctx, "restart-8", l.name, l.argv(8, r.rank, "restart", "NOTES"), took, errors.Join(err, noted))
				if nodes == nil {
					continue
				}
				notes = r.notes("restart")
				argv, err := r.onNodes(ctx, nodes, l.name, notes)
				took, noted = recovery(notes)
				r.timed(ctx, "restart-nodes-8", l.name, argv, took, errors.Join(err, noted))
			}
			return ctx.Err()
		})
	})
}

// onNodes runs a job with two ranks on each node to its end. It returns the command of the first
// node.
func (r *run) onNodes(ctx context.Context, nodes []nettest.Node, peer, notes string) (argv []string, err error) {
	token := filepath.Join(r.dir, "token")
	if err := os.WriteFile(token, []byte(strings.Repeat("k", 32)), 0o600); err != nil {
		return nil, err
	}
	mark, err := r.piece()
	if err != nil {
		return nil, err
	}
	var all sync.WaitGroup
	failures := make([]error, len(nodes))
	for i, node := range slices.Backward(nodes) {
		argv = append(r.onNode(peer, nodes[0].Addr.String()+":29400", node.Addr.String(), token, len(nodes), i), r.rank, "restart", notes)
		command := node.Command(argv...).Args
		all.Go(func() {
			_, failures[i] = r.execInto(ctx, giveUp, command, mark, filepath.Join(r.dir, fmt.Sprintf("out%d", i)))
		})
	}
	all.Wait()
	argv[len(argv)-1] = "NOTES"
	return argv, errors.Join(failures...)
}

// onNode returns a launcher's command on the i-th of n nodes, without the ranks' command. The
// namespaces share a host name. golaunch and torchrun would use it for every node, so the command
// names the nodes.
func (r *run) onNode(peer, at, addr, token string, n, i int) []string {
	if peer == record.Golaunch {
		return []string{
			r.golaunch, "--rendezvous", at, "--token-file", token, "--name", fmt.Sprintf("n%d", i), "--nodes", strconv.Itoa(n), "--procs-per-node", "2",
			"--quiet", "--backoff", "0s", "--",
		}
	}
	return []string{
		r.peers.torchrun, "--rdzv-backend", "c10d", "--rdzv-endpoint", at, "--rdzv-id", "job", "--rdzv-conf", fmt.Sprintf("is_host=%t", i == 0),
		"--local-addr", addr, "--nnodes", strconv.Itoa(n), "--nproc-per-node", "2", "--max-restarts", "1", "--no-python",
	}
}

// recovery reads the notes of 8 ranks: the time from the death to the last start of attempt 1.
func recovery(notes string) (time.Duration, error) {
	data, err := os.ReadFile(notes)
	if err != nil {
		return 0, err
	}
	var death, last int64
	started := 0
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		at, err := strconv.ParseInt(f[2], 10, 64)
		switch {
		case err != nil:
			return 0, err
		case f[0] == "death":
			death = at
		case f[0] == "1":
			started++
			last = max(last, at)
		}
	}
	if death == 0 || started != 8 {
		return 0, fmt.Errorf("noted a death at %d and %d new ranks, not 8", death, started)
	}
	return time.Duration(last - death), nil
}
