package verdict

import (
	"strings"
	"testing"
	"time"

	"github.com/golaunch/golaunch/launcher/report"
)

const traceback = `Traceback (most recent call last):
  File "/srv/train.py", line 12, in step
    loss = model(x)
           ^^^^^^^^
`

func TestJudge(t *testing.T) {
	failed := report.Exit{Code: 1}
	for _, c := range []struct {
		name   string
		e      report.Failure
		cause  string
		line   int
		action report.Action
		victim bool
	}{
		{"success", report.Failure{Tail: "CUDA out of memory"}, "", 0, "", false},
		{"nothing known", report.Failure{Exit: failed, Tail: "step 7\n"}, Unknown, 0, report.ActionRestart, false},
		{"what a rank asks for beats its exception", report.Failure{
			Exit: failed, Tail: traceback + "KeyError: 'x'\n(golaunch: rank 3 asks for a restart without this node: NVLink)", Traceback: traceback + "KeyError: 'x'\n",
		}, "exclude-asked", 6, report.ActionReplace, false},
		{"an exception", report.Failure{Exit: failed, Tail: "step 7\n" + traceback + "KeyError: 'x'\n"}, "python-error", 6, report.ActionRestart, false},
		{"the exception beats noise above it", report.Failure{
			Exit: failed, Tail: "CUDA out of memory, trying again\nAddress already in use\n" + traceback + "KeyError: 'x'\n",
		}, "python-error", 7, report.ActionRestart, false},
		{"and noise below it", report.Failure{
			Exit: failed, Tail: traceback + "KeyError: 'x'\n[rank0]:[W1120 10:00:00.1 x.cpp:1] Connection refused\n",
		}, "python-error", 5, report.ActionRestart, false},
		{"an echo does not beat what was fatal above it", report.Failure{
			Exit: failed, Tail: "RuntimeError: CUDA error: device-side assert triggered\n" + traceback +
				"torch.distributed.DistBackendError: NCCL error: x, remote process exited or there was a network error\n",
		}, "device-assert", 1, report.ActionRestart, false},
		{
			"an echo alone",
			report.Failure{Exit: failed, Tail: "Permission denied\n" + traceback + "RuntimeError: Connection closed by peer [::1]:1\n"},
			"gloo-peer-lost", 6, report.ActionRestart, true,
		},
		{"what NCCL says last", report.Failure{Exit: failed, Tail: traceback + `torch.distributed.DistBackendError: NCCL error in: a.cpp:3356, unhandled cuda error, NCCL version 2.26.2
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
Cuda failure 2 'out of memory'
`}, "cuda-oom", 8, report.ActionStop, false},
		{"a cause", report.Failure{
			Exit: failed, Tail: traceback + "ModuleNotFoundError: No module named 'a'\n\n" + caused + "\n\n" + traceback + "Wrapped: no\n",
		}, "import-error", 5, report.ActionStop, false},
		{"a fallback that failed", report.Failure{
			Exit: failed, Tail: traceback + "ModuleNotFoundError: No module named 'a'\n\n" + during + "\n\n" + traceback + "KeyError: 'x'\n",
		}, "python-error", 13, report.ActionRestart, false},
		{"a cleanup that failed", report.Failure{
			Exit: failed, Tail: traceback + "RuntimeError: CUDA out of memory\n\n" + during + "\n\n" + traceback + "KeyError: 'x'\n",
		}, "cuda-oom", 5, report.ActionStop, false},
		{"no chain: the last", report.Failure{
			Exit: failed, Tail: traceback + "ModuleNotFoundError: No module named 'a'\n\nstep 3\n" + traceback + "ValueError: it failed\n",
		}, "python-error", 12, report.ActionRestart, false},
		{"what the interpreter ignores", report.Failure{
			Exit: failed, Tail: traceback + "KeyError: 1\nException ignored in: <function D.__del__ at 0x7f>\n" + traceback + "ImportError: gone\n",
		}, "python-error", 5, report.ActionRestart, false},
		{"ranks' marks", report.Failure{
			Exit: failed, Tail: "[rank3]: " + strings.ReplaceAll(strings.TrimSpace(traceback), "\n", "\n[rank3]: ") + "\n[rank3]: KeyError: 'x'\n",
		}, "python-error", 5, report.ActionRestart, false},
		{"a C++ exception", report.Failure{
			Exit: report.Exit{Code: 134, Signal: 6}, Tail: "terminate called after throwing an instance of 'std::runtime_error'\n  what():  it is odd\n",
		}, "cpp-error", 2, report.ActionRestart, false},
		{"the watchdog throws", report.Failure{
			Exit: report.Exit{Code: 134, Signal: 6},
			Tail: "terminate called after throwing an instance of 'c10::DistBackendError'\n  what():  [Rank 0] Watchdog caught collective operation timeout: x\n",
		}, "nccl-timeout", 2, report.ActionRestart, true},
		{"a path in /dev/shm", report.Failure{
			Exit: failed, Tail: traceback + "OSError: [Errno 28] No space left on device: '/dev/shm/psm_1f'\n",
		}, "shm-full", 5, report.ActionRestart, false},
		{"a path elsewhere", report.Failure{
			Exit: failed, Tail: traceback + "OSError: [Errno 28] No space left on device: '/data/ckpt.pt'\n",
		}, "disk-full", 5, report.ActionWait, false},
		{"a semaphore of Python, which is in /dev/shm", report.Failure{
			Exit: failed, Tail: strings.Replace(traceback, "train.py", "multiprocessing/synchronize.py", 1) + "OSError: [Errno 28] No space left on device\n",
		}, "shm-full", 5, report.ActionRestart, false},
		{"NCCL's own line about /dev/shm", report.Failure{
			Exit: failed, Tail: traceback + `torch.distributed.DistBackendError: NCCL error in: a.cpp:3356, unhandled system error, NCCL version 2.26.2
ncclSystemError: System call (e.g. socket, malloc) or external library call failed or device error.
Last error:
Error while creating shared memory segment /dev/shm/nccl-T7ztZ6 (size 9637888)
`,
		}, "shm-full", 8, report.ActionRestart, false},
		{"no place for temporary files", report.Failure{
			Exit: failed, Tail: traceback + "FileNotFoundError: [Errno 2] No usable temporary directory found in ['/tmp', '/var/tmp']\n",
		}, "disk-full", 5, report.ActionWait, false},
		{"a user left the debugger", report.Failure{Exit: failed, Tail: traceback + "bdb.BdbQuit\n"}, Quit, 5, report.ActionStop, false},
		{"hardware beats an exception", report.Failure{
			Exit: failed, Kernel: "NVRM: Xid (PCI:0000:23:00): 79, GPU has fallen off the bus.\n", Tail: traceback + "KeyError: 'x'\n",
		}, "gpu-lost", 1, report.ActionReplace, false},
		{"a program's Xid does not", report.Failure{
			Exit: failed, Kernel: "NVRM: Xid (PCI:0000:23:00): 13, pid=1\nNVRM: Xid (PCI:0000:23:00): 45, pid=1\n", Tail: traceback + "KeyError: 'x'\n",
		}, "python-error", 5, report.ActionRestart, false},
		{"the kernel killed it", report.Failure{
			Exit: report.Exit{Code: 137, Signal: 9}, Kernel: "Out of memory: Killed process 12 (python3) total-vm:1kB\n",
		}, "host-oom", 1, report.ActionRestart, false},
		{"the cgroup killed it", report.Failure{Exit: report.Exit{Code: 137, Signal: 9, OOM: true}, Tail: "CUDA out of memory"}, "host-oom", 0, report.ActionRestart, false},
		{"it was not started", report.Failure{Exit: report.Exit{Code: 127, Spawn: "no-such-program: not found"}}, "not-started", 0, report.ActionStop, false},
		{"env did not find its command", report.Failure{Exit: report.Exit{Code: 127}, Tail: "/usr/bin/env: ‘nosuch’: No such file or directory\n"}, "not-started", 1, report.ActionStop, false},
		{"env in the C locale", report.Failure{Exit: report.Exit{Code: 127}, Tail: "x\nenv: 'python4': No such file or directory"}, "not-started", 2, report.ActionStop, false},
		{"another exit code", report.Failure{Exit: failed, Tail: "env: 'nosuch': No such file or directory\n"}, "file-not-found", 1, report.ActionRestart, false},
		{"env is not the last", report.Failure{Exit: report.Exit{Code: 127}, Tail: "env: 'nosuch': No such file or directory\nbye\n"}, "file-not-found", 1, report.ActionRestart, false},
		{"a line that quotes env", report.Failure{Exit: report.Exit{Code: 127}, Tail: "log: env: 'nosuch': No such file or directory\n"}, "file-not-found", 1, report.ActionRestart, false},
		{"SIGKILL after an exception that was handled", report.Failure{Exit: report.Exit{Code: 137, Signal: 9}, Tail: traceback + "KeyError: 'x'\nstep 8\n"}, "killed", 0, report.ActionRestart, false},
		{"SIGSEGV", report.Failure{Exit: report.Exit{Code: 139, Signal: 11}, Tail: "ImportError: slow path\n"}, "segfault", 0, report.ActionRestart, false},
		{"a shell's word for SIGSEGV", report.Failure{Exit: report.Exit{Code: 139}}, "segfault", 0, report.ActionRestart, false},
		{"SIGTERM", report.Failure{Exit: report.Exit{Code: 143, Signal: 15}}, "terminated", 0, report.ActionRestart, false},
		{"a signal without a rule", report.Failure{Exit: report.Exit{Code: 153, Signal: 25}}, Unknown, 0, report.ActionRestart, false},
		{"the error file", report.Failure{Exit: failed, Tail: "CUDA out of memory\n", Traceback: traceback + "KeyError: 'x'"}, "python-error", 5, report.ActionRestart, false},
		{"an unknown exit", report.Failure{Exit: report.Exit{Code: NotKnown}, Tail: "x\nCUDA out of memory"}, "cuda-oom", 2, report.ActionStop, false},
	} {
		v := Judge(c.e)
		if v.Cause != c.cause || v.Line != c.line || v.Action != c.action || v.Victim != c.victim {
			t.Errorf("%s: %+v, want %s at line %d, %s, victim %v", c.name, v, c.cause, c.line, c.action, c.victim)
		}
	}
}

