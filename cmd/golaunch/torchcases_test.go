package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/golaunch/golaunch/internal/testkit/suite"
)

// A torchCase has the assertions of one or more of torch's own tests that a command line can show.
// golaunch and torchrun itself run it, each in a directory that has the programs of
// testdata/torchcases.
type torchCase struct {
	file, tests string // torch's file, and its tests with spaces between them
	module      string // the module of torchrun, if not torch.distributed.run
	env         []string
	nodes       []string // the arguments before args on each node, if there are several nodes
	args        []string
	do          func(*torchRun)        // instead of one command on each node
	see         func(*torchRun) string // the facts to compare; nil: ends and output of the commands
	want        string
	says        string // a text that golaunch and torchrun must print on the standard error
	torchSays   string
	torch       string // the result of torchrun, if it differs
	alone       bool   // torchrun is not run
	lacks       string // a part that these tests need and Debian's torch lacks
}

const (
	runFile       = "launcher/test_run.py"
	launchFile    = "launcher/launch_test.py"
	agentFile     = "elastic/agent/server/test/local_elastic_agent_test.py"
	apiFile       = "elastic/multiprocessing/api_test.py"
	errorsFile    = "elastic/multiprocessing/errors/api_test.py"
	handlerFile   = "elastic/multiprocessing/errors/error_handler_test.py"
	redirectsFile = "elastic/multiprocessing/redirects_test.py"
	tailFile      = "elastic/multiprocessing/tail_log_test.py"
)

// words returns the words of a text, followed by literal words.
func words(text string, others ...string) []string { return append(strings.Fields(text), others...) }

// sh returns a shell script as the program.
func sh(flags, script string) []string { return words(flags+" --no-python sh -c", script) }

const (
	meet    = "--rdzv-backend=c10d --rdzv-endpoint=localhost:$PORT --rdzv-id=torchcase " // how several nodes meet
	sayRank = `echo "rank $RANK of $WORLD_SIZE"`
)

// ranks is shown by a job whose ranks each say which they are.
func ranks(n int) string { return shows("succeeds", rows("rank %d of "+strconv.Itoa(n), n)) }

// rows returns a line for each number below n.
func rows(format string, n int) string {
	var b strings.Builder
	for i := range n {
		fmt.Fprintf(&b, format+"\n", i)
	}
	return b.String()
}

// sad writes an error as torch's record does.
func sad(message string, at int) string {
	return fmt.Sprintf(`echo '{"message": {"message": "%s", "extraInfo": {"py_callstack": "from here", "timestamp": "%d"}}}' >$TORCHELASTIC_ERROR_FILE; `, message, at)
}

const (
	failed = "fails\n"
)

// reply is the error that the caller of torchrun gets.
func reply(r *torchRun) string {
	ends := r.nodes[0].result()
	text, err := os.ReadFile(filepath.Join(r.dir, "reply.json"))
	if err != nil {
		return ends + "\nno reply\n"
	}
	var content any
	if err := json.Unmarshal(text, &content); err != nil {
		return fmt.Sprintf("%s\n%s: %v", ends, text, err)
	}
	sorted, _ := json.Marshal(content)
	return ends + "\n" + string(sorted) + "\n"
}

// logs shows how the job ends, its output, and then the files that match a pattern.
func logs(patterns ...string) func(*torchRun) string {
	return func(r *torchRun) string {
		text := r.shown()
		for _, p := range patterns {
			text += p + ":\n" + strings.Join(slices.Sorted(strings.Lines(r.files("log/*/attempt_0/"+p))), "")
		}
		return text
	}
}

const sayBoth = `echo "out $RANK"; echo "err $RANK" >&2`

