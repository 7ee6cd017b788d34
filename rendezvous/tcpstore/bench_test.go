package tcpstore

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/rendezvous/tcpstore/internal/protocol"
)

// stores runs a benchmark against this package's store and the stores of all installations of
// torch, each in its own process.
func stores(b *testing.B, f func(b *testing.B, c *crowd, group int)) {
	found := torches(b)
	if python := os.Getenv(uvPython); python != "" {
		out, err := torch{interpreter: python}.python(b.Context(), versionScript).Output()
		if err != nil {
			b.Fatalf("the Python %s that %s names has no torch: %v", python, uvPython, err)
		}
		version, _, _ := strings.Cut(string(bytes.TrimSpace(out)), "+")
		found = append(found, torch{version: version, interpreter: python})
	}
	if len(found) == 0 {
		b.Log("there is no torch to compare with")
	}
	for _, o := range append([]torch{{}}, found...) {
		b.Run(o.String(), func(b *testing.B) {
			addr, group := o.serve(b)
			c := newCrowd(b, addr)
			c.legacy = strings.HasPrefix(o.version, "1.")
			f(b, c, group)
		})
	}
}

// gather plays a job's start: n clients greet, count themselves, and wait for the last client.
func gather(n, round int) step {
	count, all := fmt.Sprint("count", round), fmt.Sprint("all", round)
	add, wait := ask(protocol.OpAdd).key(count).int(1).bytes, ask(protocol.OpWait).keys([]string{all}).bytes
	last := append(setting(all, []byte("1")), wait...)
	return func(i, round int, reply []byte) ([]byte, int) {
		switch {
		case round == 0:
			return greet, 4
		case round == 1:
			return add, 8
		case round == 2 && binary.LittleEndian.Uint64(reply) == uint64(n):
			return last, 1
		case round == 2:
			return wait, 1
		}
		return nil, 0
	}
}

func BenchmarkGather(b *testing.B) {
	for _, n := range []int{1000, 10000, 18000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			stores(b, func(b *testing.B, c *crowd, group int) {
				idle, _ := usage(b, group)
				for round := 0; b.Loop(); round++ {
					c.play(n, gather(n, round))
					b.StopTimer()
					full, _ := usage(b, group)
					b.ReportMetric(float64(full-idle)/float64(n), "B/conn")
					c.leave()
					b.StartTimer()
				}
			})
		})
	}
}

// BenchmarkOps measures requests of n clients at once. Each client sends its next request after the
// reply to the previous one.
func BenchmarkOps(b *testing.B) {
	value := make([]byte, 128)
	key := func(i int) string { return fmt.Sprint("key", i) }
	add := ask(protocol.OpAdd).key("count").int(1).bytes
	roots := make([]string, 782) // NCCL roots of 100,000 ranks; torch makes one root for every 128 ranks
	for i := range roots {
		roots[i] = key(i)
	}
	for _, op := range []struct {
		name    string
		request func(i int) []byte
		want    int
	}{
		{"SetGet", func(i int) []byte {
			return slices.Concat(setting(key(i), value), ask(protocol.OpGet).key(key(i)).bytes)
		}, 8 + len(value)},
		{"Add", func(int) []byte { return add }, 8},
		{"Add16Together", func(int) []byte { return bytes.Repeat(add, 16) }, 16 * 8},
		{"MultiGet782", func(int) []byte { return ask(protocol.OpMultiGet).keys(roots).bytes }, len(roots) * (8 + len(value))},
	} {
		for _, n := range []int{1, 64, 1000} {
			b.Run(fmt.Sprintf("%s/%d", op.name, n), func(b *testing.B) {
				requests := make([][]byte, n)
				for i := range requests {
					requests[i] = op.request(i)
				}
				all := ask(protocol.OpCheck).keys(roots).bytes
				for _, root := range roots {
					all = append(setting(root, value), all...)
				}
				ops(b, n, op.name == "MultiGet782", all, func(times int) step {
					return func(i, round int, _ []byte) ([]byte, int) {
						if round == times {
							return nil, 0
						}
						return requests[i], op.want
					}
				})
			})
		}
	}
}

func setting(key string, value []byte) []byte { return ask(protocol.OpSet).key(key).value(value).bytes }

// BenchmarkRelease measures pairs of clients that end each other's waits in turn.
func BenchmarkRelease(b *testing.B) {
	value := []byte("1")
	for _, n := range []int{2, 64, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			set, wait, again := make([][]byte, n), make([][]byte, n), make([][]byte, n)
			for i := range n {
				ours, theirs := fmt.Sprint("key", i), fmt.Sprint("key", i^1)
				set[i], wait[i] = setting(ours, value), ask(protocol.OpWait).keys([]string{theirs}).bytes
				again[i] = slices.Concat(ask(protocol.OpDeleteKey).key(theirs).bytes, set[i], wait[i])
			}
			ops(b, n, false, ask(protocol.OpCheck).keys(nil).bytes, func(times int) step {
				return func(i, round int, _ []byte) ([]byte, int) {
					switch odd := i%2 == 1; {
					case round == 0 && odd:
						return wait[i], 1
					case round == 0:
						return slices.Concat(set[i], wait[i]), 1
					case round == times && odd:
						return set[i], 0
					case round >= times:
						return nil, 0
					}
					return again[i], 9
				}
			})
		})
	}
}

// ops lets n clients share b.N steps, with MULTI_GET if multi is set. Before that, one of the
// clients sends prepare, whose reply has 1 byte.
func ops(b *testing.B, n int, multi bool, prepare []byte, steps func(times int) step) {
	stores(b, func(b *testing.B, c *crowd, group int) {
		if c.legacy && multi {
			b.Skip("torch 1.13 has no MULTI_GET")
		}
		c.play(n, func(_, round int, _ []byte) ([]byte, int) { return [][]byte{greet, nil}[round], 4 })
		c.play(1, func(_, round int, _ []byte) ([]byte, int) { return [][]byte{prepare, nil}[round], 1 })
		_, before := usage(b, group)
		b.ResetTimer()
		c.play(n, steps((b.N+n-1)/n))
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
		_, after := usage(b, group)
		b.ReportMetric(float64((after-before).Nanoseconds())/float64(b.N), "server-ns/op")
	})
}