func TestOwnRulesComeFirst(t *testing.T) {
	own, err := Parse("rules", "wait seat-taken /licence .* denied/ ask for a seat\nrestart victim:peer /peer \\/ gone/\n")
	if err != nil {
		t.Fatal(err)
	}
	v := Judge(report.Failure{Exit: report.Exit{Code: 1}, Tail: "licence X denied\n" + traceback + "KeyError: 'x'"}, own...)
	want := report.Verdict{
		Action: report.ActionWait, Cause: "seat-taken", Title: "a rule of your own", Quote: "licence X denied", From: report.FromTail, Line: 1, Remedy: "ask for a seat",
	}
	if v != want {
		t.Errorf("%+v", v)
	}
	if v := Judge(report.Failure{Exit: report.Exit{Code: 1}, Tail: "peer / gone"}, own...); v.Cause != "peer" || !v.Victim {
		t.Errorf("%+v", v)
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"\n# c\nretry x /y/":                `rules:3: action "retry": restart, replace, stop or wait`,
		"stop X /y/":                        `rules:1: code "X": up to 40 lower case letters, digits and '-'`,
		"stop x y":                          `rules:1: no /REGEXP/ after the code`,
		"stop x /y":                         `rules:1: the /REGEXP/ has no end`,
		"stop x //":                         `rules:1: a pattern of 0 bytes: 1 to 1024`,
		"stop x /(/":                        "rules:1: error parsing regexp: missing closing ): `(`",
		"stop x /y*/":                       `rules:1: /y*/ matches every line`,
		strings.Repeat("stop x /y/\n", 257): `rules:257: more than 256 rules`,
		strings.Repeat("#", MaxFile+1):      `rules: 65537 bytes of rules: at most 65536`,
		"stop x /" + strings.Repeat("y", 2000) + "/": `rules:1: a pattern of 2000 bytes: 1 to 1024`,
	} {
		if _, err := Parse("rules", text); err == nil || err.Error() != want {
			t.Errorf("%.40q: %v, want %s", text, err, want)
		}
	}
}