// redirected is a job whose streams go to files according to --redirects. With golaunch, console
// output is in a file too.
func redirected(streams string, lines ...string) torchCase {
	torch := "succeeds\n" + strings.Join(lines, "\n") + "\n"
	c := torchCase{
		file: apiFile, tests: "test_from_value test_from_value_map test_to_map test_binary",
		args: sh("--nproc-per-node=2 --log-dir=log --redirects="+streams, sayBoth),
		see:  places,
		want: strings.ReplaceAll(torch, "console", "console file"),
	}
	if c.want != torch {
		c.torch = torch
	}
	return c
}

// places are the places of the words of two ranks: on the console unchanged or behind a prefix, and
// in the files.
func places(r *torchRun) string {
	text := r.nodes[0].result() + "\n"
	for _, stream := range []string{"out", "err"} {
		console := r.printed()
		if stream == "err" {
			console = r.nodes[0].errors()
		}
		for _, rank := range []string{"0", "1"} {
			text += stream + " " + rank + ":"
			if m := regexp.MustCompile(`(?m)^(\[\w+\]:)?` + stream + " " + rank + "$").FindStringSubmatch(console); m != nil {
				text += " " + cmp.Or(m[1], "console")
			}
			if strings.Contains(r.files("log/*/attempt_0/"+rank+"/std"+stream+".log"), stream+" "+rank+"\n") {
				text += " file"
			}
			text += "\n"
		}
	}
	return text
}

func badStreams(text string) torchCase {
	return torchCase{
		file: apiFile, tests: "test_from_str_bad_input",
		args: sh("--redirects="+text, sayRank),
		want: failed,
		says: `--redirects: "` + text + `"`, torchSays: "ValueError: .*" + text,
	}
}

// stopped is a job that gets a signal when its ranks are up: no rank is left when the job ends. The
// test reads the ranks' lines from the output of torchrun (--tee). torchrun prints such lines only
// once it has started all ranks, and it leaves no rank behind if the signal comes after that.
func stopped(by syscall.Signal) torchCase {
	return torchCase{
		file: apiFile, tests: "test_subprocess_context_close test_no_zombie_process_binary",
		args: words("--nproc-per-node=2 --tee=1 --no-python sh up.sh"),
		do: func(r *torchRun) {
			up := r.meets("node-0.out")
			n := r.start("")
			lines := up.wait(2)
			n.signal(by)
			n.code()
			for _, line := range lines {
				_, text, _ := strings.Cut(line, ":")
				pid, err := strconv.Atoi(text)
				if err != nil {
					r.Error(err)
				} else if syscall.Kill(pid, 0) == nil {
					r.Errorf("process %d is left after %v", pid, by)
				}
			}
		},
		see:  func(r *torchRun) string { return r.nodes[0].result() + "\n" },
		want: failed,
	}
}

// recorded is the error that is recorded for rank 0, and the part of it that the caller gets.
func recorded(r *torchRun) string {
	text := r.nodes[0].result() + "\n"
	type message struct {
		Message   string
		ErrorCode *int
		ExtraInfo struct {
			Stack     string `json:"py_callstack"`
			Timestamp string
		}
	}
	var own, reply struct{ Message message }
	if err := errors.Join(json.Unmarshal([]byte(r.files("log/torchcase_*/attempt_0/0/error.json")), &own), json.Unmarshal([]byte(r.read("reply.json")), &reply)); err != nil {
		r.Error(err)
	}
	at, err := strconv.Atoi(own.Message.ExtraInfo.Timestamp)
	if err != nil || at == 0 {
		r.Errorf("timestamp %q", own.Message.ExtraInfo.Timestamp)
	}
	text += "error.json: " + own.Message.Message
	if strings.Contains(own.Message.ExtraInfo.Stack, r.c.args[len(r.c.args)-1]) {
		text += ", called from the script\n"
	}
	if code := reply.Message.ErrorCode; code != nil {
		reply.Message.ErrorCode = nil
		if reply == own {
			text += fmt.Sprintln("reply: the same, with code", *code)
		}
	}
	return text
}

