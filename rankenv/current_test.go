package rankenv_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/rankenv"
)

// become replaces the environment of this process.
func become(t *testing.T, environ []string) {
	t.Helper()
	for name, value := range asMap(t, environ) {
		t.Setenv(name, value)
	}
}

func TestCurrent(t *testing.T) {
	become(t, rankenv.Merge(rankenv.Layers{}).Environ(eight(3)))
	got, err := rankenv.Current()
	want := rankenv.Info{
		JobID: "j1", Rank: 11, LocalRank: 3, WorldSize: 16, LocalWorldSize: 8, NodeRank: 1, Nodes: 2,
		MasterAddr: "fd00::1", MasterPort: 29500, Attempt: 2, MaxRestarts: 3, ErrorFile: "/log/error.json",
		NodeName: "n1", GPUUUID: "GPU-3",
	}
	if err != nil || got != want {
		t.Errorf("Current() = %+v, %v\nwant %+v", got, err, want)
	}
	if got.Master() != "[fd00::1]:29500" {
		t.Errorf("Master() = %s", got.Master())
	}
}

func TestCurrentUnderTorchrun(t *testing.T) {
	dump := load(t, "testdata/torchrun-2.14/2x2/rank3.json")
	for name, value := range dump {
		t.Setenv(name, value)
	}
	got, err := rankenv.Current()
	if err != nil || got.Rank != 3 || got.NodeRank != 1 || got.Nodes != 2 || got.Master() != "127.0.0.1:"+dump["MASTER_PORT"] {
		t.Errorf("Current() = %+v, %v", got, err)
	}
}

func TestCurrentErrors(t *testing.T) {
	if _, err := rankenv.Current(); !errors.Is(err, rankenv.ErrNotLaunched) {
		t.Errorf("outside of a launcher: %v", err)
	}
	for name, c := range map[string]struct{ set, want string }{
		"not a number":    {"RANK=three", `RANK="three" is not a number from 0 to 15`},
		"beyond":          {"RANK=16", `RANK="16" is not a number from 0 to 15`},
		"negative":        {"LOCAL_RANK=-1", `LOCAL_RANK="-1"`},
		"port":            {"MASTER_PORT=65536", `MASTER_PORT="65536" is not a number from 1 to 65535`},
		"no address":      {"MASTER_ADDR=", "MASTER_ADDR is not set"},
		"two at once":     {"RANK=x LOCAL_WORLD_SIZE=y", "LOCAL_WORLD_SIZE"},
		"first of two":    {"RANK=x LOCAL_WORLD_SIZE=y", "RANK="},
		"huge world size": {"WORLD_SIZE=99999999999", "WORLD_SIZE"},
	} {
		t.Run(name, func(t *testing.T) {
			become(t, rankenv.Merge(rankenv.Layers{}).Environ(eight(3)))
			become(t, strings.Fields(c.set))
			if i, err := rankenv.Current(); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("Current() = %+v, %v; want an error with %s", i, err, c.want)
			}
		})
	}
	t.Run("missing", func(t *testing.T) {
		become(t, rankenv.Merge(rankenv.Layers{}).Environ(eight(3)))
		os.Unsetenv("WORLD_SIZE")
		_, err := rankenv.Current()
		if err == nil || !strings.HasSuffix(err.Error(), "WORLD_SIZE is not set") {
			t.Errorf("Current() = %v, want an error about WORLD_SIZE alone", err)
		}
	})
}

func TestBeat(t *testing.T) {
	f := eight(3)
	f.HeartbeatFile = filepath.Join(t.TempDir(), "beat")
	become(t, rankenv.Merge(rankenv.Layers{}).Environ(f))
	info, err := rankenv.Current()
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []int64{100, 7} {
		if err := info.Beat(step, 500); err != nil {
			t.Fatal(err)
		}
	}
	if text, err := os.ReadFile(f.HeartbeatFile); string(text) != "7 500\n" || err != nil {
		t.Errorf("%q, %v", text, err)
	}
	if err := (rankenv.Info{}).Beat(1, 2); err != nil {
		t.Errorf("without a listener: %v", err)
	}
	info.HeartbeatFile = filepath.Join(t.TempDir(), "none", "beat")
	if err := info.Beat(1, 2); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "rank 11") {
		t.Errorf("without a folder: %v", err)
	}
}

func TestReportError(t *testing.T) {
	info := rankenv.Info{Rank: 3, ErrorFile: filepath.Join(t.TempDir(), "error.json")}
	before := time.Now().Unix()
	if err := info.ReportError(errors.New("loss is NaN at step 7")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(info.ErrorFile)
	if err != nil {
		t.Fatal(err)
	}
	// The form that torch/distributed/elastic/multiprocessing/errors/__init__.py reads, in which
	// the timestamp is a string.
	var got struct {
		Message struct {
			Message   string
			ExtraInfo struct {
				Stack     string `json:"py_callstack"`
				Timestamp int64  `json:"timestamp,string"`
			}
		}
	}
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	extra := got.Message.ExtraInfo
	if got.Message.Message != "loss is NaN at step 7" || extra.Timestamp < before || extra.Timestamp > time.Now().Unix() ||
		!strings.HasPrefix(extra.Stack, "loss is NaN at step 7\n") || !strings.Contains(extra.Stack, "TestReportError") {
		t.Errorf("reported %s", text)
	}

	if err := (rankenv.Info{}).ReportError(errors.New("x")); err != nil {
		t.Errorf("without a file: %v", err)
	}
	info.ErrorFile = filepath.Join(t.TempDir(), "none", "error.json")
	if err := info.ReportError(errors.New("x")); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "rank 3") {
		t.Errorf("without a folder: %v", err)
	}
}