func TestRecurrence(t *testing.T) {
	bug := report.Failure{Exit: report.Exit{Code: 1}, Tail: traceback + "KeyError: 'x'"}
	other := report.Failure{Exit: report.Exit{Code: 1}, Tail: traceback + "ValueError: y"}
	node := report.Failure{Exit: report.Exit{Code: 1}, Tail: "CUDA error: uncorrectable ECC error encountered"}
	echo := report.Failure{Exit: report.Exit{Code: 1}, Tail: "Watchdog caught collective operation timeout"}
	full := report.Failure{Exit: report.Exit{Code: 1}, Tail: "No space left on device"}
	odd := func(code int, words string) report.Failure {
		return report.Failure{Exit: report.Exit{Code: code}, Tail: words}
	}
	brief := func(code int, lived time.Duration) report.Failure {
		return report.Failure{Exit: report.Exit{Code: code}, Lived: lived}
	}
	long, at := bug, func(step int64) report.Failure { e := bug; e.Step = step; return e }
	long.Lived = Progress
	left := report.Failure{Exit: report.Exit{Code: 1}, Tail: traceback + "bdb.BdbQuit", Lived: time.Hour}
	for _, c := range []struct {
		name string
		in   []report.Failure
		want report.Action
	}{
		{"twice", []report.Failure{bug, bug}, report.ActionRestart},
		{"three times", []report.Failure{bug, bug, bug}, report.ActionStop},
		{"another one between", []report.Failure{bug, bug, other, bug}, report.ActionRestart},
		{"a node between", []report.Failure{bug, node, bug, echo, full, bug}, report.ActionStop},
		{"a bad node for ever", []report.Failure{node, node, node, node}, report.ActionReplace},
		{"a full disk for ever", []report.Failure{full, full, full, full}, report.ActionWait},
		{"echoes for ever", []report.Failure{echo, echo, echo, echo}, report.ActionRestart},
		{"what is not recognised", []report.Failure{odd(3, "at 0x7f\nit broke 1\n"), odd(3, "at 0x80\nit broke 2\n"), odd(3, "it broke 3")}, report.ActionStop},
		{"other codes", []report.Failure{odd(3, "it broke"), odd(4, "it broke"), odd(3, "it broke"), odd(4, "it broke")}, report.ActionRestart},
		{"other words", []report.Failure{odd(3, "it broke"), odd(3, "it fell"), odd(3, "it broke"), odd(3, "it fell")}, report.ActionRestart},
		{"no words", []report.Failure{odd(3, ""), odd(3, "\n"), odd(3, ""), odd(3, "")}, report.ActionRestart},
		{"no words, at once", []report.Failure{brief(3, time.Millisecond), brief(3, time.Second), brief(3, Brief-1)}, report.ActionStop},
		{"no words, other codes", []report.Failure{brief(3, time.Millisecond), brief(4, time.Millisecond), brief(3, time.Millisecond), brief(4, time.Millisecond)}, report.ActionRestart},
		{"no words, later", []report.Failure{brief(3, Brief), brief(3, Brief), brief(3, Brief), brief(3, time.Second)}, report.ActionRestart},
		{"routine words", []report.Failure{
			odd(1, "INFO step 1 loss 0.3"), odd(1, "[INFO] step 2"), odd(1, "2026-11-23 10:00:00,000 - train - INFO - step 3"), odd(1, "INFO: step 4"),
		}, report.ActionRestart},
		{"warnings and bars", []report.Failure{
			odd(1, "a.py:3: UserWarning: slow\n  warnings.warn('slow')\n"), odd(1, " 10%|█ | 1/10"), odd(1, "a.py:3: UserWarning: slow\n  warnings.warn('slow')\n"),
		}, report.ActionRestart},
		{"words before routine ones", []report.Failure{odd(3, "it broke\nINFO bye"), odd(3, "it broke\n[warning] bye"), odd(3, "it broke\nDEBUG:x:bye")}, report.ActionStop},
		{"long lives", []report.Failure{bug, bug, long, long, long}, report.ActionRestart},
		{"a long life, then none", []report.Failure{long, bug, bug}, report.ActionStop},
		{"the debugger was left after long", []report.Failure{left}, report.ActionStop},
		{"steps", []report.Failure{at(5), at(6), at(7), at(8)}, report.ActionRestart},
		{"the same step", []report.Failure{at(5), at(5), at(5)}, report.ActionStop},
		{"a step back", []report.Failure{at(5), at(4), at(5)}, report.ActionStop},
	} {
		var r Recurrence
		var v report.Verdict
		for _, e := range c.in {
			r, v = r.Next(e)
		}
		if v.Action != c.want {
			t.Errorf("%s: %s, want %s", c.name, v, c.want)
		}
	}
}

