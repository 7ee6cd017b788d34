package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/golaunch/golaunch/launcher"
)

// reserver is a Go program that holds GPUs, runs two jobs on them at the same time, and then waits
// for the end of its input.
func reserver() {
	if err := reserve(context.Background()); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func reserve(ctx context.Context) error {
	c, err := launcher.Connect(ctx, clusterAt, "")
	if err != nil {
		return err
	}
	defer c.Close()
	// four GPUs on one node, and two on another
	groups := launcher.Resources{GPU: true, MinNodes: 2, MaxNodes: 2, PerNode: []int{4, 2}}
	r, err := c.Reserve(ctx, launcher.Job{ID: os.Args[1], Resources: groups}, 0)
	if err != nil {
		return err
	}
	for _, g := range r.Plan.Groups {
		fmt.Println(g.Node.Name, "has", len(g.Bundles))
	}
	first := make(chan error, 1)
	rollout := launcher.Job{
		Command: []string{"sh", "-c", "echo rank $RANK of $WORLD_SIZE"}, Resources: launcher.Resources{GPU: true, PerNode: []int{3}},
	}
	go func() {
		_, err := r.Run(ctx, rollout)
		first <- err
	}()
	if _, err := r.Run(ctx, rollout); err != nil {
		return err
	}
	fmt.Println("ran twice", <-first)
	if _, err := fmt.Scanln(); err != nil {
		return err
	}
	return errors.Join(r.Release(ctx), r.Err())
}

// TestAReservation: only jobs within a reservation get its GPUs, until it is released or its
// program dies.
func TestAReservation(t *testing.T) {
	t.Parallel()
	h, _, _, _ := up(t, 4)
	for id, c := range map[string]struct {
		end  func(p *process, input io.Writer)
		code int
	}{
		"released": {func(_ *process, input io.Writer) { fmt.Fprintln(input) }, 143},
		"killed":   {func(p *process, _ io.Writer) { p.cmd.Process.Kill() }, 129},
	} {
		cmd := h.nodes[1].Command("reserver", id)
		input, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		p := start(t, cmd, "HOME="+h.home)
		p.line("ran twice <nil>")
		p.line("n(9|10) has 4")
		p.line("rank 2 of 3")
		if j := h.status().job(t, id); !j.Reserve || j.Phase != "running" || j.GPUs != 6 {
			t.Errorf("the reservation: %+v", j)
		}
		h.start(0, "--gpus-per-node", "3", "--placement-timeout", "300ms", "--", "true").ends(124, "held by reservation "+id)
		within := h.start(0, "--within", id, "--gpus-per-node", "4", "--", "sh", "-c", hung)
		within.line("up 0")
		c.end(p, input)
		within.ends(c.code, "reservation "+id+" has ended")
		if code, out := p.wait(); code != 0 && id == "released" {
			t.Errorf("exit code %d:\n%s", code, out)
		}
		h.do("--nodes", "2", "--gpus-per-node", "4", "--", "true")
		h.start(0, "--within", id, "--gpus-per-node", "1", "--", "true").ends(2, "reservation "+id+" has ended")
	}
}
