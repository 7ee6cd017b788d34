// Go-trainer is a program that launches itself: when it runs outside golaunch, it runs a job of
// four ranks of its own binary; as a rank, it trains. Both sides use golaunch as a library.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"syscall"

	"github.com/golaunch/golaunch/launcher"
	"github.com/golaunch/golaunch/rankenv"
)

func main() {
	log.SetFlags(0)
	me, err := rankenv.Current()
	if errors.Is(err, rankenv.ErrNotLaunched) {
		os.Exit(launch())
	}
	if err != nil {
		log.Fatal(err)
	}
	train(me)
}

// launch runs four ranks of this same binary here, and restarts them once if one fails.
func launch() int {
	self, err := os.Executable()
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	result, err := launcher.Run(ctx, launcher.Job{
		Command:   []string{self},
		Resources: launcher.Resources{PerNode: []int{4}},
		Restarts:  launcher.Restarts{Max: 1},
	})
	if err != nil {
		log.Print(err)
	}
	return result.Code
}

// train fits y = 3x by gradient descent; in the first attempt rank 2 fails halfway, so that the
// restart can be seen.
func train(me rankenv.Info) {
	w := 0.0
	for step := range 100 {
		if me.Attempt == 0 && me.Rank == 2 && step == 50 {
			err := errors.New("a planted failure at step 50")
			if e := me.ReportError(err); e != nil {
				log.Print(e)
			}
			log.Fatal(err)
		}
		x := float64(1 + (me.Rank+step)%5)
		w -= 0.01 * 2 * x * (w*x - 3*x)
	}
	fmt.Printf("rank %d of %d, attempt %d: w = %.3f\n", me.Rank, me.WorldSize, me.Attempt, w)
}
