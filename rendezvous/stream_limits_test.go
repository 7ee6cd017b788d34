package rendezvous

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/golaunch/golaunch/internal/wire/session"
	"github.com/golaunch/golaunch/rendezvous/internal/server"
)

// TestManyJobsOfOneProgram has a program with hundreds of jobs on one node, which reads the output
// of all of them. No reader waits for another job's output, and no stop of a job waits for a
// reader. The coordinator refuses readers beyond the limit, and the refusal names the limit.
func TestManyJobsOfOneProgram(t *testing.T) {
	host(t, func(t *testing.T, h *hosted) {
		const n = server.MaxOutputs + 3
		n1, u := h.joinAs(gpus(1, n+1), forever), h.user()
		var jobs []*sight
		var pages []*page
		for i := range n {
			id := fmt.Sprintf("j%d", i)
			jobs = append(jobs, u.submit(task(id, 1, 1)))
			pages = append(pages, u.read(id, following))
			n1.write(id, 0, "output of "+id)
		}
		synctest.Wait()
		for i, p := range pages[:server.MaxOutputs] {
			p.has(t, fmt.Sprintf("output of j%d", i))
		}
		for _, p := range pages[server.MaxOutputs:] {
			p.has(t, "")
			want(t, strings.Join(p.missing, "\n"), "node n1 sends the output of 256 jobs to readers, which is the limit")
		}

		var refused *session.RequestError
		for i := len(jobs); ; i++ {
			w, err := u.Watch(t.Context(), "j1")
			if errors.As(err, &refused) && i == 1024 {
				break
			}
			if err != nil {
				t.Fatalf("after %d: %v", i, err)
			}
			t.Cleanup(w.Close)
		}
		want(t, refused.Error(), "the limit is 1024 jobs that one program submits or watches at a time")
		if stopped, err := u.Stop(t.Context(), "j0", 3, "enough"); err != nil || len(stopped) != 1 {
			t.Errorf("stopped %q: %v", stopped, err)
		}
		n1.exitJob("j0", 0, 0)
		jobs[0].over(t)
		<-pages[0].done
		synctest.Wait()
		late := u.read(jobs[n-1].Job, following)
		late.has(t, "output of "+jobs[n-1].Job)
	})
}
