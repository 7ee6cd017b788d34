// Go-controller is a program that calls its own ranks: when it runs outside golaunch, it holds
// nodes of a cluster, runs four workers of its own binary there, and asks them for parts of pi; as
// a rank, it computes such parts.
//
//	GOLAUNCH_COORDINATOR=n0:29400 go run ./examples/go-controller
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/launcher/group"
	"github.com/golaunch/golaunch/rankenv"
)

func main() {
	log.SetFlags(0)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	me, err := rankenv.Current()
	if errors.Is(err, rankenv.ErrNotLaunched) {
		err = control(ctx)
	} else if err == nil {
		err = me.Serve(ctx, map[string]rankenv.Handler{"sum": sum})
	}
	if err != nil {
		log.Fatal(err)
	}
}

// part is a part of the series of Leibniz.
type part struct{ From, To int }

// sum is what a worker answers.
func sum(_ context.Context, in []byte) ([]byte, error) {
	var p part
	if err := json.Unmarshal(in, &p); err != nil {
		return nil, err
	}
	total := 0.0
	for i := p.From; i < p.To; i++ {
		total += 4 / float64(2*i+1) * float64(1-2*(i%2))
	}
	return json.Marshal(total)
}

// control lets four workers compute the sum.
func control(ctx context.Context) error {
	c, err := launcher.Connect(ctx, os.Getenv("GOLAUNCH_COORDINATOR"), "")
	if err != nil {
		return err
	}
	defer c.Close()
	self, err := os.Executable()
	if err != nil {
		return err
	}
	where := launcher.Resources{PerNode: []int{4}}
	held, err := group.Reserve(ctx, c, launcher.Job{Resources: where}, 0)
	if err != nil {
		return err
	}
	g, err := held.Group(ctx, launcher.Job{Command: []string{self}, Resources: where, Restarts: launcher.Restarts{Max: 1}})
	if err != nil {
		return errors.Join(err, held.Release(ctx))
	}
	const terms = 4_000_000
	in := make([][]byte, g.Size())
	for rank := range in {
		if in[rank], err = json.Marshal(part{rank * terms / len(in), (rank + 1) * terms / len(in)}); err != nil {
			return err
		}
	}
	pi := 0.0
	for a := range g.CallEach(ctx, "sum", in) {
		var n float64
		if err = errors.Join(a.Err, json.Unmarshal(a.Out, &n)); err != nil {
			break
		}
		fmt.Printf("worker %d: %.6f\n", a.Rank, n)
		pi += n
	}
	_, closed := g.Close()
	if err = errors.Join(err, closed, held.Release(ctx)); err == nil {
		fmt.Printf("pi is about %.6f\n", pi)
	}
	return err
}
