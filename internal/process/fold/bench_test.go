package fold

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// BenchmarkFold makes 8,192 ranks print 20 similar lines a second each, as training does. An
// iteration is a line.
func BenchmarkFold(b *testing.B) {
	const world, kinds = 8192, 4
	rnd := rand.New(rand.NewPCG(1, 2))
	texts := make([][]byte, 0, 64*world) // 64 rounds of steps
	for round := range 64 {
		for rank := range world {
			texts = append(texts, benchLine(rnd, round%kinds, round/kinds, rank))
		}
	}
	b.ReportAllocs()
	f := New(0, World(world))
	groups := 0
	before := busy(b)
	for i := 0; b.Loop(); i++ {
		round, n := i/world, i%world
		rank := n * 4099 % world // the ranks come in no order
		at := begin.Add(time.Duration(round)*50*time.Millisecond + time.Duration(n)*5*time.Microsecond)
		groups += len(f.Add(Line{rank, Stdout, texts[round%64*world+rank], at}))
	}
	b.ReportMetric(float64(b.N)/(busy(b)-before).Seconds(), "lines/cpu-s")
	b.ReportMetric(float64(groups)/float64(b.N), "groups/line")
}

func benchLine(rnd *rand.Rand, kind, step, rank int) []byte {
	switch kind {
	case 0:
		return fmt.Appendf(nil, "[2026-03-02 12:00:%02d.%06d] iteration %8d/  500000 | lm loss: %.6E | grad norm: %.3f", step, rnd.IntN(1e6), step, 2+rnd.Float64()/10, 0.3+rnd.Float64()/10)
	case 1:
		return fmt.Appendf(nil, "gpu-node-%d:%d:%d [%d] NCCL INFO AllReduce: opCount %x count 1048576", rank/8, 2e4+rank%800, 2e4+rank%800, rank%8, step)
	case 2:
		return fmt.Appendf(nil, "saved checkpoint of step %d", step)
	}
	return fmt.Appendf(nil, "\x1b[32mINFO\x1b[0m step %d took %dms, %.1f tokens/s on cuda:%d", step, 400+rnd.IntN(50), 1e4+1e3*rnd.Float64(), rank%8)
}

// BenchmarkAlone makes one rank of many print unique lines.
func BenchmarkAlone(b *testing.B) {
	b.ReportAllocs()
	f := New(0, World(8192))
	text := make([]byte, 0, 64)
	before := busy(b)
	for i := 0; b.Loop(); i++ {
		text = fmt.Appendf(text[:0], "saved shard %d in %d.5 s", i, i%10)
		f.Add(Line{0, Stdout, text, begin.Add(time.Duration(i) * time.Millisecond)})
	}
	b.ReportMetric(float64(b.N)/(busy(b)-before).Seconds(), "lines/cpu-s")
}

// busy is the CPU time of this process with its garbage collector.
func busy(b *testing.B) time.Duration {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}
