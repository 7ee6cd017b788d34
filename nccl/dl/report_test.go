package dl

import (
	"errors"
	"maps"
	"strings"
	"testing"
	"time"
)

// report is a report of NCCL 2.28.9, in which a comma is missing.
const report = `{
  "nccl_version": "2.28.9",
  "cuda_runtime_version": 12090,
  "cuda_driver_version": 13000,
  "timestamp": "2026-06-19 06:56:24",
  "communicators_count": 1,
  "communicators": [
    {
      "hash": "0x4e0104c2022fa2f9",
      "secondary_hash": "0x2989420b68927728:0xa3489b479e521019",
      "size": 3,
      "ranks_count": 1,
      "missing_ranks_count": 2,
      "ranks": [
        {
          "rank": 0,
          "host": "10.0.77.184",
          "pid": 10205,
          "cuda_dev": 0,
          "nvml_dev": 2,
          "status": {
            "init_state": 7,
            "async_error": 6,
            "finalize_called": false,
            "destroy_flag": false,
            "abort_flag": true
          },
          "collective_counts": {
            "AllGather": 18446744073709551615,
            "AllReduce": 4
          }
        }
      ],
      "missing_ranks": [
        {
          "rank": 1,
          "host": "10.0.77.185",
          "pid": 10206,
          "cuda_dev": 1,
          "nvml_dev": 1
          "status": {
            "unresponsive": true,
            "considered_dead": false
          }
        },
        {
          "rank": 2,
          "host": "unknown",
          "pid": -1,
          "cuda_dev": -1,
          "nvml_dev": -1
          "status": {
            "unresponsive": true,
            "considered_dead": true
          }
        }
      ]
    }
  ],
  "ras": {
    "collection_time_sec": 5.001,
    "timeouts_count": 1
  }
}
`

func TestReport(t *testing.T) {
	for name, raw := range map[string]string{
		"2.28.9": report,
		"later":  strings.ReplaceAll(report, "1\n          \"status\"", "1,\n          \"status\""),
	} {
		t.Run(name, func(t *testing.T) {
			s := service{json: true, object: raw, heard: make(chan string, 4)}
			r, err := dial(t, listen(t, s.serve)).Report(t.Context(), time.Second)
			if err != nil || r.Raw != raw || r.NCCL != "2.28.9" || r.Collection.Timeouts != 1 || r.Collection.Seconds != 5.001 {
				t.Fatalf("report %+v, %v", r, err)
			}
			if len(r.Communicators) != 1 || r.Communicators[0].Size != 3 || len(r.Communicators[0].Missing) != 2 {
				t.Fatalf("communicators %+v", r.Communicators)
			}
			rank, missing := r.Communicators[0].Ranks[0], r.Communicators[0].Missing
			launched := map[string]uint64{"AllGather": 1<<64 - 1, "AllReduce": 4}
			if rank.Process != (Process{0, "10.0.77.184", 10205, 0, 2}) || !maps.Equal(rank.Launched, launched) {
				t.Errorf("rank %+v", rank)
			}
			if state := rank.State; state.Init != 7 || state.Async != 6 || state.Finalized || state.Destroyed || !state.Aborted {
				t.Errorf("state %+v", state)
			}
			if missing[0].Process != (Process{1, "10.0.77.185", 10206, 1, 1}) || !missing[0].State.Unresponsive || missing[0].State.Dead {
				t.Errorf("missing %+v", missing[0])
			}
			if missing[1].Process != (Process{2, "unknown", -1, -1, -1}) || !missing[1].State.Dead {
				t.Errorf("missing %+v", missing[1])
			}
		})
	}
}

func TestReportBeforeJSON(t *testing.T) {
	s := service{text: "NCCL version 2.27.5\n", heard: make(chan string, 4)}
	c := dial(t, listen(t, s.serve))
	if r, err := c.Report(t.Context(), time.Second); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("report %+v, %v", r, err)
	}
	if text, err := c.Text(t.Context(), time.Second, false); err != nil || text != s.text {
		t.Errorf("text %q, %v", text, err)
	}
}

func TestMalformedReports(t *testing.T) {
	for _, raw := range []string{"\n", "{}\n", "[]\n", report[:len(report)-3] + "\n", report + report, "NCCL version 2.28.9\n"} {
		s := service{json: true, object: raw, heard: make(chan string, 4)}
		r, err := dial(t, listen(t, s.serve)).Report(t.Context(), time.Second)
		if err == nil || r.Raw != raw || r.NCCL != "" {
			t.Errorf("%q is %+v, %v", raw, r, err)
		}
	}
}

func FuzzReport(f *testing.F) {
	f.Add(report)
	f.Add("{}")
	f.Fuzz(func(t *testing.T, raw string) {
		if r, err := parseReport(raw); r.Raw != raw || (err == nil) != (r.NCCL != "") {
			t.Errorf("%q is %+v, %v", raw, r, err)
		}
	})
}