func TestLongInput(t *testing.T) {
	tail := strings.Repeat("x\n", maxText) + "CUDA out of memory\n"
	if v := Judge(report.Failure{Exit: report.Exit{Code: 1}, Tail: tail}); v.Cause != "cuda-oom" || v.Line != maxText+1 {
		t.Errorf("%+v", v)
	}
	if v := Judge(report.Failure{Exit: report.Exit{Code: 1}, Tail: "CUDA out of memory\n" + strings.Repeat("x", maxText)}); v.Cause != Unknown {
		t.Errorf("%+v: beyond the bound", v)
	}
	line := strings.Repeat("é", 1000) + "CUDA out of memory"
	if v := Judge(report.Failure{Exit: report.Exit{Code: 1}, Tail: line}); len(v.Quote) > maxQuote+3 || !strings.HasSuffix(v.Quote, "é...") {
		t.Errorf("%q", v.Quote)
	}
}

// BenchmarkWorstTexts measures texts that were made to be slow.
func BenchmarkWorstTexts(b *testing.B) {
	fill := func(s string) string { return strings.Repeat(s, maxText/len(s)) }
	for name, s := range map[string]string{
		"tracebacks": fill(heading + "\n  x\nE: y\n\n" + during + "\n\n"), "headings": fill(heading + "\n"), "brackets": fill("["), "marks": fill("[a] "),
		"xids": fill("NVRM: Xid (PCI:"), "workers": fill("DataLoader worker (pid "), "servers": fill("Server Error: a"), "blank lines": fill("\n"),
		"oom": fill("Detected 1"), "gloo": fill("Read error ["), "frames": heading + "\n" + fill("  File \"a\", line 1, in x\n"), "digits": fill("1 "),
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				Signature(report.Failure{Exit: report.Exit{Code: 1}, Tail: s, Traceback: s, Kernel: s})
			}
		})
	}
}

func BenchmarkJudge(b *testing.B) {
	tail := strings.Repeat("[rank0]: step 12 of 500000, loss 2.13, 412 ms, 88 GiB, grad norm 0.31\n", maxText/70) + traceback + "KeyError: 'x'\n"
	b.SetBytes(maxText)
	for b.Loop() {
		Judge(report.Failure{Exit: report.Exit{Code: 1}, Tail: tail})
	}
}
