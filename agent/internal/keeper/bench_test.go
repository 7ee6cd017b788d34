package keeper

import (
	"os"
	"testing"

	"github.com/golaunch/golaunch/internal/process/proc"
)

// BenchmarkStart measures the start and the end of a process, with the keeper and without.
func BenchmarkStart(b *testing.B) {
	c := proc.Command{Path: "/bin/true", Args: []string{"true"}, Env: os.Environ()}
	b.Run("keeper", func(b *testing.B) {
		k, err := Open(b.TempDir(), func(err error) { b.Error(err) })
		must(b, err)
		defer func() { must(b, k.End()) }()
		sc, err := k.Scope("attempt", nil)
		must(b, err)
		for b.Loop() {
			p, err := sc.Start(c, nil)
			must(b, err)
			<-p.Done()
		}
	})
	b.Run("alone", func(b *testing.B) {
		s, err := proc.New(proc.Options{})
		must(b, err)
		defer func() { must(b, s.Close()) }()
		sc, err := s.Scope("attempt")
		must(b, err)
		for b.Loop() {
			p, err := sc.Start(c)
			must(b, err)
			<-p.Done()
		}
	})
}
