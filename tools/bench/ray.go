package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/golaunch/golaunch/tools/bench/record"
)

// head starts a Ray cluster on this machine alone, for a scope. The scope ends it by its mark,
// because `ray stop` would end every Ray on this machine. The start of a cluster beside other work
// is not measured.
func (r *run) head(ctx context.Context, s *scope, measured bool) (mark, api string, err error) {
	gcs, err := free()
	dashboard, err2 := free()
	mark, err3 := r.piece()
	if err := errors.Join(err, err2, err3); err != nil {
		return "", "", err
	}
	s.Cleanup(func() {
		if err := kill(mark); err != nil {
			s.Error(err)
		}
	})
	home := os.Getenv("HOME")
	s.Cleanup(func() { _ = os.Setenv("HOME", home) }) // it fails for no name that is legal
	if err := os.Setenv("HOME", r.dir); err != nil {  // some of Ray's processes would ask for a token in ~/.ray
		return "", "", err
	}
	argv := []string{
		filepath.Join(r.peers.ray, "ray"), "start", "--head", "--port", gcs, "--num-cpus", "128", "--num-gpus", "0",
		"--dashboard-port", dashboard, "--temp-dir", r.notes("ray"), "--disable-usage-stats",
	}
	took, err := r.execAs(ctx, giveUp, argv, mark)
	if measured || err != nil {
		r.timed(ctx, "cluster-start", record.Ray, argv, took, err)
	}
	if err != nil {
		return "", "", err
	}
	s.Cleanup(func() { _ = os.Unsetenv("RAY_ADDRESS") }) // it fails for no name that is legal
	return mark, "http://127.0.0.1:" + dashboard, os.Setenv("RAY_ADDRESS", "127.0.0.1:"+gcs)
}

// rayTurn measures a Ray cluster like the other launchers. The first sample includes the time that
// Ray's cluster needs for its first job.
func (r *run) rayTurn(ctx context.Context, s *scope) error {
	if r.peers.ray == "" {
		return nil
	}
	mark, api, err := r.head(ctx, s, true)
	if err != nil {
		return nil //nolint:nilerr // it was noted
	}
	ray, python := filepath.Join(r.peers.ray, "ray"), filepath.Join(r.peers.ray, "python")
	exec := func(ctx context.Context, limit time.Duration, argv []string) (time.Duration, error) {
		return r.execAs(ctx, limit, argv, mark+"-job")
	}
	r.several(ctx, 2, "cluster-submit", record.Ray, []string{ray, "job", "submit", "--address", api, "--", "true"}, exec)
	r.several(ctx, 2, "cluster-status", record.Ray, []string{ray, "status"}, exec)
	r.several(ctx, 2, "cluster-workers", record.Ray, []string{python, filepath.Join(scripts, "ray_workers.py"), workers}, exec)
	r.sample("cluster-memory", record.Ray, []string{"ray start --head"}, memory(marked(mark)))
	if !r.peers.rayTrain {
		return nil
	}
	notes := r.notes("ddp")
	argv := []string{python, filepath.Join(scripts, "ray_ddp.py"), strconv.Itoa(training), notes, r.notes("results")}
	begin := monotonic()
	_, err = exec(ctx, giveUp, argv)
	r.trained(ctx, record.Ray, argv, notes, begin, true, err)
	return nil
}

// figures is the output of python/bench/ray_core.py, in seconds and bytes, by the works of
// [record.Groups].
var figures = map[string]string{
	"names-first": "init_to_first_task", "names-tasks": "tasks_1000", "names-calls": "calls_1000", "names-call": "call_and_back", "names-actors": "actors_200",
	"names-put": "put_1gib", "names-get": "get_1gib", "names-far": "get_1gib_from_another_node",
	"names-memory-actors": "actors_200_memory", "names-memory-object": "bytes_per_object",
}

// names measures Ray's names, as golaunch and as Ray itself provides them.
func (r *run) names(ctx context.Context, rounds func(round func(n int) error) error) error {
	const script = "python/bench/ray_core.py"
	modules, err := filepath.Abs("python")
	if err != nil {
		return err
	}
	var users []user
	if r.peers.python != "" && said1(ctx, r.peers.python, "-c", "import cloudpickle, numpy, importlib.util; print(importlib.util.find_spec('ray') is None)") == "True" {
		users = append(users, user{record.Golaunch, []string{r.peers.python, script, "--arrays"}, []string{"PYTHONPATH=" + modules, "GOLAUNCH_BINARY=" + r.golaunch}})
	} else {
		r.skip(record.Golaunch, "names", "its Python has no cloudpickle and NumPy, or has Ray")
	}
	if r.peers.ray != "" {
		users = append(users, user{record.Ray, []string{filepath.Join(r.peers.ray, "python"), script, "--arrays"}, nil})
	}
	return rounds(func(n int) error {
		for i := range users { // each round begins with another one
			r.user(ctx, users[(i+n)%len(users)])
		}
		return ctx.Err()
	})
}

// namesLimit bounds such a program. Ray's 200 actors take it longest, 80 s on two idle cores.
const namesLimit = 10 * time.Minute

// user is a program that uses Ray's names.
type user struct {
	peer      string
	argv, env []string
}

func (r *run) user(ctx context.Context, u user) {
	values := map[string]float64{}
	// Ray notes its cluster in the temporary directory, and waits for that cluster when it starts
	// again. So each program has a temporary directory of its own.
	dir := r.notes("names")
	mark, err := r.piece()
	if err = cmp.Or(err, os.Mkdir(dir, 0o700)); err == nil {
		_, err = r.execAs(ctx, namesLimit, slices.Concat([]string{"env", "TMPDIR=" + dir}, u.env, u.argv), mark)
		err = errors.Join(err, lastObject(filepath.Join(r.dir, "out"), &values), kill(mark))
	}
	for _, g := range record.Groups {
		for _, w := range g.Works {
			name, ours := figures[w.ID]
			value, measured := values[name]
			switch {
			case !ours:
			case !measured && err == nil:
				r.failed(ctx, w.ID, u.peer, u.argv, fmt.Errorf("it does not print %s", name))
			case !measured: // a later part of the program, which prints what it has so far
				r.failed(ctx, w.ID, u.peer, u.argv, err)
			case g.Unit == record.Milliseconds:
				r.sample(w.ID, u.peer, u.argv, 1000*value)
			default:
				r.sample(w.ID, u.peer, u.argv, value)
			}
		}
	}
}

// lastObject reads the JSON object from the last line of a file that has one.
func lastObject(file string, into any) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	for _, line := range slices.Backward(strings.Split(string(text), "\n")) {
		if strings.HasPrefix(line, "{") {
			return json.Unmarshal([]byte(line), into)
		}
	}
	return errors.New("it has printed no JSON")
}
