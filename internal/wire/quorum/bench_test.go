package quorum

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkPropose measures the time until an entry of 300 bytes is committed, in memory: one at a
// time, and many at once. Snapshots keep the log short.
func BenchmarkPropose(b *testing.B) {
	for _, n := range []int{1, 3, 5} {
		entry := [][]byte{make([]byte, 300)}
		b.Run(fmt.Sprintf("voters=%d/one", n), func(b *testing.B) {
			t := assembly(b, n)
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if err := wait(b, func(done func(error)) { t.Propose(entry, done) }); err != nil {
					b.Fatal(err)
				}
				if i%10_000 == 0 {
					t.Snapshot(nil, func(error) {})
				}
			}
		})
		b.Run(fmt.Sprintf("voters=%d/many", n), func(b *testing.B) {
			t := assembly(b, n)
			b.ReportAllocs()
			room := make(chan struct{}, 1000)
			for i := 0; b.Loop(); i++ {
				room <- struct{}{}
				t.Propose(entry, func(err error) {
					if err != nil {
						b.Error(err)
					}
					<-room
				})
				if i%10_000 == 0 {
					t.Snapshot(nil, func(error) {})
				}
			}
		})
	}
}

// assembly is some voters that reach each other at once; the first one leads.
func assembly(b *testing.B, n int) *Term {
	logs := make([]atomic.Pointer[Log], n+1)
	var voters []Voter
	for i := range n {
		voters = append(voters, Voter{ID: uint64(i + 1)})
	}
	for _, self := range voters {
		l, err := Follow(Config{Self: self, ElectionTimeout: time.Second, Send: func(m Message) {
			if to := logs[m.To.ID].Load(); to != nil {
				to.Step(self, m.Bytes())
			}
			m.Done(nil)
		}})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(l.Close)
		logs[self.ID].Store(l)
	}
	logs[1].Load().Found(voters[1:]...)
	return <-logs[1].Load().Terms()
}
