package provider

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// script returns a provider whose command is a shell script.
func script(t *testing.T, text string) Exec {
	t.Helper()
	file := filepath.Join(t.TempDir(), "provider")
	if err := os.WriteFile(file, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
		t.Fatal(err)
	}
	return Exec{Kind: "toy", Command: []string{file}, Agent: Agent{Golaunch: "/bin/golaunch", Coordinator: "n0:1", Labels: []string{"rack=r1"}, Flags: []string{"--num-gpus=2"}}}
}

func TestExecSpeaksJSON(t *testing.T) {
	t.Setenv("GOLAUNCH_TOKEN", "a-secret-that-is-long-enough")
	dir := t.TempDir()
	p := script(t, "cat >> "+dir+"/in; echo >> "+dir+"/in; env >> "+dir+`/env; echo '{"nodes": [{"tag": "t1", "state": "pending"}]}'`)
	if err := p.Create(t.Context(), []string{"t1"}); err != nil {
		t.Error(err)
	}
	if err := p.Delete(t.Context(), []string{"t1", "t2"}); err != nil {
		t.Error(err)
	}
	all, err := p.List(t.Context())
	if err != nil || len(all) != 1 || all["t1"] != "pending" {
		t.Errorf("%v, %v", all, err)
	}
	in, err := os.ReadFile(filepath.Join(dir, "in"))
	want := `{"operation":"create","kind":"toy","nodes":[{"tag":"t1","agent":["/bin/golaunch","agent","--coordinator","n0:1","--label","capacity.tag=t1","--label","rack=r1","--num-gpus=2"]}]}
{"operation":"delete","kind":"toy","nodes":[{"tag":"t1"},{"tag":"t2"}]}
{"operation":"list","kind":"toy"}
`
	if err != nil || string(in) != want {
		t.Errorf("it reads %s, %v", in, err)
	}
	env, err := os.ReadFile(filepath.Join(dir, "env"))
	if err != nil || strings.Contains(string(env), "secret") || !strings.Contains(string(env), "PATH=") {
		t.Errorf("its environment is %s, %v", env, err)
	}
}

func TestWrongAnswersAreOneLine(t *testing.T) {
	for text, want := range map[string]string{
		"echo hello": `printed what is not its answer: "hello\n"`,
		"exit 3":     "exit status 3",
		"echo >&2; echo no quota >&2; seq 9 >&2; exit 1":                                           "exit status 1: no quota",
		"echo Warning: a key was added >&2; echo refused >&2; exit 1":                              "exit status 1: refused",
		"echo 'a.py:1: OldWarning: x' >&2; echo '  warnings.warn(x)' >&2; echo denied >&2; exit 1": "exit status 1: denied",
		"echo warning: only that >&2; exit 1":                                                      "exit status 1: warning: only that",
		"kill -9 $$":                                                                               "signal: killed",
		`echo '{"machines": []}'`:                                                                  `unknown field "machines"`,
		`echo '{"nodes": []} and more'`:                                                            "something follows the answer",
		`sleep 100 & echo '{"nodes": []}'`:                                                         "what it started has its stdout or stderr open",
		"cat /dev/zero | head -c 5000000":                                                          "printed more than 4 MiB",
		"head -c 5000000 /dev/zero >&2; exit 1":                                                    "exit status 1",
	} {
		_, err := script(t, text).List(t.Context())
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") || len(err.Error()) > 2*maxLine {
			t.Errorf("%s: %v\nwant %s", text, err, want)
		}
	}
	missing := Exec{Command: []string{"/nowhere/provider"}}
	if _, err := missing.List(t.Context()); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

// TestACommandThatHangsIsEnded: when the call's context ends, the command ends, with the processes
// that it started.
func TestACommandThatHangsIsEnded(t *testing.T) {
	pid := filepath.Join(t.TempDir(), "pid")
	p := script(t, "sleep 1000 & echo $! > "+pid+"; wait")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := p.List(ctx)
		ended <- err
	}()
	child := ""
	await(t, "its child", func() bool {
		text, err := os.ReadFile(pid)
		child = strings.TrimSuffix(string(text), "\n")
		return err == nil && len(child) < len(text)
	})
	cancel()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "canceled") {
			t.Error(err)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the call does not end")
	}
	await(t, "the end of its child", func() bool {
		state, err := os.ReadFile("/proc/" + child + "/stat")
		return err != nil || strings.Contains(string(state), ") Z ")
	})
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for limit := time.Now().Add(30 * time.Second); !is(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("waited for %s", what)
		}
	}
}

func TestSlurmScriptQuotes(t *testing.T) {
	p := Slurm{Agent: Agent{Golaunch: "/opt/go launch", Coordinator: "n0:1"}}
	want := "#!/bin/sh\nexec '/opt/go launch' agent --coordinator n0:1 --label capacity.tag=t1\n"
	if got := p.script("t1"); got != want {
		t.Errorf("%q", got)
	}
}