// tails returns, for each set of line numbers, the number of prefixes whose lines have these
// numbers, each once.
func tails(text string) string {
	numbers := map[string][]int{}
	for line := range strings.Lines(text) {
		prefix, number, _ := strings.Cut(strings.TrimSpace(line), ":")
		n, err := strconv.Atoi(number)
		if err != nil {
			return fmt.Sprintf("%q\n", line)
		}
		numbers[prefix] = append(numbers[prefix], n)
	}
	same := map[string]int{}
	for _, n := range numbers {
		if consecutive(n) {
			same[fmt.Sprint(n[0], " to ", n[len(n)-1])]++
		} else {
			same[fmt.Sprint("not consecutive ", len(n))]++
		}
	}
	out := ""
	for what, n := range same {
		out += fmt.Sprintf("%d with %s\n", n, what)
	}
	return out
}

// roles has nodes with ranks of a role.
func roles(of ...string) (nodes []string) {
	for _, o := range of {
		role, n, _ := strings.Cut(o, " ")
		nodes = append(nodes, "--role="+role+" --nproc-per-node="+n)
	}
	return nodes
}

const sayRole = `echo "$RANK of $WORLD_SIZE, $ROLE_NAME $ROLE_RANK of $ROLE_WORLD_SIZE, group $GROUP_RANK"`

// assignment returns the sizes of the world and of the roles whose ranks are complete, and the
// number of groups with consecutive ranks in the world and in their role.
func assignment(r *torchRun) string {
	world, byRole, groups := map[string][]int{}, map[string][]int{}, map[int][2][]int{}
	for line := range strings.Lines(r.printed()) {
		var rank, roleRank, group int
		var size, role, roleSize string
		if _, err := fmt.Sscanf(strings.ReplaceAll(line, ",", " ,"), "%d of %s , %s %d of %s , group %d", &rank, &size, &role, &roleRank, &roleSize, &group); err != nil {
			r.Errorf("%q: %v", line, err)
		}
		world[size] = append(world[size], rank)
		byRole[role+" of "+roleSize] = append(byRole[role+" of "+roleSize], roleRank)
		g := groups[group]
		groups[group] = [2][]int{append(g[0], rank), append(g[1], roleRank)}
	}
	text := ""
	for size, ranks := range world {
		text += complete("ranks of "+size, ranks)
	}
	var each []string
	for role, ranks := range byRole {
		each = append(each, complete(role, ranks))
	}
	slices.Sort(each)
	in := 0
	for _, g := range groups {
		if consecutive(g[0]) && consecutive(g[1]) {
			in++
		}
	}
	return r.nodes[0].result() + "\n" + text + strings.Join(each, "") + fmt.Sprintln(in, "groups")
}

// complete returns a name, which ends with a number, if the ranks are all numbers below it.
// Otherwise it returns the name and the ranks.
func complete(name string, ranks []int) string {
	n, _ := strconv.Atoi(name[strings.LastIndexByte(name, ' ')+1:])
	if consecutive(ranks) && len(ranks) == n && slices.Min(ranks) == 0 {
		return name + "\n"
	}
	return fmt.Sprintln(name, "are not", ranks)
}

func consecutive(n []int) bool {
	slices.Sort(n)
	for i := range n {
		if n[i] != n[0]+i {
			return false
		}
	}
	return true
}

// untilLost is a rank that never ends in the first attempt, and succeeds in any other attempt.
const untilLost = `[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0; echo $RANK >up; exec sleep 1000`

// lose starts two nodes with a number of ranks each, and kills the second node, which is not the
// node at which they meet.
func lose(r *torchRun, each int) {
	up := r.meets("up")
	first := r.start("")
	first.golaunch.line("waiting for")
	second := r.start("")
	up.wait(2 * each)
	second.golaunch.kill()
}

