package verdict

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/golaunch/golaunch/launcher/report"
)

// failures are the same failure as different ranks would write it at different times.
var failures = []string{
	"[rank%[1]d]: Traceback (most recent call last):\n[rank%[1]d]:   File \"/scratch/%[5]d/train.py\", line 12, in step\n" +
		"[rank%[1]d]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate %[2]d.25 GiB. GPU %[1]d has a total capacity of 79.%[2]d GiB. Process %[2]d has %[5]d MiB\n",
	"Traceback (most recent call last):\n  File \"/w/a.py\", line 7, in f\nRuntimeError: rank %[1]d (pid %[2]d) at %[3]s: bad handle %[4]s in /tmp/tmp%08[5]d/x\n",
	"[E1218 %[3]s ProcessGroupNCCL.cpp:629] [Rank %[1]d] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=%[2]d) ran for %[5]d milliseconds\n",
	"Traceback (most recent call last):\n  File \"/w/a.py\", line 7, in f\nRuntimeError: [gloo/pair.cc:598] Connection closed by peer [10.0.%[1]d.%[2]d]:%[5]d\n",
	"%[3]s node-%[1]d kernel: NVRM: Xid (PCI:0000:%02[1]d:00): 79, pid=%[2]d, GPU has fallen off the bus.\n",
	"%[3]s terminate called, <object at %[4]s>\n",
}

func draw(t *rapid.T, template string) report.Failure {
	var n [3]int
	for i := range n {
		n[i] = rapid.IntRange(0, 99_999_999).Draw(t, "number")
	}
	at := rapid.SampledFrom([]string{"20:27:21.426415540", "07:00:00", "2026-01-02T03:04:05Z", "2026-11-21 10:00:00,123"}).Draw(t, "time")
	tail, _, _ := strings.Cut(fmt.Sprintf(template, n[0]%100, n[1], at, fmt.Sprintf("0x%x", rapid.Uint64().Draw(t, "address")), n[2]), "%!(EXTRA")
	return report.Failure{Exit: report.Exit{Code: 1}, Tail: tail, Rank: n[0] % 100, Node: fmt.Sprintf("node-%d", n[0]%100), Attempt: n[1] % 9}
}

func TestSignatureIsTheFailures(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.IntRange(0, len(failures)-1).Draw(t, "failure")
		a, b := draw(t, failures[i]), draw(t, failures[i])
		if sa, sb := Signature(a), Signature(b); sa != sb {
			t.Fatalf("%q\n%q\n%s\n%s", a.Tail, b.Tail, sa, sb)
		}
		for j, other := range failures {
			if j != i && Signature(draw(t, other)) == Signature(a) {
				t.Fatalf("failures %d and %d have the signature %q", i, j, Signature(a))
			}
		}
	})
}

func TestSignatureKnowsThePlace(t *testing.T) {
	at := func(place string) string {
		return Signature(report.Failure{Exit: report.Exit{Code: 1}, Tail: "Traceback (most recent call last):\n  File \"/a/" + place + ", in f\nKeyError: 'x'\n"})
	}
	if at(`t.py", line 3`) == at(`t.py", line 4`) || at(`t.py", line 3`) == at(`u.py", line 3`) {
		t.Error("another line, and another file, have the same signature")
	}
	if at(`t.py", line 3`) != at(`b/t.py", line 3`) {
		t.Error("the folder counts")
	}
}

// FuzzJudge looks for a panic, and for a verdict that breaks the rules of the package.
func FuzzJudge(f *testing.F) {
	for _, s := range samples {
		f.Add(1, 0, s.line, s.miss, "")
	}
	f.Add(134, 6, thrown+" 'x'\n  what():  y", traceback+"KeyError: 1\n\n"+during+"\n\n"+traceback, "NVRM: Xid (PCI:0): 79")
	f.Fuzz(func(t *testing.T, code, signal int, tail, trace, kernel string) {
		e := report.Failure{Exit: report.Exit{Code: code, Signal: signal}, Tail: tail, Traceback: trace, Kernel: kernel}
		v := Judge(e)
		if e.Exit == (report.Exit{}) {
			if v != (report.Verdict{}) {
				t.Fatalf("a verdict on success: %+v", v)
			}
			return
		}
		if !valid(v.Action) || v.Cause == "" || v.Remedy == "" || v.Title == "" || v != Judge(e) {
			t.Fatalf("%+v", v)
		}
		if !utf8.ValidString(v.Quote) || len(v.Quote) > maxQuote+3 || strings.Contains(v.Quote, "\n") || (v.Line == 0) != (v.From == report.FromExit) {
			t.Fatalf("%+v", v)
		}
		if s := Signature(e); len(s) > maxSignature || !utf8.ValidString(s) {
			t.Fatalf("signature %q", s)
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("stop a /b/ c")
	f.Add("# x\n\nwait victim:b-2 /\\/x\\\\/\n")
	f.Fuzz(func(t *testing.T, data string) {
		rules, err := Parse("f", data)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "f:") {
				t.Fatalf("%v does not name the file", err)
			}
			return
		}
		for _, r := range rules {
			if !valid(r.Action) || r.Cause == "" || r.Remedy == "" || len(r.patterns) != 1 {
				t.Fatalf("%+v", r)
			}
		}
		Judge(report.Failure{Exit: report.Exit{Code: 1}, Tail: data}, rules...)
	})
}
