package dl

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/internal/testkit/nccltest"
)

// reduction has the input of one rank of a test, and the rank's result.
type reduction struct {
	ID         UniqueID
	Rank, Size int
	Latency    time.Duration
	Bandwidth  float64
	Err        string
	Sum        bool
}

// reduce does the work of one rank, in a process of its own.
func (r reduction) reduce() (err error) {
	l, err := Open("")
	if err != nil {
		return err
	}
	d, err := OpenDevice(r.Rank)
	if err != nil {
		return err
	}
	c, err := l.Join(d, r.ID, r.Rank, r.Size)
	if err != nil {
		return err
	}
	var out reduction
	out.Latency, out.Bandwidth, err = c.Measure()
	if err == nil {
		err = errors.Join(c.Close(), d.Close())
	} else {
		err = errors.Join(err, c.Abort())
	}
	if err != nil {
		out.Err, out.Sum = err.Error(), errors.Is(err, ErrSum)
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

func reduceInChild(text string) {
	var r reduction
	err := json.Unmarshal([]byte(text), &r)
	if err == nil {
		err = r.reduce()
	}
	if err != nil {
		err = json.NewEncoder(os.Stdout).Encode(reduction{Err: err.Error()})
	}
	if err != nil {
		panic(err)
	}
}

// reduceAll runs size ranks with the stand-ins for NCCL and the driver.
func reduceAll(t *testing.T, dir string, size int, env ...string) []reduction {
	t.Helper()
	l, err := Open(dir + "/libnccl.so.2")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	id, err := l.NewID()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	outputs := make([]strings.Builder, size)
	var ranks []*exec.Cmd
	for rank := range size {
		order, err := json.Marshal(reduction{ID: id, Rank: rank, Size: size})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(ctx, os.Args[0])
		cmd.Env = append(append(os.Environ(), "GOLAUNCH_TEST_REDUCE="+string(order), "LD_LIBRARY_PATH="+dir), env...)
		cmd.Stdout, cmd.Stderr = &outputs[rank], t.Output()
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ranks = append(ranks, cmd)
	}
	all := make([]reduction, size)
	for rank, cmd := range ranks {
		if err := cmd.Wait(); err != nil {
			t.Fatalf("rank %d: %v", rank, err)
		}
		if err := json.Unmarshal([]byte(outputs[rank].String()), &all[rank]); err != nil {
			t.Fatalf("rank %d printed %q: %v", rank, &outputs[rank], err)
		}
	}
	return all
}

func TestMeasure(t *testing.T) {
	for _, defines := range [][]string{nil, {"-DBEFORE_2_23"}} {
		dir := nccltest.Libraries(t, defines...)
		for _, size := range []int{1, 3} {
			t.Run(fmt.Sprint(defines, size), func(t *testing.T) {
				for rank, r := range reduceAll(t, dir, size) {
					if r.Err != "" || r.Latency <= 0 || (r.Bandwidth > 0) != (size > 1) {
						t.Errorf("rank %d: %+v", rank, r)
					}
				}
			})
		}
	}
}

func TestMeasureFails(t *testing.T) {
	dir := nccltest.Libraries(t)
	for fault, want := range map[string]string{
		"sum":   "the sum is wrong: element 0 of an all-reduce over 2 ranks is 4 on GPU 0, not 3",
		"async": "ncclAllReduce: remote process exited or there was a network error (6)",
		"link":  "ncclCommInitRankScalable: unhandled system error (2): socketStartConnect: Connect to 10.0.0.9 failed",
		"gpu":   "cuInit on GPU 0: CUDA_ERROR_NO_DEVICE (100)",
	} {
		t.Run(fault, func(t *testing.T) {
			if r := reduceAll(t, dir, 2, "FAKE_NCCL=*="+fault)[0]; !strings.Contains(r.Err, want) || r.Sum != (fault == "sum") {
				t.Errorf("%+v, want %q", r, want)
			}
		})
	}
}

func TestNCCLWithoutConfig(t *testing.T) {
	l, err := Open(nccltest.Libraries(t, "-DBEFORE_2_23", "-DBEFORE_2_14") + "/libnccl.so.2")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	const want = "undefined symbol: ncclCommInitRankConfig; NCCL 2.14 or later is needed"
	if _, err := l.NewID(); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error %v, want %q", err, want)
	}
}
