package agent

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/golaunch/golaunch/internal/core/job"
)

// kept returns the files of a bundle, by name. It returns nil when there is none.
func (w *world) kept(t *testing.T, name string) map[string]string {
	t.Helper()
	f, err := os.Open(filepath.Join(w.logs, "test", name))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[h.Name] = string(text)
	}
}

func TestEvidenceOfACrash(t *testing.T) {
	w := newWorld(t, job.Spec{MaxRestarts: 1}, `echo attempt $GOLAUNCH_ATTEMPT; echo last words >&2
[ $RANK$GOLAUNCH_ATTEMPT = 10 ] || exec sleep 1000; until [ -e go ]; do sleep 0.01; done; exit 5`)
	w.work.Task.Bundle = true
	leave := make(chan Departure, 1)
	w.Leave = leave
	go func() {
		w.journal.await(t, `"started"`)
		if err := os.WriteFile(filepath.Join(w.work.Task.Dir, "go"), nil, 0o600); err != nil {
			t.Error(err)
		}
		w.screen.await(t, "attempt 1")
		leave <- Departure{Why: "the test has seen enough"}
	}()
	if _, err := w.run(t.Context()); !errors.Is(err, ErrLeft) {
		t.Fatal(err)
	}
	files := w.kept(t, "bundle-n1-attempt-0.tar.gz")
	for name, want := range map[string]string{
		"index.json":               `"why": "crash"`,
		"rank-0/environment.txt":   "RANK=0\n",
		"rank-1/environment.txt":   "RANK=1\n",
		"rank-1/rank-1.stderr.log": "last words\n",
	} {
		if !strings.Contains(files[name], want) {
			t.Errorf("no %q in %s:\n%s", want, name, files[name])
		}
	}
	if files := w.kept(t, "bundle-n1-attempt-1.tar.gz"); files != nil {
		t.Errorf("an attempt that was ended has left %v", files)
	}
}

// TestEvidenceBeforeTheEnd checks that hanging ranks are examined while they live, and that a kill
// does not wait for the examination.
func TestEvidenceBeforeTheEnd(t *testing.T) {
	for _, kill := range []bool{false, true} {
		w := obeying(t, `trap 'echo bye $RANK; exit' TERM; echo up $RANK; while :; do sleep 0.01; done`)
		w.jobs["test"].work.Task.Bundle = true
		w.order(startOf(0))
		w.screen.await(t, "up 0")
		w.screen.await(t, "up 1")
		w.journal.await(t, `"started"`) // a process is known a moment after it began
		w.order(job.Stop{Attempt: 0, Grace: patience, Evidence: job.HangEvidence})
		if kill {
			w.order(job.Stop{Attempt: 0, Kill: true})
			w.quiet()
			continue
		}
		w.quiet()
		w.screen.await(t, "bye 0")
		w.jobs["test"].bundles.writing.Wait()
		files := w.kept(t, "bundle-n1-attempt-0.tar.gz")
		if !strings.Contains(files["rank-0/processes.txt"], `"sh" wchan`) || !strings.Contains(files["index.json"], `"why": "hang"`) {
			t.Errorf("%v", files)
		}
	}
}

// TestEvidenceThatIsKnown checks that evidence is not sent twice: a rank that fails like another
// rank reports only that it did.
func TestEvidenceThatIsKnown(t *testing.T) {
	for rules, want := range map[string]int{"": 1, "stop bad-batch /bad batch/ mend it": 0} {
		w := newWorld(t, job.Spec{Rules: rules, Grace: patience}, `if [ $RANK = 1 ]; then
	trap 'echo "[rank1]: ValueError: bad batch" >&2; exit 1' TERM
	echo >ready
	while :; do sleep 0.01; done
fi
until [ -e ready ]; do sleep 0.01; done
echo "[rank0]: ValueError: bad batch" >&2
exit 1`)
		if r, err := w.run(t.Context()); err != nil || r.Cause == nil || r.Cause.Rank != 0 {
			t.Errorf("rules %q: the job ended with %+v, %v", rules, r, err)
		}
		w.journal.await(t, `"event":"result"`)
		text := w.journal.String()
		if alike := strings.Count(text, `"alike":true`); alike != want {
			t.Errorf("rules %q: %d exits are alike, want %d:\n%s", rules, alike, want, text)
		}
	}
}

// TestBundlesWait checks that bundles wait until the next call of release, which comes when ranks
// have started or the job ends.
func TestBundlesWait(t *testing.T) {
	var w bundleWriter
	w.release() // no bundle waits yet
	first := w.await()
	if second := w.await(); second != first {
		t.Error("two bundles wait for different things")
	}
	select {
	case <-first:
		t.Error("a bundle does not wait")
	default:
	}
	w.release()
	<-first
	select {
	case <-w.await():
		t.Error("a later bundle does not wait")
	default:
	}
}