// TestTorchCases runs the cases of torch's own tests. docs/torchrun.md describes each case. There
// is a recording of torchrun's own answers for each version of torch; torchrun itself runs to make
// a recording (-record), and for suite.All.
func TestTorchCases(t *testing.T) {
	t.Parallel()
	o := startTorch(t)
	t.Logf("torch %s of %s", o.version, o.python)
	known := torchRecordings(t)
	anew := newTorchRecording(t, o.version)
	if o.runs() && !*recordTorch && !slices.ContainsFunc(known, func(r *torchRecording) bool { return r.Torch == o.version }) {
		t.Errorf("%s has no recording of torchrun %s: %s", torchAnswers, o.version, howToRecord)
	}
	t.Run("cases", func(t *testing.T) {
		for _, c := range torchCases {
			if c.module == "" {
				c.module = "torch.distributed.run"
			}
			t.Run(strings.TrimSuffix(c.file, ".py")+"/"+strings.ReplaceAll(c.tests, " ", ","), func(t *testing.T) {
				t.Parallel()
				for _, r := range known {
					if a, ok := r.answer(t, &c); ok {
						c.compare(t, "torchrun "+r.Torch, a, true)
					}
				}
				if c.lacks != "" && o.debian() {
					suite.Missing(t, "Debian's torch is built without %s; let %s name the Python of another", c.lacks, testPython)
				}
				t.Run("golaunch", func(t *testing.T) {
					c.compare(t, "golaunch", c.run(t, o, false), false)
				})
				if c.alone || !o.runs() {
					return
				}
				t.Run("torchrun", func(t *testing.T) {
					a := c.run(t, o, true)
					c.compare(t, "torchrun", a, true)
					anew.add(&c, a)
				})
			})
		}
	})
	if *recordTorch && !t.Failed() {
		anew.write(t)
	}
}

// compare checks an answer against the answer that the case expects of golaunch or torchrun.
func (c *torchCase) compare(t *testing.T, who string, a torchAnswer, real bool) {
	t.Helper()
	want, says := c.want, c.says
	if real {
		want, says = cmp.Or(c.torch, c.want), c.torchSays
	}
	if a.Shows != want {
		t.Errorf("%s shows\n%s\nnot\n%s", who, a.Shows, want)
	}
	if says != "" && !matches(says, a.Says) {
		t.Errorf("the standard error of %s has no %q:\n%s", who, says, a.Says)
	}
}

func matches(pattern, text string) bool { return regexp.MustCompile(pattern).MatchString(text) }

// TestTorchCasesAreDocumented checks that docs/torchrun.md has each case once, with the result of
// golaunch for the cases that run here.
func TestTorchCasesAreDocumented(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/torchrun.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]string{}
	for _, c := range torchCases {
		for test := range strings.FieldsSeq(c.tests) {
			name := c.file + " " + test
			switch {
			case c.torch != "":
				seen[name] = "differs"
			case c.alone:
				seen[name] = "alone"
			case seen[name] == "":
				seen[name] = "same"
			}
		}
	}
	told := map[string]bool{}
	file := ""
	for _, row := range regexp.MustCompile("(?m)^\\| (`[^|]*\\.py`)? \\| ([^|]*) \\| (same|differs|alone|not here)(: [^|]*)? \\|$").FindAllStringSubmatch(string(text), -1) {
		file = cmp.Or(strings.Trim(row[1], "`"), file)
		if row[3] != "same" && row[4] == "" {
			t.Errorf("no reason: %s", row[0])
		}
		for _, test := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(row[2], -1) {
			name := file + " " + test[1]
			if told[name] {
				t.Errorf("%s is described twice", name)
			}
			told[name] = true
			if kind := cmp.Or(seen[name], "not here"); kind != row[3] {
				t.Errorf("%s: the table says %s, the test %s", name, row[3], kind)
			}
		}
	}
	for name := range seen {
		if !told[name] {
			t.Errorf("the table lacks %s", name)
		}
	}
}
